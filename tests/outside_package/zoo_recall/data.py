"""Facts and questions: generated ones, and tables of the user's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zoo.extend import (
    Examples,
    OnBadRow,
    PositiveInt,
    Row,
    Seed,
    TaskData,
    dataset,
    did_you_mean,
    read_table,
    to_device,
)


class Question(NamedTuple):
    """One example: facts, each a key and its value, and the key whose value is the answer."""

    id: str
    split: str
    facts: list[tuple[str, str]]
    question: str
    answer: str


@dataclass(frozen=True, eq=False)
class Facts:
    """A batch: facts (b,n,2), of which some are padding, questions (b,1) and answers (b,), numbers of `words`."""

    examples: list[Question]
    words: list[str]
    facts: Tensor
    is_fact: Tensor
    question: Tensor
    answer: Tensor

    def to(self, device: torch.device) -> Facts:
        return to_device(self, device)

    @property
    def gold(self) -> Tensor:
        """The fact that is asked for, (b,1,n)."""
        return ((self.facts[..., 0] == self.question) & self.is_fact)[:, None]


class RecallData(TaskData):
    """Questions that the source reads; keys, values and answers are words of one vocabulary."""

    source: Callable[[], list[Question]]
    form: ClassVar[Any] = {"words": [str]}

    def read(self) -> tuple[list[str], list[Question]]:
        questions = self.source()
        words = {word for each in questions for pair in each.facts for word in pair}
        known = self.trained["words"] if self.trained is not None else ()
        return list(known) if words <= set(known) else sorted(words), questions

    def names(self, content: Any) -> dict[str, Sequence[str]]:
        return {"words": content[0]}

    def sizes(self) -> dict[str, int]:
        return {"words": len(self.content[0])}

    def examples(self, split: str, *, training: bool = False) -> Examples:
        return Examples(entries=[q for q in self.content[1] if split in ("all", q.split)], collate=self.batch)

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> Callable[[], list[Question]]:
        return lambda: [question for path in paths for question in _read(path, self.on_bad_row)]

    def batch(self, questions: list[Question]) -> Facts:
        words = self.content[0]
        number = {word: place for place, word in enumerate(words)}
        facts = [torch.tensor([[number[key], number[value]] for key, value in each.facts]) for each in questions]
        padded, lengths = pad_sequence(facts, batch_first=True), torch.tensor([[len(each)] for each in facts])
        asked = torch.tensor([[number[each.question]] for each in questions])
        answers = torch.tensor([number[each.answer] for each in questions])
        return Facts(questions, words, padded, torch.arange(padded.shape[1]) < lengths, asked, answers)


@dataset(RecallData)
def planted_facts(
    *, seed: Seed = 0, count: PositiveInt, words: PositiveInt, facts: PositiveInt
) -> Callable[[], list[Question]]:
    """So many questions, each with facts whose keys and values are drawn at random."""

    def made() -> list[Question]:
        draw, names, questions = random.Random(seed), [f"w{number}" for number in range(words)], list[Question]()
        for number in range(count):
            pairs = [(key, draw.choice(names)) for key in draw.sample(names, facts)]
            split = ("train", "train", "train", "val", "test")[number % 5]
            questions.append(Question(str(number), split, pairs, *draw.choice(pairs)))
        return questions

    return made


@dataset(RecallData)
def fact_table(*, table: str, on_bad_row: OnBadRow = "error") -> Callable[[], list[Question]]:
    """The user's own: a table with the columns id, split, facts (`key=value key=value`) and question."""
    return lambda: _read(Path(table), on_bad_row)


def _read(path: Path, on_bad_row: OnBadRow) -> list[Question]:
    def question(row: Row) -> Question:
        facts = [pair.partition("=")[::2] for pair in row.text("facts").split()]
        known, asked = dict(facts), row.text("question")
        if asked not in known:
            raise row.error("question", f"no fact is about {asked!r}", did_you_mean(asked, known))
        return Question(row.text("id"), row.choice("split", ("train", "val", "test")), facts, asked, known[asked])

    return list(read_table(path, required=("id", "split", "facts", "question"), on_bad_row=on_bad_row).parse(question))
