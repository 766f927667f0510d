"""The pages of the domains have one form, and what the documentation names is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOMAINS = ["graphs", "vision", "recommendation", "documents", "translation", "speech", "captioning", "answering"]
DOMAIN_PAGES = [ROOT / "docs" / f"{name}.md" for name in DOMAINS]
FRONT_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md", "results/README.md")]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *FRONT_PAGES])
HEADINGS = [
    "Run",
    "Your own data",
    "Options",
    "Metrics",
    "How to read the map",
    "In Python",
    "The equations",
    "Which file to open",
    "Results",
]
MOST_LINES = 150
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?(?: \"[^\"]*\")?\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = ("benchmarks", "conf", "data", "docs", "results", "tests", "zoo")
FILE = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]+")
MADE_BY_USERS = re.compile(r"data/(?:package_texts|vectors)(?:/|$)|data/reviews\.csv$")
"""Files that a command on a page expects, and no checkout has."""
PUBLIC_NAME = re.compile(r"zoo(?:\.\w+)+")
CLASS = re.compile(r"[A-Z]+[A-Za-z0-9]*[a-z][A-Za-z0-9]*")


def anchors_of(page: Path) -> set[str]:
    """Returns the anchors that a page's headings have on GitHub."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def codes_of(page: Path) -> list[str]:
    return CODE.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))


def class_names() -> set[str]:
    """Returns the names of all classes of the package."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "zoo").rglob("*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("page", DOMAIN_PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_form_of_all(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)[1:] == HEADINGS
    assert len(text.splitlines()) <= MOST_LINES
    assert f"<!-- table run-{page.stem} -->" in text
    assert f"(results/{page.name})" in text
    assert "../data/README.md#" in text


def test_each_domain_has_a_page_and_its_results() -> None:
    tasks = ROOT / "zoo" / "tasks"
    domains = {path.parent.name for path in tasks.glob("*/explanation.py")} - {"seq2seq"}
    assert {"graph" if name == "graphs" else name for name in DOMAINS} == domains
    assert {path.stem for path in (ROOT / "docs" / "results").glob("*.md")} == set(DOMAINS)


def test_the_readme_shows_what_the_run_of_the_page_on_graphs_prints() -> None:
    """results/tables.py makes that page's table from the committed run."""
    tables = [
        re.findall(r"^gat on planted_graph.*?^└.*?$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for path in (ROOT / "README.md", ROOT / "docs" / "graphs.md")
    ]
    assert len(tables[0]) == 1
    assert tables[0] == tables[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.finditer(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link["path"]):
            continue
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), link[0]
        if link["anchor"] and target.suffix == ".md":
            assert link["anchor"] in anchors_of(target), link[0]


def _is_there(path: str) -> bool:
    """Returns whether a path exists, seen from the repository, or from the package as on the page of architecture."""
    return any(folder.exists() and any(folder.glob(path)) for folder in (ROOT, ROOT / "zoo"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    paths = [path.rstrip(".") for code in codes_of(page) for path in code.split() if FILE.fullmatch(path)]
    missing = [path for path in paths if not MADE_BY_USERS.match(path) and not _is_there(path)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_public_names_of_a_page_are_exported(page: Path) -> None:
    for name in (code for code in codes_of(page) if PUBLIC_NAME.fullmatch(code)):
        found: Any = importlib.import_module("zoo")
        for part in name.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(f"{found.__name__}.{part}")


@pytest.mark.parametrize("page", DOMAIN_PAGES, ids=lambda page: page.stem)
def test_classes_that_a_page_names_are_there(page: Path) -> None:
    names = {code for code in codes_of(page) if CLASS.fullmatch(code)}
    assert names <= class_names()
