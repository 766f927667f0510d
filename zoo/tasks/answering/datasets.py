"""The data sets of questions that can be named in a configuration; their options are its schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from zoo.data.download import search_folders
from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.tasks.answering.data.answer_set import (
    About,
    AnswerSet,
    Hypotheses,
    PassageQuestions,
    PictureQuestions,
    from_passages,
    from_premises,
    from_scenes,
)
from zoo.tasks.answering.data.answer_table import read_answer_table
from zoo.tasks.answering.data.published import read_sick
from zoo.tasks.answering.datamodule import AnswerSource, ExtractiveQAData, NLIData, VQAData
from zoo.tasks.answering.synthetic import passages, premises, scenes
from zoo.tasks.answering.synthetic.scenes import SyntheticVQA
from zoo.tasks.answering.synthetic.texts import SyntheticQA
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.vision.data.image_io import MOST_PIXELS
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.types import PositiveInt, Seed, validate_ranges


@dataset(VQAData, generator=scenes.plant, kind="picture")
def planted_questions(generate: Callable[[], SyntheticVQA]) -> AnswerSource[PictureQuestions]:
    """Generated questions about pictures of coloured shapes: see `planted.scenes.plant`."""
    return AnswerSource(partial(from_scenes, generate))


@dataset(ExtractiveQAData, generator=passages.plant, kind="passage")
def planted_passages(generate: Callable[[], SyntheticQA]) -> AnswerSource[PassageQuestions]:
    """Generated questions whose answer is a part of a passage: see `planted.passages.plant`."""
    return AnswerSource(partial(from_passages, generate))


@dataset(NLIData, generator=premises.plant, kind="premise")
def planted_inference(generate: Callable[[], SyntheticQA]) -> AnswerSource[Hypotheses]:
    """Generated premises and hypotheses: see `planted.premises.plant`."""
    return AnswerSource(partial(from_premises, generate))


@dataset(VQAData, kind="picture")
@validate_ranges
def picture_questions(
    *,
    table: str,
    folder: str | None = None,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_pixels: PositiveInt = MOST_PIXELS,
    split_seed: Seed = 0,
) -> AnswerSource[AnswerSet]:
    """The user's own questions about pictures, in a table: see data/README.md."""
    return _make_table_source(
        "picture",
        table,
        ReaderOptions(on_bad_row=on_bad_row, encoding=encoding, most_pixels=most_pixels),
        split_seed,
        folder,
    )


@dataset(ExtractiveQAData, kind="passage")
@validate_ranges
def passage_questions(
    *, table: str, on_bad_row: OnBadRow = "error", encoding: Encoding = UTF8, split_seed: Seed = 0
) -> AnswerSource[AnswerSet]:
    """The user's own questions about passages, in a table: see data/README.md."""
    return _make_table_source("passage", table, ReaderOptions(on_bad_row=on_bad_row, encoding=encoding), split_seed)


@dataset(NLIData, kind="premise")
@validate_ranges
def hypotheses(
    *, table: str, on_bad_row: OnBadRow = "error", encoding: Encoding = UTF8, split_seed: Seed = 0
) -> AnswerSource[AnswerSet]:
    """The user's own premises and hypotheses, in a table: see data/README.md."""
    return _make_table_source("premise", table, ReaderOptions(on_bad_row=on_bad_row, encoding=encoding), split_seed)


@dataset(NLIData, kind="premise")
def sick(*, root: str, cache: str | None = None) -> AnswerSource[Hypotheses]:
    """Sentences about pictures and films, with the split of SemEval 2014 (Marelli et al. 2014).

    Args:
        root: Folder of data sets, which has the file in `sick`.
        cache: Folder of derived files, which is searched too.
    """
    return AnswerSource(partial(read_sick, search_folders(root, cache)))


def _make_table_source(
    about: About, table: str, reading: ReaderOptions, split_seed: int, folder: str | None = None
) -> AnswerSource[AnswerSet]:
    where = None if folder is None else Path(folder)
    read = partial(read_answer_table, Path(table), about, folder=where, split_seed=split_seed)
    return AnswerSource(read, reading, is_own=True, place=Path(table))
