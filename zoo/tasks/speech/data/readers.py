"""The user's own recordings: tables, and folders of sounds. `data/README.md` describes the formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from zoo.data.encodings import UTF8, Encoding
from zoo.data.encodings import Fault as LineFault
from zoo.data.folders import Walk
from zoo.data.json_lines import is_table, open_table
from zoo.data.line_index import read_lines
from zoo.data.option_hints import format_option, skip_hint
from zoo.data.splits import NONE, SPLITS, TEST, split_stratified
from zoo.data.stdin import original_path
from zoo.data.tables import (
    OnBadRow,
    Required,
    Row,
    RowError,
    Table,
    collect_error,
    is_collecting,
    message,
    parse_number,
)
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.speech.data.audio import DEFAULT_LIMITS, ENDINGS, Clip, Limits, split_of
from zoo.tasks.speech.data.corpus import Corpus
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.recordings import FileSounds

_TRANSCRIPT = ".txt"
_LONGEST_TEXT = 1 << 20
"""Bytes of a file with a transcript."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """How the user's own recordings are read.

    Args:
        path: Name of the column of files.
        text: Likewise of transcripts.
        start, end: Likewise of the part of a file, in seconds, where there are such columns.
        speaker: Likewise of speakers, where there is such a column.
        split: Likewise of splits, where there is such a column.
        id: Likewise of names. Default: files are names.
        on_bad_row: Whether a bad recording is an error, or left out and counted.
        encoding: Encoding of tables and transcripts.
        limits: Shortest and longest recording.
        cache: Folder of derived files; None: features are held in memory.
    """

    path: str = "path"
    text: str = "text"
    start: str = "start"
    end: str = "end"
    speaker: str = "speaker"
    split: str = "split"
    id: str | None = None
    on_bad_row: OnBadRow = "error"
    encoding: Encoding = UTF8
    limits: Limits = DEFAULT_LIMITS
    cache: Path | None = None


@dataclass(frozen=True)
class Alphabet:
    """The characters that a trained model writes.

    Args:
        letters: The characters; None: it writes any text.
        lower: Whether transcripts are read in small letters.
        unknown: Where transcripts with other characters go. Default: they are errors.
    """

    letters: frozenset[str] | None = None
    lower: bool = False
    unknown: UnknownLabels | None = None

    def strange(self, text: str) -> str:
        """Returns the first character of a text that the model cannot write, or ""."""
        if self.letters is None:
            return ""
        return next((letter for letter in (text.lower() if self.lower else text) if letter not in self.letters), "")


Refuse = Callable[[str | None, str, str], RowError]
"""Makes the error of a bad recording, from the column, what is wrong and how to mend it."""


@dataclass(frozen=True)
class Entry:
    """A recording as a reader finds it.

    Args:
        clip: Where it is.
        text: What is said; None if it is not known.
        id: Its name.
        split: A number of `zoo.data.splits`.
        speaker: Name of the speaker; "" if it is not known.
        refuse: Makes the error of this recording.
    """

    clip: Clip
    text: str | None
    id: str
    split: int
    speaker: str
    refuse: Refuse


@dataclass
class _Entries:
    """Recordings of one place, as they are found.

    Args:
        place: Table or folder, for messages.
        reading: How they are read.
        alphabet: What a trained model can write.
    """

    place: Path
    reading: ReaderOptions
    alphabet: Alphabet
    entries: list[Entry] = field(default_factory=list)
    skipped: int = 0
    first_skipped: str = ""

    def bad(self, error: RowError) -> None:
        """Lists, counts or raises the error of a recording."""
        plain = str(error).removesuffix(skip_hint()).rstrip()
        if self.reading.on_bad_row == "skip":
            self.skipped += 1
            self.first_skipped = self.first_skipped or plain
            return
        with collect_error():
            raise RowError(plain) if is_collecting() else error

    def kept(self, features: Features, *, may_be_none: bool = False) -> tuple[list[Entry], FileSounds]:
        """Reads the sounds, and returns the recordings that can be used.

        Args:
            features: What is made of them.
            may_be_none: If True, all recordings may be bad ones that are skipped.
        """
        sounds = FileSounds([entry.clip for entry in self.entries], self.reading.limits, self.reading.cache)
        rows, good = sounds.features(features), list[int]()
        for number, entry in enumerate(self.entries):
            try:
                fault = sounds.fault(number, features)
                if fault is not None:
                    raise entry.refuse(self.reading.path, *fault)
                if entry.text is not None:
                    self._check_length(entry, entry.text, len(rows[number]))
                    self.entries[number] = self._with_known_text(entry, entry.text)
                good.append(number)
            except RowError as error:
                self.bad(error)
        if self.skipped:
            warn(f"{self.place}: skipped {count_noun(self.skipped, 'bad recording')}. The first: {self.first_skipped}")
        if not good and not (may_be_none and self.skipped):
            raise DataError(
                f"{self.place}: no row is usable." if self.entries else f"{self.place}: no recording is there."
            )
        return [self.entries[number] for number in good], sounds.select(good)

    def _with_known_text(self, entry: Entry, text: str) -> Entry:
        """Returns the recording, without its transcript if the model cannot write that and need not."""
        strange = self.alphabet.strange(text)
        if not strange:
            return entry
        if self.alphabet.unknown is not None:
            self.alphabet.unknown.add(entry.id, text)
            return replace(entry, text=None)
        what = f"{strange!r} is not one of the {len(self.alphabet.letters or ())} characters that the model writes"
        raise entry.refuse(self.reading.text, what, "Write it otherwise, or fine-tune the model on such transcripts.")

    def _check_length(self, entry: Entry, text: str, frames: int) -> None:
        if len(text) > frames:
            what = f"the transcript has {len(text):,} characters, and the recording {frames:,} frames"
            raise entry.refuse(self.reading.text, what, "It cannot be that of this recording: check both.")


def read_manifest(
    path: Path, folder: Path | None, reading: ReaderOptions, features: Features, *, split_seed: int
) -> Corpus:
    """Reads a table of recordings: CSV, TSV or JSONL.

    Args:
        path: The table.
        folder: The folder that its paths begin in. Default: that of the table.
        reading: Names of the columns, and what is left out.
        features: What is made of the recordings.
        split_seed: Seed of the 60/20/20 split, where the table has no column of splits.
    """
    return _corpus([_of_table(path, folder or path.parent, reading, Alphabet(), is_input=False)], features, split_seed)


def read_folder(folder: Path, reading: ReaderOptions, features: Features, *, split_seed: int) -> Corpus:
    """Reads a folder of sounds, each with a transcript: a.wav and a.txt. Folders train, val and test are splits."""
    return _corpus([_of_folder(folder, reading, Alphabet(), is_input=False)], features, split_seed)


def read_recordings_at(
    paths: Sequence[Path], reading: ReaderOptions, alphabet: Alphabet, features: Features, folder: Path | None = None
) -> Corpus:
    """Recordings for a trained model: files, folders and tables, which may lack transcripts.

    Args:
        paths: The files and folders.
        reading: Names of the columns, and what is left out.
        alphabet: What the model can write.
        features: What is made of the recordings.
        folder: The folder that the paths of tables begin in. Default: that of the table.
    """
    parts = []
    for path in paths:
        if path.is_dir():
            parts.append(_of_folder(path, reading, alphabet, is_input=True))
        elif is_table(path):
            parts.append(_of_table(path, folder or path.parent, reading, alphabet, is_input=True))
        else:
            found = _Entries(path, reading, alphabet)
            found.entries.append(
                _of_file(path, path.with_suffix(_TRANSCRIPT), _name_of_input(path), NONE, found, is_input=True)
            )
            parts.append(found)
    return _corpus(parts, features, None)


def _of_table(path: Path, folder: Path, reading: ReaderOptions, alphabet: Alphabet, *, is_input: bool) -> _Entries:
    named = [reading.path, *([] if is_input else [reading.text]), *([reading.id] if reading.id else [])]
    options = {getattr(reading, name): f"data.{name}" for name in ("path", "text", "id")}
    required: Required = named if is_input else {name: options[name] for name in named}
    table = open_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)
    found = _Entries(path, reading, alphabet)
    found.entries += table.parse(_row_reader(table, folder, reading, is_input=is_input))
    found.skipped, found.first_skipped = table.skipped, table.first_skipped
    own = [getattr(reading, name) for name in ("path", "text", "start", "end", "speaker", "split", "id")]
    unused = [name for name in table.columns if name not in own]
    if unused:
        warn(
            f"{path}: {join_names(unused)} not used; a recording has a path and a text, perhaps start, end and speaker."
        )
    return found


def _row_reader(table: Table, folder: Path, reading: ReaderOptions, *, is_input: bool) -> Callable[[Row], Entry]:
    columns, seen = set(table.columns), dict[str, int]()

    def read(row: Row) -> Entry:
        def cell(column: str) -> str:
            return row.text(column, empty=True) if column in columns else ""

        def time(column: str) -> float | None:
            return row.number(column) if cell(column) else None

        path = row.path(reading.path, folder)
        text = plain(row.text(reading.text, empty=is_input)) if reading.text in columns else ""
        clip = Clip(path, time(reading.start), time(reading.end))
        split = row.choice(reading.split, SPLITS, empty=is_input) if reading.split in columns else ""
        id = row.text(reading.id) if reading.id else _name(row.text(reading.path), clip)
        if not row.is_bad and id in seen:
            remedy = f"Give each recording its own, by a column that {format_option('id')} names."
            raise row.error(reading.id or reading.path, f"{id!r} is the name of line {seen[id]} too", remedy)
        seen[id] = row.line
        number, line = SPLITS.index(split) if split else NONE, row.line

        def refuse(column: str | None, what: str, remedy: str) -> RowError:
            place = f"{path.name}: {what}" if column == reading.path else what
            return table.error(line, column, place, remedy)

        return Entry(clip, text or None, id, number, cell(reading.speaker), refuse)

    return read


def _of_folder(folder: Path, reading: ReaderOptions, alphabet: Alphabet, *, is_input: bool) -> _Entries:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder}: the folder {what}. Check the path, which is taken from {Path.cwd()}.")
    found, walk = _Entries(folder, reading, alphabet), Walk(folder, ENDINGS, "recording")
    paths = sorted(walk.files(folder))
    texts = walk.others.pop(_TRANSCRIPT, [])
    walk.report()
    if not paths:
        raise DataError(f"{folder}: there is no recording. Files of sounds end in {', '.join(ENDINGS)}.")
    sounds = {walk.relative_name(path.with_suffix("")) for path in paths}
    transcripts = {name[: -len(_TRANSCRIPT)]: folder / name for name in texts}  # also of names in capitals
    alone = sorted(path.name for name, path in transcripts.items() if name not in sounds)
    if alone:
        warn(f"{folder}: {len(alone):,} transcripts have no recording of the same name, such as {alone[0]}.")
    for path in paths:
        try:
            split = split_of(path, folder)
            number = SPLITS.index(split) if split else NONE
            transcript = transcripts.get(walk.relative_name(path.with_suffix("")), path.with_suffix(_TRANSCRIPT))
            name = str(path.relative_to(folder))
            found.entries.append(_of_file(path, transcript, name, number, found, is_input=is_input))
        except RowError as error:
            found.bad(error)
    return found


def _of_file(path: Path, transcript: Path, id: str, split: int, found: _Entries, *, is_input: bool) -> Entry:
    """Returns a file of sound, with the transcript beside it if there is one."""

    def refuse(column: str | None, what: str, remedy: str) -> RowError:
        file = transcript if column == found.reading.text else path
        return RowError(message(file, None, None, what, f"{remedy} {skip_hint()}"))

    text = None
    if transcript.is_file():
        text = _transcript(transcript, found.reading)
    elif not is_input:
        raise refuse(found.reading.path, "its transcript is missing", f"Write what is said into {transcript.name}.")
    return Entry(Clip(path), text, id, split, "", refuse)


def _transcript(path: Path, reading: ReaderOptions) -> str:
    def refuse(line: int | None, what: str, remedy: str) -> RowError:
        return RowError(message(path, line, None, what, f"{remedy} {skip_hint()}"))

    if path.stat().st_size > _LONGEST_TEXT:
        what = f"the transcript has more than {_LONGEST_TEXT:,} bytes"
        raise refuse(None, what, "Write what is said in this recording.")
    lines = []
    for number, line in read_lines(path, encoding=reading.encoding):
        if isinstance(line, LineFault):
            raise refuse(number, line.what, line.remedy)
        lines.append(line)
    text = plain(" ".join(lines))
    if not text:
        raise refuse(None, "the transcript is empty", "Write what is said.")
    return text


def seconds(text: str) -> float:
    """Returns a positive number of seconds, for the command line."""
    value = parse_number(text)
    if value <= 0:
        raise ValueError(f"{text} is not positive")
    return value


def plain(text: str) -> str:
    """Returns a transcript with single spaces."""
    return " ".join(text.split())


def _name_of_input(path: Path) -> str:
    """Returns the name of a recording that is given alone: that of its file, or the whole path of a pipe."""
    given = original_path(path)
    return path.name if given == path else str(given)


def _name(path: str, clip: Clip) -> str:
    """Returns the name of a recording that has none: its file, and its part of it."""
    if clip.start is None and clip.end is None:
        return path
    return f"{path}:{clip.start or 0:g}-{'' if clip.end is None else f'{clip.end:g}'}"


def _corpus(parts: Sequence[_Entries], features: Features, split_seed: int | None) -> Corpus:
    """Returns the recordings of several places as one set.

    Args:
        parts: The recordings.
        features: What is made of them.
        split_seed: Seed of the split of recordings that all are in no split. None: these are recordings for a trained
            model, and those with a transcript and no split are for its test.
    """
    if len(parts) == 1:
        entries, sounds = parts[0].kept(features)
    else:
        for part in parts:
            of = _name_of_input(part.place)
            part.entries = [replace(e, id=e.id if e.id == of else f"{of}:{e.id}") for e in part.entries]
        entries = [entry for part in parts for entry in part.kept(features, may_be_none=True)[0]]
        if not entries:
            raise DataError(f"{', '.join(str(part.place) for part in parts[:3])}: no recording is usable.")
        sounds = FileSounds([entry.clip for entry in entries], parts[0].reading.limits, parts[0].reading.cache)
    splits = np.array([entry.split for entry in entries], dtype=np.int64)
    if split_seed is None:
        splits[(splits == NONE) & np.array([entry.text is not None for entry in entries])] = TEST
    else:
        if (splits == NONE).all():
            splits = split_stratified(np.zeros(len(splits), dtype=np.int64), split_seed)
        missing = [name for number, name in enumerate(SPLITS) if not (splits == number).any()]
        if missing:
            place = parts[0].place
            raise DataError(f"{place}: no recording is in {missing[0]!r}. Give more recordings, or put some there.")
    return Corpus(
        sounds=sounds,
        texts=[entry.text for entry in entries],
        ids=[entry.id for entry in entries],
        splits=splits,
        speakers=[entry.speaker for entry in entries],
    )
