"""Limits the size of generated data, because a configuration may come from a stranger, or have a zero too many."""

from __future__ import annotations

from zoo.errors import ConfigError

MOST_NUMBERS = 1 << 27
"""The most numbers of a generated data set (features, pixels, items, edges): half a gigabyte of float32."""


def check_numbers(count: int, options: str) -> None:
    """Refuses to generate more than `MOST_NUMBERS` numbers.

    Args:
        count: The numbers that the data set would have.
        options: The options that decide this, for the message.
    """
    if count > MOST_NUMBERS:
        raise ConfigError(f"{options} make {count:,} numbers of generated data, and {MOST_NUMBERS:,} are the most")
