"""Question answering: about pictures, about paragraphs, and whether one sentence follows from another."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "extractive_qa": ["ExtractiveQA"],
        "nli": ["NLIClassifier"],
        "vqa": ["VQAClassifier"],
        "datamodule": ["AnswerData", "ExtractiveQAData", "NLIData", "VQAData"],
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
