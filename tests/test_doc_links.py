"""Links from pages to lines of the source lead to the definition that they name.

`python tests/test_doc_links.py` writes the right numbers into the pages.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
LINK = re.compile(r"""\[`?(?P<text>[^\]`]+)`?\]\((?P<path>[\w./]+\.py)#L(?P<line>\d+)(?: "(?P<title>[\w.]+)")?\)""")
"""A link to a line: its text, or else its title, is the qualified name of a function or class."""


def find_line(path: Path, name: str) -> int:
    """Returns the line in which a module defines a function or class, such as `Attention.forward`."""
    node: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for part in name.split("."):
        definitions = [each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == part]
        assert definitions, f"{path} does not define {name}"
        node = definitions[-1]
    return int(node.lineno)  # type: ignore[attr-defined]


def correct(page: Path) -> str:
    """Returns the text of a page with the right number in each link."""

    def replace(link: re.Match[str]) -> str:
        line = find_line((page.parent / link["path"]).resolve(), link["title"] or link["text"])
        start, end = link.span("line")
        return f"{link[0][: start - link.start()]}{line}{link[0][end - link.start() :]}"

    return LINK.sub(replace, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_definitions(page: Path) -> None:
    assert correct(page) == page.read_text(encoding="utf-8"), "run python tests/test_doc_links.py"


def test_the_page_on_architecture_has_links() -> None:
    assert len(LINK.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))) >= 15


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(correct(page), encoding="utf-8")
