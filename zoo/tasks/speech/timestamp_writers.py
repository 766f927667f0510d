"""Files of times: CTM, Praat's TextGrid, and CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from zoo.errors import ConfigError
from zoo.io import open_atomic, write_text
from zoo.maps.explainer import picture_name
from zoo.tasks.speech.timestamps import Timed, Times

_DIGITS = 6
"""Digits of a second in a TextGrid."""
Write = Callable[[str, Times], None]
"""Writes the times of a recording, given its id."""


@contextmanager
def time_file(path: Path) -> Iterator[Write]:
    """Opens what `--times-out` names: a .ctm or .csv file of all recordings, or a folder with a TextGrid of each.

    Raises:
        ConfigError: The path is none of these, or cannot be written.
    """
    with ExitStack() as stack:
        try:
            yield _open(path, stack)
        except OSError as error:
            if error.filename is None or Path(str(error.filename)) not in (path, *path.parents):
                raise
            raise ConfigError(f"--times-out={path}: it cannot be written ({error.strerror})") from error


def ctm(id: str, words: Sequence[Timed]) -> str:
    """Returns the lines of a recording: name, channel, begin, duration, word, confidence; see NIST's sclite.

    A comment before them names the words whose times are poor.
    """
    name = "_".join(id.split()) or "_"
    poor = [f"{each.text} {each.start:.3f}" for each in words if each.is_poor]
    comment = f";; {name}: poor times of {', '.join(poor)}\n" if poor else ""
    return comment + "".join(
        f"{name} 1 {each.start:.3f} {each.end - each.start:.3f} {each.text} {each.probability:.4f}\n" for each in words
    )


def text_grid(times: Times) -> str:
    """Returns a TextGrid of Praat: a tier of words, and a tier of tokens. What nobody says is an empty interval.

    Where times of words are poor, a third tier has the share of the attention that lies in the time of each word.
    """
    tiers = {"words": times.words, "tokens": times.tokens}
    if any(each.is_poor for each in times.words):
        tiers["focus"] = [each._replace(text=f"{each.focus:.2f}") for each in times.words]
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *_limits(0, 0.0, times.seconds)]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, parts) in enumerate(tiers.items(), start=1):
        intervals = _tile(parts, times.seconds)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"']
        lines += [*_limits(8, 0.0, times.seconds), f"        intervals: size = {len(intervals)}"]
        for place, (text, start, end) in enumerate(intervals, start=1):
            lines += [f"        intervals [{place}]:", *_limits(12, start, end)]
            lines += ['            text = "{}"'.format(text.replace('"', '""'))]
    return "\n".join(lines) + "\n"


def _open(path: Path, stack: ExitStack) -> Write:
    ending = path.suffix.lower()
    if ending in (".ctm", ".csv"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = stack.enter_context(open_atomic(path))
        return _csv_rows(file) if ending == ".csv" else lambda id, times: _write(file, ctm(id, times.words))
    if ending or path.is_file():
        raise ConfigError(
            f"--times-out={path}: name a .ctm file, a .csv file, or a folder for a TextGrid of each recording"
        )
    path.mkdir(parents=True, exist_ok=True)
    written = set[str]()

    def write(id: str, times: Times) -> None:
        name = f"{picture_name(id)}.TextGrid"
        if name in written:
            raise ConfigError(
                f"--times-out={path}: two recordings would have the file {name}; write a .csv file instead"
            )
        written.add(name)
        write_text(path / name, text_grid(times))

    return write


def _csv_rows(file: TextIO) -> Write:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["id", "unit", "place", "text", "start", "end", "probability", "focus", "is_poor"])

    def write(id: str, times: Times) -> None:
        for unit, parts in (("word", times.words), ("token", times.tokens)):
            for place, each in enumerate(parts):
                numbers = [f"{each.start:.3f}", f"{each.end:.3f}", f"{each.probability:.4f}", f"{each.focus:.4f}"]
                writer.writerow([id, unit, place, each.text, *numbers, str(each.is_poor).lower()])

    return write


def _write(file: TextIO, text: str) -> None:
    file.write(text)


def _tile(parts: Sequence[Timed], seconds: float) -> list[tuple[str, float, float]]:
    """Returns intervals without gaps from 0 to the end; parts without duration, as it is written, are left out."""
    found, at, seconds = list[tuple[str, float, float]](), 0.0, _round(seconds)
    for each in parts:
        start, end = max(at, _round(each.start)), min(_round(each.end), seconds)
        if end <= start:
            continue
        if start > at:
            found.append(("", at, start))
        found.append((each.text, start, end))
        at = end
    return [*found, ("", at, seconds)] if at < seconds else found


def _round(seconds: float) -> float:
    """Returns a time as a TextGrid has it: intervals that are shorter than its last digit have no length there."""
    return round(seconds, _DIGITS)


def _limits(indent: int, start: float, end: float) -> list[str]:
    """Returns the lines of a TextGrid that say where something begins and ends."""
    return [f"{' ' * indent}xmin = {start:.{_DIGITS}f}", f"{' ' * indent}xmax = {end:.{_DIGITS}f}"]
