"""Question answering: about pictures, about paragraphs, and whether one sentence follows from another."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "task": ["NLIClassifier", "VQAClassifier", "ExtractiveQA"],
        "datamodule": ["AnswerData"],
        "datasets": [
            "hypotheses",
            "passage_questions",
            "picture_questions",
            "planted_inference",
            "planted_passages",
            "planted_questions",
            "sick",
        ],
        "models.bidaf": ["BiDAF"],
        "models.coattention": ["HieCoAtt"],
        "models.esim": ["ESIM"],
    },
)
