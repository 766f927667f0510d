"""`zoo maps` asks the contract alone: of a Task defined anywhere, of one without maps, and with one pass an example."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

import zoo.maps
from zoo.attention import Attention, AttentionMap, DenseSupport, ScaledDot, Softmax, record
from zoo.attention.recording.recorder import Recording
from zoo.cli import commands
from zoo.data.loader import Loader
from zoo.maps import LabelledMap, plots
from zoo.maps.explainer import ExplainedExample, Explainer, LabelledAttention, MapOptions, Table, picture_name
from zoo.tasks.base import Task

FILES = Path(__file__).parents[1] / "checkpoints" / "files"
CHECKPOINT = FILES / "format2" / "gat.ckpt"
"""In whose place the models below are opened."""
SENTENCES = {"first": "a black cat", "second": "two dogs"}


class Silent(Task):
    """A model of sentences without maps."""

    primary, primary_mode, headline = "val/loss", "min", ("loss",)

    def __init__(self) -> None:
        super().__init__(optimization=None)  # type: ignore[arg-type]
        torch.manual_seed(0)
        self.net = Attention(ScaledDot(), Softmax())
        self.about = {"model": "toy", "path": "toy.ckpt", "config": {"names": {"data": "sentences"}}}

    def forward(self, words: list[str]) -> Tensor:
        x = torch.tensor([[float(len(word)), 1.0] for word in words])[None, None]
        context, _ = self.net(x, x, x, DenseSupport())
        return context

    def explain(self, batch: list[str]) -> AttentionMap:
        with record(self.net) as found:
            self(batch)
        return next(iter(found.values()))

    def test_step(self, batch: list[str], batch_idx: int) -> None:
        self.log("test/loss", self(batch).mean(), batch_size=1)

    def predict_step(self, batch: list[str], batch_idx: int = 0) -> dict[str, list[Any]]:
        names = {text: name for name, text in SENTENCES.items()}
        return {"id": [names[" ".join(batch)]], "split": ["test"], "loss": [float(len(batch))]}

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {}


class Toy(Silent):
    """The same model, with maps."""

    def maps(self, data: Any, options: MapOptions) -> Explainer:
        return SentenceMaps(self.net, options, self)


# The command line once looked for an `export` beside the module that a Task is defined in.
Silent.__module__ = Toy.__module__ = "somebody.elses.rooms.deep.model"


class SentenceMaps(Explainer):
    noun = "sentence"

    def __init__(self, net: nn.Module, options: MapOptions, module: Toy) -> None:
        super().__init__(net, options)
        self.module = module

    def names(self) -> list[str]:
        return list(SENTENCES)

    def tables(self) -> Iterator[Table]:
        import pandas as pd

        yield Table("sentences", [pd.DataFrame({"id": list(SENTENCES)})])

    def examples(self) -> Iterator[ExplainedExample]:
        for number in self.positions:
            name, text = list(SENTENCES.items())[number]
            with self.record_sites() as found:
                self.module(text.split())
            yield Sentence(name, text.split(), found)

    @property
    def about(self) -> Mapping[str, Any]:
        return {"sentences": len(SENTENCES)}

    def describe_chosen(self) -> list[str]:
        return [f"{one.id} looks at its words" for one in self.examples()]


class Sentence(ExplainedExample):
    def __init__(self, name: str, tokens: list[str], found: Recording) -> None:
        self.name, self.tokens, self.found = name, tokens, found

    @property
    def id(self) -> str:
        return self.name

    @property
    def words(self) -> list[str]:
        return [f"{self.name}: {' '.join(self.tokens)}"]

    def maps(self) -> Iterator[LabelledAttention]:
        for each in self.found.values():
            yield LabelledAttention(each, {"query": self.tokens, "key": self.tokens}, {"query": "word", "key": "word"})

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        for each in made.values():
            yield picture_name(self.id, number), plots.heat_map(each)


class Sentences:
    """The part of a TaskData that the commands below need."""

    def loader(self, split: str) -> Loader:
        return Loader([text.split() for text in SENTENCES.values()], collate=lambda found: found[0])

    def protocol(self) -> None:
        return None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the commands open any checkpoint as this module and its data."""

    def use(module: Task) -> None:
        monkeypatch.setattr(commands, "_load", lambda options: (module.eval(), Sentences()))
        monkeypatch.setattr("zoo.training.evaluation.has_examples", lambda data, split: True)

    return use


def test_a_task_of_another_package_has_maps(cli: Any, opened: Any, tmp_path: Path) -> None:
    opened(Toy())
    done = cli("maps", CHECKPOINT, "--out", "maps", "--ids", "second,first, second")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["maps and drawings of 2 sentences", "second: two dogs", "first: a black cat"]
    files = {path.relative_to("maps").as_posix() for path in Path("maps").rglob("*") if path.is_file()}
    assert files == {
        "index.json", "maps.safetensors", "scores.json", "sentences.csv", "words.txt", "pictures/1_second.png",
        "pictures/2_first.png",
    }  # fmt: skip
    maps = zoo.maps.load(tmp_path / "maps")
    assert (list(maps), maps.model) == (["second", "first"], "toy")
    assert maps.about == {"sentences": 2, "data": "sentences"}
    (found,) = maps["first"].values()
    assert tuple(found.labels["key"]) == ("a", "black", "cat")


def test_its_worst_examples_are_described(cli: Any, opened: Any) -> None:
    opened(Toy())
    done = cli("evaluate", CHECKPOINT, "--worst", 1)
    assert done.code == 0, done.err
    assert "first looks at its words" in done.out


@pytest.mark.parametrize("command", [["maps", "--out", "maps"], ["evaluate", "--worst", 1]])
def test_a_task_without_maps_says_so(cli: Any, opened: Any, command: list[Any]) -> None:
    opened(Silent())
    done = cli(command[0], CHECKPOINT, *command[1:])
    assert (done.code, done.out) == (2, "")
    assert done.err == "zoo: Silent has no maps: its class does not define `maps`\n"
    assert not Path("maps").exists()


def test_a_source_that_leaves_nothing_out_says_so(cli: Any, opened: Any) -> None:
    opened(Toy())
    done = cli("maps", CHECKPOINT, "--out", "maps", "--faithfulness")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "zoo: there is no --faithfulness for sentences: SentenceMaps does not say how probable an answer is without "
        "some of its inputs\n"
    )
    assert not Path("maps").exists()


def test_a_sentence_that_is_not_there(cli: Any, opened: Any) -> None:
    opened(Toy())
    done = cli("maps", CHECKPOINT, "--out", "maps", "--ids", "secnd")
    assert done.code == 2
    assert "there is no sentence 'secnd'. Did you mean 'second'?" in done.err
    assert not Path("maps").exists()


def test_a_graph_is_passed_once(cli: Any) -> None:
    """One pass serves the arrays, both tables, pictures, words and the truth score."""
    calls: list[int] = []
    with _calls("GraphAttentionNet", lambda given: calls.append(len(given[0]))):
        assert cli("maps", CHECKPOINT, "--out", "maps").code == 0
    assert len(calls) == 1
    assert json.loads(Path("maps/scores.json").read_text())["truth"]["edge_auc"] > 0


@pytest.mark.parametrize(("checkpoint", "net"), [("format2/sasrec", "SASRec"), ("format1/din", "DIN")])
def test_a_user_is_recorded_once(cli: Any, checkpoint: str, net: str) -> None:
    """One recording serves the row, the distances, the score, and the maps of users that are drawn."""
    users: list[str] = []
    with _calls(net, lambda given: users.extend(given[0].ids)):
        assert cli("maps", FILES / f"{checkpoint}.ckpt", "--out", "maps", "--pictures", 2).code == 0
    rows = Path("maps/users.csv").read_text().splitlines()[1:]
    assert sorted(users) == sorted(row.split(",")[0] for row in rows)
    assert len(zoo.maps.load("maps")) == 2


@pytest.mark.parametrize(
    ("checkpoint", "part"),
    [("format2/vit", "Tokens"), ("format1/cct", "ConvolutionalTokens"), ("format1/swin", "PatchMerging")],
)
def test_a_picture_is_passed_once_for_its_row_and_once_where_it_is_drawn(cli: Any, checkpoint: str, part: str) -> None:
    """A pass gives the prediction and the heat, whether it is computed from attention or from evidence."""
    calls: list[int] = []
    with _calls(part, lambda given: calls.append(len(given[0]))):
        assert cli("maps", FILES / f"{checkpoint}.ckpt", "--out", "maps", "--pictures", 2).code == 0
    rows = Path("maps/places.csv").read_text().splitlines()[1:]
    assert sum(calls) == len(rows) + 2


def _calls(kind: str, see: Any) -> Any:
    """Calls `see` with the inputs of every call of modules with this name, while the context is open."""
    return register_module_forward_pre_hook(lambda module, given: see(given) if type(module).__name__ == kind else None)
