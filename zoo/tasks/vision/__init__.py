"""Vision: classification of pictures by gated convolutional networks and Transformers."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.image_data": ["ImageData"],
        "data.sources": ["image_folder", "image_table", "imagenet", "planted_glimpse", "published"],
        "data.transforms": ["Augmentation"],
        "module": ["ImageClassifier"],
        "nets.cct": ["CCT"],
        "nets.efficientnet_lite": ["EfficientNetLite"],
        "nets.resnet": ["ResNet"],
        "nets.swin": ["Swin"],
        "nets.torchvision_cnn": ["TorchvisionCNN"],
        "nets.vit": ["ViT"],
    },
)
