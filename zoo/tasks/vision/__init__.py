"""Vision: pictures and their classes, by gated convolutions and by Transformers."""
