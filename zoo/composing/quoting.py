"""Texts as values of overrides."""

from __future__ import annotations


def quoted(value: str) -> str:
    """A text as Hydra's grammar wants it, which may hold spaces, commas or equals signs."""
    if "'" in value or value.endswith("\\"):
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{value}'"
