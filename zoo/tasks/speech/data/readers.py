"""The user's own recordings: tables, and folders of sounds. `data/README.md` describes the formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from zoo.data.encodings import Fault as LineFault
from zoo.data.folders import Walk, check_is_folder
from zoo.data.json_lines import is_table
from zoo.data.line_index import read_lines
from zoo.data.option_hints import format_option
from zoo.data.records import Column, Record, Records, Schema, assign_splits
from zoo.data.splits import NONE, SPLITS
from zoo.data.stdin import original_path
from zoo.data.tables import BadRows, RowError, TableOptions, message, parse_number
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, warn
from zoo.tasks.speech.data.audio import DEFAULT_LIMITS, ENDINGS, Clip, Limits, split_of
from zoo.tasks.speech.data.corpus import Corpus
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.recordings import FileSounds

_TRANSCRIPT = ".txt"
_MAX_TRANSCRIPT_BYTES = 1 << 20
"""Bytes of a file with a transcript."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(TableOptions):
    """How the user's own recordings are read.

    Args:
        path: Name of the column of files.
        text: Likewise of transcripts.
        start, end: Likewise of the part of a file, in seconds, where there are such columns.
        speaker: Likewise of speakers, where there is such a column.
        split: Likewise of splits, where there is such a column.
        id: Likewise of names. Default: files are names.
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


Refuse = Callable[[str, str, str], RowError]
"""Makes the error of a bad recording, from path or text, what is wrong and how to mend it."""


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
    """Recordings of one place, as a reader finds them.

    Args:
        bad: Bad ones of this place, a table or a folder.
        options: How they are read.
        alphabet: What a trained model can write.
    """

    bad: BadRows
    options: ReaderOptions
    alphabet: Alphabet
    entries: list[Entry] = field(default_factory=list)

    def select_usable(self, features: Features, *, may_be_none: bool = False) -> tuple[list[Entry], FileSounds]:
        """Reads the sounds, and returns the recordings that can be used.

        Args:
            features: What is made of them.
            may_be_none: If True, all recordings may be bad ones that are skipped.
        """
        sounds = FileSounds([entry.clip for entry in self.entries], self.options.limits, self.options.cache)
        rows, good = sounds.features(features), list[int]()
        for number, entry in enumerate(self.entries):
            try:
                if (fault := sounds.fault(number, features)) is not None:
                    raise entry.refuse("path", *fault)
                if entry.text is not None:
                    _check_length(entry, entry.text, len(rows[number]))
                    self.entries[number] = self._check_text(entry, entry.text)
                good.append(number)
            except RowError as error:
                self.bad.add(error)
        self.bad.warn()
        if not good and not (may_be_none and self.bad.skipped):
            place = self.bad.place
            raise DataError(f"{place}: no row is usable." if self.entries else f"{place}: no recording is there.")
        return [self.entries[number] for number in good], sounds.select(good)

    def _check_text(self, entry: Entry, text: str) -> Entry:
        """Returns the recording, without its transcript if the model cannot write that and need not."""
        strange = self.alphabet.strange(text)
        if not strange:
            return entry
        if self.alphabet.unknown is not None:
            self.alphabet.unknown.add(entry.id, text)
            return replace(entry, text=None)
        problem = f"{strange!r} is not one of the {len(self.alphabet.letters or ())} characters that the model writes"
        raise entry.refuse("text", problem, "Write it otherwise, or fine-tune the model on such transcripts.")


def _check_length(entry: Entry, text: str, frames: int) -> None:
    if len(text) > frames:
        problem = f"the transcript has {len(text):,} characters, and the recording {frames:,} frames"
        raise entry.refuse("text", problem, "It cannot be that of this recording: check both.")


def read_manifest(
    path: Path, folder: Path | None, options: ReaderOptions, features: Features, *, split_seed: int
) -> Corpus:
    """Reads a table of recordings: CSV, TSV or JSONL.

    Args:
        path: The table.
        folder: The folder that its paths begin in. Default: that of the table.
        options: Names of the columns, and what is left out.
        features: What is made of the recordings.
        split_seed: Seed of the 60/20/20 split, where the table has no column of splits.
    """
    return _make_corpus(
        [_read_table(path, folder or path.parent, options, Alphabet(), is_input=False)], features, split_seed
    )


def read_folder(folder: Path, options: ReaderOptions, features: Features, *, split_seed: int) -> Corpus:
    """Reads a folder of sounds, each with a transcript: a.wav and a.txt. Folders train, val and test are splits."""
    return _make_corpus([_read_folder(folder, options, Alphabet(), is_input=False)], features, split_seed)


def read_recordings_at(
    paths: Sequence[Path], options: ReaderOptions, alphabet: Alphabet, features: Features, folder: Path | None = None
) -> Corpus:
    """Recordings for a trained model: files, folders and tables, which may lack transcripts.

    Args:
        paths: The files and folders.
        options: Names of the columns, and what is left out.
        alphabet: What the model can write.
        features: What is made of the recordings.
        folder: The folder that the paths of tables begin in. Default: that of the table.
    """
    parts = []
    for path in paths:
        if path.is_dir():
            parts.append(_read_folder(path, options, alphabet, is_input=True))
        elif is_table(path):
            parts.append(_read_table(path, folder or path.parent, options, alphabet, is_input=True))
        else:
            entry = _read_file(path, path.with_suffix(_TRANSCRIPT), _name_of_input(path), NONE, options, is_input=True)
            parts.append(_Entries(_bad_recordings(path, options), options, alphabet, [entry]))
    return _make_corpus(parts, features, None)


def _read_table(path: Path, folder: Path, options: ReaderOptions, alphabet: Alphabet, *, is_input: bool) -> _Entries:
    schema = Schema(
        noun="recording",
        columns={
            "path": Column(options.path, "file", required=True),
            "text": Column(options.text, required=not is_input),
            "start": Column(options.start, "number"),
            "end": Column(options.end, "number"),
            "speaker": Column(options.speaker),
            "split": Column(options.split, "split"),
            "id": Column(options.id, "id", required=options.id is not None),
        },
        usage="a recording has a path and a text, perhaps start, end and speaker",
        id="path" if options.id is None else "id",
        has_options=True,
        splits_all=True,
    )
    records = Records(path, schema, options, is_input=is_input)

    def make(record: Record) -> Entry:
        clip = Clip(folder / record["path"], record["start"], record["end"])
        id = record.id
        if "id" not in records:
            id = _name_part(id, clip)
            remedy = f"Give each recording its own, by a column that {format_option('id')} names."
            record.claim("path", id, "name", remedy=remedy)

        def refuse(role: str, problem: str, remedy: str) -> RowError:
            return record.error(role, f"{clip.path.name}: {problem}" if role == "path" else problem, remedy)

        return Entry(clip, plain(record["text"]) or None, id, record.split, record["speaker"], refuse)

    records.table.bad.noun = "recording"
    entries = list(records.parse(make, reports_bad=False))
    return _Entries(records.table.bad, options, alphabet, entries)


def _read_folder(folder: Path, options: ReaderOptions, alphabet: Alphabet, *, is_input: bool) -> _Entries:
    check_is_folder(folder)
    bad, entries = _bad_recordings(folder, options), list[Entry]()
    walk = Walk(folder, ENDINGS, "recording")
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
            entries.append(_read_file(path, transcript, name, number, options, is_input=is_input))
        except RowError as error:
            bad.add(error)
    return _Entries(bad, options, alphabet, entries)


def _bad_recordings(place: Path, options: ReaderOptions) -> BadRows:
    return BadRows(place, options.on_bad_row, "recording", "rows")


def _read_file(path: Path, transcript: Path, id: str, split: int, options: ReaderOptions, *, is_input: bool) -> Entry:
    """Returns a file of sound, with the transcript beside it if there is one."""

    def refuse(role: str, problem: str, remedy: str) -> RowError:
        return RowError(message(transcript if role == "text" else path, None, None, problem, remedy))

    text = None
    if transcript.is_file():
        text = _read_transcript(transcript, options)
    elif not is_input:
        raise refuse("path", "its transcript is missing", f"Write what is said into {transcript.name}.")
    return Entry(Clip(path), text, id, split, "", refuse)


def _read_transcript(path: Path, options: ReaderOptions) -> str:
    if path.stat().st_size > _MAX_TRANSCRIPT_BYTES:
        problem = f"the transcript has more than {_MAX_TRANSCRIPT_BYTES:,} bytes"
        raise RowError(message(path, None, None, problem, "Write what is said in this recording."))
    lines = []
    for number, line in read_lines(path, encoding=options.encoding):
        if isinstance(line, LineFault):
            raise RowError(message(path, number, None, *line))
        lines.append(line)
    text = plain(" ".join(lines))
    if not text:
        raise RowError(message(path, None, None, "the transcript is empty", "Write what is said."))
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


def _name_part(path: str, clip: Clip) -> str:
    """Returns the name of a recording that has none: its file, and its part of it."""
    if clip.start is None and clip.end is None:
        return path
    return f"{path}:{clip.start or 0:g}-{'' if clip.end is None else f'{clip.end:g}'}"


def _make_corpus(parts: Sequence[_Entries], features: Features, split_seed: int | None) -> Corpus:
    """Returns the recordings of several places as one set.

    Args:
        parts: The recordings.
        features: What is made of them.
        split_seed: Seed of the split of recordings that all are in no split. None: these are recordings for a trained
            model, and those with a transcript and no split are for its test.
    """
    if len(parts) == 1:
        entries, sounds = parts[0].select_usable(features)
    else:
        for part in parts:
            name = _name_of_input(part.bad.place)
            part.entries = [replace(e, id=e.id if e.id == name else f"{name}:{e.id}") for e in part.entries]
        entries = [entry for part in parts for entry in part.select_usable(features, may_be_none=True)[0]]
        if not entries:
            raise DataError(f"{', '.join(str(part.bad.place) for part in parts[:3])}: no recording is usable.")
        sounds = FileSounds([entry.clip for entry in entries], parts[0].options.limits, parts[0].options.cache)
    splits = assign_splits(
        parts[0].bad.place,
        "recording",
        [entry.split for entry in entries],
        seed=split_seed,
        known=np.array([entry.text is not None for entry in entries]),
        checks=not parts[0].bad.listed,
    )
    return Corpus(
        sounds=sounds,
        texts=[entry.text for entry in entries],
        ids=[entry.id for entry in entries],
        splits=splits,
        speakers=[entry.speaker for entry in entries],
    )
