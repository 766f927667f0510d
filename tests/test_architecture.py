"""docs/architecture.md names every module in its folder, and no module that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_map_of_the_house_is_complete() -> None:
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "zoo").rglob("*.py")
        if not path.name.startswith("__") and "conf" not in path.parts
    }
    drawn = list(_drawn())
    assert not modules - set(drawn), "docs/architecture.md does not name these"
    assert not set(drawn) - modules, "docs/architecture.md names these, which are not there"
    assert len(drawn) == len(modules), "docs/architecture.md names a module twice"


def _drawn() -> Iterator[str]:
    """The modules of the drawing: below a line that begins with a folder, its files follow, several on a line."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = page[page.index("\n    zoo/\n") : page.index("A domain has the same rooms")]
    folder = ""
    for line in drawing.splitlines():
        if opened := re.match(r" {4}(zoo/[\w/]*)(.*)", line):
            folder, line = opened[1], opened[2]
        yield from (f"{folder}{name}" for name in re.findall(r"\w+\.py\b", line))


def test_files_of_tests_have_different_names() -> None:
    """pytest imports them by their bare names, and cannot collect two of one name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
