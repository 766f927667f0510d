"""The shape of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_files_of_tests_have_different_names() -> None:
    """pytest imports them by their bare names, and cannot collect two of one name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
