"""Vision: classification of pictures by gated convolutional networks and Transformers."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "datamodule": ["ImageData"],
        "datasets": ["image_folder", "image_table", "imagenet", "planted_glimpse", "published"],
        "data.transforms": ["Augmentation"],
        "task": ["ImageClassifier"],
        "models.cct": ["CCT"],
        "models.efficientnet_lite": ["EfficientNetLite"],
        "models.resnet": ["ResNet"],
        "models.swin": ["Swin"],
        "models.torchvision_cnn": ["TorchvisionCNN"],
        "models.vit": ["ViT"],
    },
)
