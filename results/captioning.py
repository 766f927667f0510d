"""Makes the tables of captioning in docs/captioning.md."""

from __future__ import annotations

from collections.abc import Iterator

from measured import of_runs

PLANTED = {
    "captioner-planted_scenes": "soft attention",
    "captioner-planted_scenes-hard": "hard attention, rewarded",
    "captioner-planted_scenes-uniform": "uniform (control)",
    "captioner_transformer-planted_scenes": "Transformer",
}


def planted() -> Iterator[str]:
    """Makes a table of captions and of where their words look, on planted scenes."""
    texts = {"exact match": "test/exact_match", "BLEU-4": "test/bleu", "CIDEr-D": "test/cider"}
    return of_runs(PLANTED, {**texts, "pointing": "truth/pointing"})
