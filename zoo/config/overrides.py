"""Quotes texts for the values of overrides."""

from __future__ import annotations


def quote(value: str) -> str:
    """A text in quotes for Hydra's grammar; it may contain spaces, commas and equals signs."""
    if "'" in value or value.endswith("\\"):
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{value}'"
