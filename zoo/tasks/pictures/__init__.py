"""Pictures that texts are about: what reads them for a decoder or a question, and generated ones."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "backbone_encoder": ["BackboneEncoder"],
        "plain_cnn": ["PlainCNN"],
    },
)
