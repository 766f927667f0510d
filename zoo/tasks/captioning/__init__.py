"""Captioning: sentences about pictures, and the place in the picture that each word was made of."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "captioner": ["Captioner"],
        "data.caption_data": ["CaptionData"],
        "data.sources": ["captions", "coco", "flickr8k", "planted_scenes"],
        "nets.show_attend_tell": ["ShowAttendTell"],
        "nets.transformer_captioner": ["TransformerCaptioner"],
    },
)
