"""The data sets of pictures with captions that can be named in a configuration."""

from __future__ import annotations

from collections.abc import Callable

from zoo.tasks.captioning.data.caption_data import CaptionData, CaptionSource
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.sentences import plant
from zoo.tasks.datasets import dataset


@dataset(CaptionData, generator=plant)
def planted_scenes(generate: Callable[[], CaptionSet]) -> CaptionSource:
    """Generated pictures of coloured shapes, and sentences that say what is in them: see `sentences.plant`."""
    return CaptionSource(generate)
