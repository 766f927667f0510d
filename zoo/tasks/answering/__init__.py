"""Question answering: about pictures, about paragraphs, and whether one sentence follows from another."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "answerer": ["HypothesisJudge", "PictureAnswerer", "SpanReader"],
        "data.answer_data": ["AnswerData"],
        "data.sources": [
            "hypotheses",
            "passage_questions",
            "picture_questions",
            "planted_inference",
            "planted_passages",
            "planted_questions",
            "sick",
        ],
        "nets.bidaf": ["BiDAF"],
        "nets.coattention": ["CoAttentionAnswerer"],
        "nets.esim": ["ESIM"],
    },
)
