"""Networks that several domains share: recurrent networks over packed rows, decoders of texts, encoders of pictures."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "images.backbone_encoder": ["BackboneEncoder"],
        "images.plain_cnn": ["PlainCNN"],
        "seq2seq.bahdanau": ["Bahdanau"],
        "seq2seq.luong": ["InputFeeding", "Luong"],
    },
)
