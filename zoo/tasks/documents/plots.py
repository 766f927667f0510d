"""Draws a document as a page: weights of sentences in the margin, weights of words as shades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.maps import plots
from zoo.maps.describe import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS, _ROWS = 92, 56
"""Maximum number of letters in a row, and of rows of text on a page."""
_LETTER, _ROW = 0.072, 0.2
"""Width of a letter and height of a row, in inches."""
_SIZE = 8.4
"""Size of the font, in points."""
_MARGIN = 13
"""Width of the margin, in letters."""
_LONGEST = 30
"""Maximum number of letters of a word; longer ones are cut."""


@dataclass(frozen=True)
class Line:
    """A sentence.

    Args:
        words: Words as they are written in the text.
        weight: Weight of the sentence in the document.
        weights: Weight of each word in the sentence.
        gold: Flag of each word, True if it determines the label.
        is_gold: True if the sentence determines the label.
    """

    words: Sequence[str]
    weight: float
    weights: Sequence[float]
    gold: Sequence[bool]
    is_gold: bool


@dataclass(frozen=True)
class _Placed:
    row: int
    column: int
    text: str
    shade: float
    is_gold: bool


def page(sentences: Sequence[Line], *, title: str) -> Figure:
    """Draws one document as text in which important words of important sentences are dark.

    The shade of a word is sqrt(p_s) p_w, where p_s is the weight of its sentence and p_w its weight in the sentence
    (Yang et al. 2016, section 3.5). If a document is too long for the page, only its heaviest sentences are shown, in
    the order of the text; a line counts the sentences that are left out between them.
    """
    from matplotlib.figure import Figure

    shades = [[math.sqrt(max(each.weight, 0.0)) * abs(value) for value in each.weights] for each in sentences]
    most = max((value for row in shades for value in row), default=0.0) or 1.0
    heaviest = max((each.weight for each in sentences), default=0.0) or 1.0
    shown = _choose_lines(sentences)
    rows, placed, margins, gaps = 0, list[_Placed](), list[tuple[int, Line]](), list[tuple[int, int]]()
    before = -1
    for at in shown:
        if at > before + 1:
            gaps.append((rows, at - before - 1))
            rows += 1
        margins.append((rows, sentences[at]))
        words = list(_place(sentences[at], [value / most for value in shades[at]], rows))
        placed += words
        rows, before = words[-1].row + 1, at
    if before < len(sentences) - 1:
        gaps.append((rows, len(sentences) - 1 - before))
        rows += 1
    tall = rows * _ROW + 0.95
    figure = Figure(figsize=((_COLUMNS + _MARGIN + 4) * _LETTER, tall), facecolor="white")
    figure.text(
        0.02, 1 - 0.3 / tall, plots.short(title, 92), fontsize=11, color=plots.INK, weight="bold", parse_math=False
    )
    axes = figure.add_axes((0.0, 0.35 / tall, 1.0, rows * _ROW / tall))
    axes.set_xlim(-_MARGIN - 1, _COLUMNS + 3)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_axis_off()
    for row, line in margins:
        _margin(axes, row, line, heaviest)
    for each in placed:
        _word(axes, each)
    for row, count in gaps:
        left_out = f"… {count:,} sentence{'s' * (count != 1)} left out that weigh{'s' * (count == 1)} less"
        axes.text(0, row, left_out, fontsize=_SIZE - 1, color=plots.QUIET, va="center", style="italic")
    said = "margin: weight of the sentence; shade: weight of the word"
    has_gold = any(line.is_gold for _, line in margins)
    figure.text(0.02, 0.1 / tall, f"{said}; orange: gold" if has_gold else said, fontsize=8, color=plots.QUIET)
    return figure


def _choose_lines(sentences: Sequence[Line]) -> list[int]:
    """Returns the indices of the heaviest sentences that fit on a page."""
    ranked = sorted(range(len(sentences)), key=lambda at: -sentences[at].weight)
    chosen, rows = list[int](), 0
    for at in ranked:
        needed = sum(len(_cut(word)) + 1 for word in sentences[at].words) // _COLUMNS + 2
        if chosen and rows + needed > _ROWS:
            break
        chosen.append(at)
        rows += needed
    return sorted(chosen)


def _place(line: Line, shades: Sequence[float], row: int) -> Iterator[_Placed]:
    """Places the words of a sentence in rows, with spaces as in the text."""
    column, first = 0, row
    for word, shade, is_gold in zip(line.words, shades, line.gold, strict=True):
        text = _cut(word.strip())
        column += bool(column) and word.startswith(" ")
        if column and column + len(text) > _COLUMNS:
            row, column = row + 1, 0
        if row - first >= _ROWS:
            yield _Placed(row, 0, "…", 0.0, False)
            return
        yield _Placed(row, column, text, shade, is_gold)
        column += len(text)


def _cut(word: str) -> str:
    return plots.short(word, _LONGEST) if word.strip() else "·"


def _margin(axes: Axes, row: int, line: Line, heaviest: float) -> None:
    from matplotlib.patches import Rectangle

    colour = plots.GOLD if line.is_gold else plots.INK
    long = 6.0 * max(line.weight, 0.0) / heaviest
    axes.add_patch(Rectangle((-2.0 - long, row - 0.3), long, 0.6, facecolor=plots.GOLD if line.is_gold else "#8fb3dc"))
    text = number(line.weight)
    axes.text(-8.6, row, text, fontsize=_SIZE - 0.6, color=colour, ha="right", va="center", family="monospace")


def _word(axes: Axes, word: _Placed) -> None:
    from matplotlib.patches import Rectangle

    width, colour = len(word.text), plots.colours()(0.9 * word.shade)
    if word.shade > 0.02:
        axes.add_patch(Rectangle((word.column - 0.25, word.row - 0.42), width + 0.5, 0.84, facecolor=colour))
    dark = 0.9 * word.shade > 0.55
    options: dict[str, Any] = {"fontsize": _SIZE, "va": "center", "family": "monospace", "parse_math": False}
    axes.text(word.column, word.row, word.text, color="white" if dark else plots.INK, **options)
    if word.is_gold:
        axes.plot([word.column, word.column + width], [word.row + 0.45] * 2, color=plots.GOLD, linewidth=1.6)
