"""Errors that a user can mend, and the words of messages.

The command line prints an error and exits with 2; ZOO_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Sequence

_MAX_ALIKE, _MAX_ROWS = 3, 30
"""The most problems of one kind that are listed, and the most lines of the others."""
_PLACE = re.compile(
    r"(?P<file>[^:\n]+?)(?:, (?:line (?P<line>[\d,]+)|[a-z]+ (?P<id>'[^']*')))?(?:, column (?P<column>'[^']*'))?: "
)
"""The beginning of a message about a file (`zoo.data.tables.message`)."""
_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:,\d{3})*")
_MAX_NAMES = 30
"""The most names that a message lists."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, except for tabs and ends of lines."""
_MAX_LENGTH, _MAX_LINES, _TAIL = 4_000, 250, 500


def escape_control(text: object) -> str:
    """Returns a text for a terminal, with visible escapes for control characters, which names in files may contain."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def escape_cell(text: object) -> str:
    """Returns a text for one cell of a table: like `escape_control`, with ends of lines and tabs as escapes too."""
    return escape_control(text).replace("\n", "\\n").replace("\t", "\\t")


def truncate(text: str) -> str:
    """Returns a message without the middle of very long lines, and without lines beyond a few hundred."""
    lines = text.split("\n")
    dropped_count = len(lines) - _MAX_LINES + 1
    if dropped_count > 1:
        lines = [*lines[: _MAX_LINES - 1], f"and {dropped_count:,} more lines"]
    return "\n".join(map(_truncate_line, lines))


def _truncate_line(line: str) -> str:
    if len(line) <= _MAX_LENGTH:
        return line
    return f"{line[: _MAX_LENGTH - 2 * _TAIL]} [... {len(line) - _MAX_LENGTH:,} characters ...] {line[-_TAIL:]}"


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


def get_reason(error: BaseException) -> str:
    """Returns the first line of an error's message; its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def make_error(kind: str, message: str) -> ZooError:
    """Returns the error of another process, from the name of its class and its message."""
    kinds = {error_type.__name__: error_type for error_type in ZooError.__subclasses__()}
    return kinds.get(kind, ZooError)(message)


class ProblemsError(ZooError):
    """All problems that a preflight has found, numbered. Those of one kind, beyond a few, are counted."""

    def __init__(self, problems: Sequence[str], max_shown: int = 200) -> None:
        self.problems = list(problems)
        messages = _count_kinds(self.problems)
        numbered = [f"{number:>3}. {problem}" for number, problem in enumerate(messages[:max_shown], 1)]
        remainder = [f"     and {len(messages) - max_shown:,} more"] if len(messages) > max_shown else []
        super().__init__("\n".join([count_noun(len(self.problems), "problem"), *numbered, *remainder]))


def _count_kinds(problems: Sequence[str]) -> list[str]:
    """Returns problems in their order; of a kind with many, the first few, and a count of the others."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for problem in problems:
        kinds.setdefault(_get_kind(problem), []).append(problem)
    messages = []
    for group in kinds.values():
        if len(group) <= _MAX_ALIKE:
            messages += group
            continue
        places = [place["line"] or place["id"] for place in map(_PLACE.match, group[_MAX_ALIKE:]) if place is not None]
        rows = [row for row in places if row is not None]
        positions = f", at {', '.join(rows[:_MAX_ROWS])}{', ...' * (len(rows) > _MAX_ROWS)}" if rows else ""
        messages += [
            *group[: _MAX_ALIKE - 1],
            f"{group[_MAX_ALIKE - 1]} (and {len(group) - _MAX_ALIKE:,} more of this kind{positions})",
        ]
    return messages


def _get_kind(problem: str) -> tuple[str, ...]:
    """Returns what problems have in common that differ in their lines, files of a folder, and values alone."""
    place = _PLACE.match(problem)
    is_row = place is not None and (place["line"] is not None or place["id"] is not None)
    if place is None or not (is_row or ("/" in place["file"] and "=" not in place["file"])):
        return (problem,)
    file = place["file"] if is_row else place["file"].rpartition("/")[0]
    return file, place["column"] or "", _VALUE.sub("", problem[place.end() :])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a sentence that offers the closest known name, or lists all if none is close.

    If two are equally close it offers both.
    """
    choices = sorted(set(known))
    candidates = difflib.get_close_matches(name, choices, n=2, cutoff=0.5)
    if candidates:
        likeness = [difflib.SequenceMatcher(None, choice, name).ratio() for choice in candidates]
        closest = [choice for choice, ratio in zip(candidates, likeness, strict=True) if ratio == likeness[0]]
        return f"Did you mean {' or '.join(map(repr, closest))}?"
    if not choices:
        return "There is none."
    remainder = f" and {len(choices) - _MAX_NAMES:,} more" if len(choices) > _MAX_NAMES else ""
    return f"There is: {', '.join(choices[:_MAX_NAMES])}{remainder}."


def join_few(names: Sequence[str], most: int = 5) -> str:
    """Returns the first few names and how many more there are."""
    remainder = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{remainder}"


def join_names(names: Sequence[str]) -> str:
    """Returns the first few names in quotes and how many more there are, with the verb that fits."""
    return f"{join_few([repr(name) for name in names])} {'is' if len(names) == 1 else 'are'}"


def warn(text: str) -> None:
    """Warns of something that was left out or is not as it should be, and does not stop the run."""
    warnings.warn(text, UserWarning, stacklevel=2)


class InterruptedRunError(ZooError):
    """Ctrl-C or SIGTERM, honored between two steps. The command line exits with 130."""


def quote_value(value: str) -> str:
    """Quotes a text as the value of an option; it may contain spaces, commas and equals signs."""
    if "'" in value or value.endswith("\\"):
        value = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{value}'"


def pluralize(noun: str, count: int = 2) -> str:
    """Returns a noun, given in the singular, in the form for so many of it."""
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    is_hissing = noun.endswith(("s", "x", "ch", "sh")) and not noun.endswith("poch")  # as in batches, not in epochs
    return f"{noun}es" if is_hissing else f"{noun}s"


def count_noun(count: int, noun: str, plural: str = "") -> str:
    """Returns a count and its noun: "1 row", "2,000 rows".

    Args:
        count: How many there are.
        noun: What, in the singular.
        plural: The plural, if it is not made of the singular by a rule.
    """
    return f"{count:,} {plural if plural and count != 1 else pluralize(noun, count)}"
