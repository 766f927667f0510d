"""Captioning: sentences about pictures, and the place in the picture that each word was made of."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "task": ["Captioner"],
        "datamodule": ["CaptionData"],
        "datasets": ["captions", "coco", "flickr8k", "planted_scenes"],
        "models.show_attend_tell": ["ShowAttendTell"],
        "models.transformer_captioner": ["TransformerCaptioner"],
    },
)
