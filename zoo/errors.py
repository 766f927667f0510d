"""Errors that a user can mend. The command line prints one and exits with 2; ZOO_DEBUG=1 shows the traceback."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Sequence

from zoo.plurals import count_noun

_ALIKE, _LINES = 3, 30
"""The most problems of one kind that are listed, and the most lines of the others."""
_PLACE = re.compile(
    r"(?P<file>[^:\n]+?)(?:, (?:line (?P<line>[\d,]+)|[a-z]+ (?P<id>'[^']*')))?(?:, column (?P<column>'[^']*'))?: "
)
"""The beginning of a message about a file (`zoo.data.tables.message`)."""
_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:,\d{3})*")
_LISTED = 30
"""The most names that a message lists."""

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, except for tabs and ends of lines."""
_WIDEST, _MOST_LINES, _TAIL = 4_000, 250, 500


def escape_control(text: object) -> str:
    """A text for a terminal, with its control characters as visible escapes: names in files may contain them."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def escape_cell(text: object) -> str:
    """A text for one cell of a table: as `visible`, with ends of lines and tabs as escapes too."""
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


def truncate(text: str) -> str:
    """A message without the middle of very long lines, and without lines beyond a few hundred."""
    lines = text.split("\n")
    left_out = len(lines) - _MOST_LINES + 1
    if left_out > 1:
        lines = [*lines[: _MOST_LINES - 1], f"and {left_out:,} more lines"]
    return "\n".join(map(_truncate_line, lines))


def _truncate_line(line: str) -> str:
    if len(line) <= _WIDEST:
        return line
    return f"{line[: _WIDEST - 2 * _TAIL]} [... {len(line) - _WIDEST:,} characters ...] {line[-_TAIL:]}"


class ZooError(Exception):
    """An error outside the program; the message says what is wrong, where, and how to mend it."""

    def __str__(self) -> str:
        return truncate(escape_control(super().__str__()))


class ConfigError(ZooError):
    """An option that does not exist, does not fit, or has the wrong type."""


class MissingPackageError(ConfigError):
    """A part of a package that is not installed, or does not say that it adds to the zoo."""


class DataError(ZooError):
    """A file, row or value of the user's data."""


class CheckpointError(ZooError):
    """A checkpoint that is truncated, foreign, too new, or of another model."""


class OfflineError(ZooError):
    """Something must be downloaded and cannot be."""


class TrainingError(ZooError):
    """Training cannot go on: the loss is not finite."""


class WorkerError(ZooError):
    """A process that makes batches was killed."""


class OutOfMemoryError(ZooError):
    """Memory did not suffice."""


def make_error(kind: str, message: str) -> ZooError:
    """Returns the error of another process, from the name of its class and its message."""
    kinds = {each.__name__: each for each in ZooError.__subclasses__()}
    return kinds.get(kind, ZooError)(message)


class ProblemsError(ZooError):
    """All problems that a preflight has found, numbered. Those of one kind, beyond a few, are counted."""

    def __init__(self, problems: Sequence[str], most: int = 200) -> None:
        self.problems = list(problems)
        said = _count_kinds(self.problems)
        shown = [f"{number:>3}. {problem}" for number, problem in enumerate(said[:most], 1)]
        more = [f"     and {len(said) - most:,} more"] if len(said) > most else []
        super().__init__("\n".join([count_noun(len(self.problems), "problem"), *shown, *more]))


def _count_kinds(problems: Sequence[str]) -> list[str]:
    """Returns problems in their order; of a kind with many, the first few, and a count of the others."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for problem in problems:
        kinds.setdefault(_kind(problem), []).append(problem)
    said = []
    for alike in kinds.values():
        if len(alike) <= _ALIKE:
            said += alike
            continue
        places = [place["line"] or place["id"] for place in map(_PLACE.match, alike[_ALIKE:]) if place is not None]
        rows = [each for each in places if each is not None]
        where = f", at {', '.join(rows[:_LINES])}{', ...' * (len(rows) > _LINES)}" if rows else ""
        said += [*alike[: _ALIKE - 1], f"{alike[_ALIKE - 1]} (and {len(alike) - _ALIKE:,} more of this kind{where})"]
    return said


def _kind(problem: str) -> tuple[str, ...]:
    """Returns what problems have in common that differ in their lines, files of a folder, and values alone."""
    place = _PLACE.match(problem)
    is_row = place is not None and (place["line"] is not None or place["id"] is not None)
    if place is None or not (is_row or ("/" in place["file"] and "=" not in place["file"])):
        return (problem,)
    file = place["file"] if is_row else place["file"].rpartition("/")[0]
    return file, place["column"] or "", _VALUE.sub("", problem[place.end() :])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the closest known name (both, if two are equally close), or lists all if none is close."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(name, choices, n=2, cutoff=0.5)
    if close:
        likeness = [difflib.SequenceMatcher(None, each, name).ratio() for each in close]
        tied = [each for each, ratio in zip(close, likeness, strict=True) if ratio == likeness[0]]
        return f"Did you mean {' or '.join(map(repr, tied))}?"
    if not choices:
        return "There is none."
    more = f" and {len(choices) - _LISTED:,} more" if len(choices) > _LISTED else ""
    return f"There is: {', '.join(choices[:_LISTED])}{more}."


def join_names(names: Sequence[str]) -> str:
    """The first few names and how many more there are, with the verb that fits."""
    shown = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def warn(text: str) -> None:
    """Warns of something that was left out or is not as it should be, and does not stop the run."""
    warnings.warn(text, UserWarning, stacklevel=2)


class InterruptedRunError(ZooError):
    """Ctrl-C or SIGTERM, honoured between two steps. The command line exits with 130."""


def quote_value(value: str) -> str:
    """Quotes a text as the value of an option; it may contain spaces, commas and equals signs."""
    if "'" in value or value.endswith("\\"):
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{value}'"
