"""Small listeners in float64, and recordings of all lengths modulo their stride."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zoo.tasks.speech import ConvRNNEncoder, PyramidalRNNEncoder, TransformerSpeechEncoder
from zoo.tasks.speech.batch import Frames

EXACT = {"rtol": 1e-12, "atol": 1e-12}
FEATURES = 3
LENGTHS = (13, 8, 1, 6, 3, 12, 7)
SIZES: dict[str, dict[str, Any]] = {
    "pyramidal": {"hidden": 4, "joined": (1, 2, 3)},
    "pyramidal, joined frames": {"hidden": 4, "joined": (2, 2), "cell": "gru"},
    "convolutional": {"channels": (5, 6), "hidden": 4},
    "convolutional, wide": {"channels": (5,), "size": 6, "hidden": 4, "layers": 2},
    "transformer": {"channels": (5, 6), "dim": 8, "layers": 2, "heads": 2, "hidden": 6},
}
RECURRENT = [name for name in SIZES if name != "transformer"]
_CLASSES = {
    "pyramidal": PyramidalRNNEncoder,
    "convolutional": ConvRNNEncoder,
    "transformer": TransformerSpeechEncoder,
}


def listener(name: str, **options: Any) -> Any:
    """A listener whose parameters are all drawn at random."""
    torch.manual_seed(0)
    made = _CLASSES[name.split(",")[0]](features=FEATURES, **SIZES[name], **options)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made.double().eval()


def frames(lengths: tuple[int, ...] = LENGTHS) -> Frames:
    """Recordings, with numbers in their padding that nothing may read."""
    random = torch.Generator().manual_seed(1)
    features = torch.randn(len(lengths), max(lengths), FEATURES, generator=random, dtype=torch.float64)
    made = Frames(features, torch.tensor(lengths))
    made.features[~made.is_real] = torch.nan
    return made
