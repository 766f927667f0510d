"""How much data is generated at most: a configuration may come from a stranger, and a slip costs a zero."""

from __future__ import annotations

from zoo.errors import ConfigError

MOST_NUMBERS = 1 << 27
"""Numbers of a generated data set, features, pixels, items and edges alike: half a gigabyte of float32."""


def check_numbers(count: int, options: str) -> None:
    """Refuses to generate more.

    Args:
        count: Numbers that the data set would have.
        options: Which options decide it, for the message.
    """
    if count > MOST_NUMBERS:
        raise ConfigError(f"{options} make {count:,} numbers of generated data, and {MOST_NUMBERS:,} are the most")
