"""Options that make the generated data of every model small: enough for a batch."""

from __future__ import annotations

import functools

from zoo.config import compose

SMALL = {
    "planted_baskets": ["data.users=200", "data.items=50"],
    "planted_glimpse": ["data.train=40", "data.batch_size=4"],
    "planted_graph": ["data.nodes=400"],
    "planted_inference": ["data.pairs=40", "data.held_out=10", "data.batch_size=4"],
    "planted_notes": ["data.reviews=60", "data.batch_size=4"],
    "planted_passages": ["data.passages=40", "data.held_out=10", "data.batch_size=4"],
    "planted_questions": ["data.pictures=40", "data.held_out=10", "data.batch_size=4"],
    "planted_reviews": ["data.reviews=60", "data.batch_size=4"],
    "planted_scenes": ["data.pictures=40", "data.held_out=10", "data.batch_size=4"],
    "planted_sessions": ["data.users=40", "data.items=30"],
    "planted_tones": ["data.utterances=40", "data.held_out=10", "data.batch_size=4"],
    "planted_translation": ["data.pairs=200", "data.held_out=10", "data.batch_size=4"],
}


@functools.cache
def small(model: str) -> list[str]:
    """Returns the options for the own data of a model."""
    return SMALL.get(compose.compose([f"model={model}"])["names"]["data"], [])
