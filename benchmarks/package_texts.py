"""Makes a set of topical texts with many labels: the descriptions of Debian's packages, and their sections.

    apt-get -o Acquire::Languages=en update
    python benchmarks/package_texts.py --lists /var/lib/apt/lists --out package_texts
    python train.py model=han data=text_table data.table=package_texts/1000.csv

Packages of one source describe themselves alike, so that one of each source is taken; a text is in one split. Tables
`<size>.csv` have so many training texts, the smaller ones a part of the larger, and the same val and test.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_PART = re.compile(r"^([A-Za-z0-9-]+):[ ]?(.*)$")
_LEFT_OUT = {"debug", "metapackages", "oldlibs", "translations", "localization", "libs", "libdevel", "misc", "utils"}
"""Sections that say nothing of the subject."""
_LEAST_WORDS = 20
_SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=Path, required=True, help="folder of package lists, with Translation-en files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--most", type=int, default=800, help="texts of a label")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--held-out", type=int, default=2000, help="texts of val, and of test")
    options = parser.parse_args()
    texts = read_texts(options.lists)
    sections = sorted(texts, key=lambda name: (-len(texts[name]), name))[: options.labels]
    draw = random.Random(_SEED)
    rows = [(text, name) for name in sections for text in draw.sample(texts[name], min(options.most, len(texts[name])))]
    draw.shuffle(rows)
    held_out, train = rows[: 2 * options.held_out], rows[2 * options.held_out :]
    parts = [(*row, "val" if n < options.held_out else "test") for n, row in enumerate(held_out)]
    options.out.mkdir(parents=True, exist_ok=True)
    for size in options.sizes:
        if size > len(train):
            raise SystemExit(f"there are {len(train):,} texts for training, and {size:,} are asked for")
        path = options.out / f"{size}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label", "split"])
            writer.writerows([*((*row, "train") for row in train[:size]), *parts])
        print(f"{path}: {size:,} training texts, {options.held_out:,} of val and of test, {len(sections)} labels")


def read_texts(lists: Path) -> dict[str, list[str]]:
    """Returns section -> the long descriptions of its packages, one for each source, in alphabetical order."""
    described = {
        entry["Package"]: _long(entry["Description-en"])
        for path in sorted(lists.glob("*Translation-en*"))
        for entry in _entries(path)
        if "Description-en" in entry
    }
    found: dict[str, list[str]] = defaultdict(list)
    sources, seen = set[str](), set[str]()
    for path in sorted(lists.glob("*_Packages*")):
        for entry in _entries(path):
            name, section = entry["Package"], entry.get("Section", "").rpartition("/")[2]
            source, text = entry.get("Source", name).split()[0], described.get(name, "")
            if section in _LEFT_OUT or source in sources or text in seen or len(text.split()) < _LEAST_WORDS:
                continue
            sources.add(source)
            seen.add(text)
            found[section].append(text)
    return found


def _entries(path: Path) -> Iterator[dict[str, str]]:
    """Yields the entries of a list, field -> value with its line ends."""
    content = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", str(path)], check=True, capture_output=True).stdout
    for block in content.decode().split("\n\n"):
        entry, field = dict[str, str](), ""
        for line in block.splitlines():
            part = None if line.startswith(" ") else _PART.match(line)
            if part is not None:
                field = part[1]
                entry[field] = part[2]
            elif field:
                entry[field] += "\n" + line.strip()
        if "Package" in entry:
            yield entry


def _long(description: str) -> str:
    """Returns a description without its first line, the summary; a line with a point parts paragraphs."""
    lines = description.split("\n")[1:]
    return "\n".join("" if line == "." else line for line in lines).strip()


if __name__ == "__main__":
    main()
