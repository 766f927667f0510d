"""The estimate of a step's memory before it is allocated: against steps whose memory is known."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.config import compose, instantiate
from zoo.data.loader import Loader
from zoo.errors import ProblemsError
from zoo.tasks.batching import Examples
from zoo.training import memory, preflight

MB = 2**20


class Texts:
    """Ten texts of known lengths; a batch is as wide as the longest."""

    source = SimpleNamespace(place="texts.csv")
    lengths = (5, 700, *[5] * 8)

    def examples(self, split: str, *, training: bool) -> Examples:
        assert (split, training) == ("train", True)
        return Examples(
            entries=[SimpleNamespace(id=f"t{at}", length=each) for at, each in enumerate(self.lengths)],
            collate=self.collated,
            lengths=self.lengths,
            shorten=lambda each, length: SimpleNamespace(length=min(each.length, length)),
        )

    def collated(self, texts: Sequence[Any]) -> Tensor:
        return torch.zeros(len(texts), max(each.length for each in texts))

    def train_dataloader(self) -> Loader:
        entries = self.examples("train", training=True).entries
        return Loader(entries, collate=list, batch_size=4, lengths=self.lengths, shuffle=True)


def quadratic(batch: Tensor) -> Tensor:
    x = batch.requires_grad_()
    return (x.unsqueeze(1) * x.unsqueeze(2)).exp().sum()


def linear(batch: Tensor) -> Tensor:
    return (batch.requires_grad_().unsqueeze(2) * torch.ones(1000)).exp().sum()


@pytest.mark.parametrize(("step", "numbers"), [(quadratic, 700 * 700), (linear, 700 * 1000)])
def test_an_estimate_is_what_the_step_holds(step: Callable[[Tensor], Tensor], numbers: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "_ENOUGH_BYTES", MB // 4)
    found = memory.estimate_step(SimpleNamespace(), Texts(), step)  # type: ignore[arg-type]
    assert found is not None
    assert found.example == "'t1' of texts.csv (700 tokens)"
    whole = memory.measure_step(lambda: step(torch.zeros(found.examples, 700)))
    assert whole >= 2 * found.examples * numbers * 4
    assert found.bytes == pytest.approx(whole, rel=0.02)


def test_a_step_that_takes_little_has_no_estimate() -> None:
    assert memory.estimate_step(SimpleNamespace(), Texts(), lambda batch: batch.requires_grad_().sum()) is None  # type: ignore[arg-type]


def test_what_is_held_counts_until_it_is_freed() -> None:
    weight = torch.zeros(MB)
    with memory.HeldBytes() as held:
        view = weight.view(1024, 1024)[:, :512]
        assert held.now == 0
        first = view + 1
        second = first * 2
        assert held.now == 2 * 2 * MB
        first.add_(1)
        del first
        assert held.now == 2 * MB
        del second
    assert (held.now, held.most) == (0, 4 * MB)


def test_points_are_extrapolated() -> None:
    def p(n: int) -> int:
        return 7 + 3 * n + 2 * n * n

    assert memory.extrapolate([(n, p(n)) for n in (64, 128, 256)], 5000) == p(5000)
    assert memory.extrapolate([(1, 10), (2, 20), (4, 30)], 8) == 50  # opens down


def test_limits_of_container_and_process_count(tmp_path: Path, monkeypatch: Any) -> None:
    cpu = torch.device("cpu")
    assert MB < memory.find_available(cpu) < 2**50
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    assert memory.find_group_limit() is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500\n")
    assert memory.find_group_limit() is None
    (tmp_path / "memory.max").write_text("4000\n")
    assert memory.find_available(cpu) == 1500
    monkeypatch.setattr(memory.resource, "getrlimit", lambda kind: (10, 10))
    assert memory.find_available(cpu) == 0


def test_a_check_names_the_example_that_does_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    """Steps on examples that were cut say so: the step itself is not tried."""
    splits = ["train"] * 8 + ["val"] * 2 + ["test"] * 2
    rows = [f"{'a b ' * (150 if at == 4 else 2)}\tx\t{split}" for at, split in enumerate(splits)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget\tsplit", *rows]) + "\n")
    options = ["model=nmt", "data=text_pairs", f"data.table={tmp_path}/pairs.tsv", f"paths.cache={tmp_path}"]
    monkeypatch.setattr(memory, "_ENOUGH_BYTES", MB // 64)
    assert any("no problem" in line or "one batch" in line for line in preflight.check(options))
    monkeypatch.setattr(memory, "find_available", lambda device: MB)
    with pytest.raises(
        ProblemsError, match=r"step with '6' of .*pairs.tsv \(300 tokens\), in a batch of 8, would"
    ) as error:
        preflight.check(options)
    assert "and 0.0 GB are available; lower data.max_length, data.max_tokens or data.batch_size" in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["model=vit", "data.batch_size=32"], "a batch of 32 examples"),
        (["model=las", "data.utterances=40", "data.batch_size=32"], r"'.*' \(\d+ frames\), in a batch of 32"),
        (["model=gat", "data.nodes=2000"], r"'.*' \(9 incoming edges\), alone"),
        (["model=sasrec", "data.users=80", "data.batch_size=64"], "a batch of 64 examples"),
    ],
)
def test_an_estimate_of_other_examples_is_what_a_step_holds(options: list[str], said: str, monkeypatch: Any) -> None:
    """Pictures and histories are counted, sounds are cut, a graph is shrunk."""
    monkeypatch.setattr(memory, "_ENOUGH_BYTES", MB)
    composed = compose.compose_unchecked(options)
    data = instantiate.build(composed["data"], "data")
    data.setup()
    module = instantiate.build(composed["model"], "model", **data.sizes()).train()
    monkeypatch.setattr(module, "log", lambda *_, **__: None)
    loader = data.train_dataloader()
    whole = loader.collate(loader.fetch(loader.largest()))
    found = memory.estimate_step(module, data, lambda batch: module.training_step(batch, 0))
    assert found is not None
    assert re.fullmatch(said, str(found)), str(found)
    measured = memory.measure_step(lambda: module.training_step(whole, 0))
    assert found.bytes == pytest.approx(measured, rel=0.25)


def test_a_training_that_does_not_fit_does_not_begin(tmp_path: Path, monkeypatch: Any, cli: Any) -> None:
    """The estimate is made once, of files alone, and changes nothing of a run."""
    rows = [
        f"{'a b ' * (150 if at == 4 else 2)}\tx\t{split}" for at, split in enumerate(["train"] * 8 + ["val", "test"])
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget\tsplit", *rows]) + "\n")
    run = ["train", "model=nmt", "data=text_pairs", f"data.table={tmp_path}/pairs.tsv", "data.max_epochs=1"]
    run += ["data.num_workers=0", f"paths.cache={tmp_path}", "trainer=cpu"]
    monkeypatch.setattr(memory, "_ENOUGH_BYTES", MB // 64)
    estimates: list[memory.StepEstimate | None] = []
    whole = preflight.try_estimate
    monkeypatch.setattr(preflight, "try_estimate", lambda *given: (estimates.append(whole(*given)), estimates[-1])[1])
    assert cli(*run, "run_dir=first").code == 0
    assert [str(each) for each in estimates] == [f"'6' of {tmp_path}/pairs.tsv (300 tokens), in a batch of 8"]
    monkeypatch.setattr(preflight, "try_estimate", lambda *given: None)
    assert cli(*run, "run_dir=second").code == 0
    first, second = (json.loads(Path(name, "metrics.json").read_text()) for name in ("first", "second"))
    assert first["val/loss"] == second["val/loss"]
    monkeypatch.setattr(preflight, "try_estimate", whole)
    monkeypatch.setattr(memory, "find_available", lambda device: MB)
    done = cli(*run, "run_dir=third")
    assert done.code == 2
    assert "a training step with '6' of" in done.err
    assert not Path("third").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["model=nmt", "data.pairs=60", "data.held_out=10"],
        ["model=bidaf", "data.passages=60", "data.held_out=10"],
        ["model=esim", "data.pairs=60", "data.held_out=10"],
        ["model=han", "data.reviews=20", "data.sentences=4", "data.words=6"],
    ],
)
def test_examples_of_texts_can_be_cut(options: list[str]) -> None:
    data = instantiate.build(compose.compose_unchecked(options)["data"], "data")
    data.setup()
    examples = data.examples("train", training=True)
    assert max(examples.lengths) > 4
    batch = examples.collate([examples.shorten(each, 4) for each in examples.entries])
    for name in ("source", "targets", "question", "passage"):
        tokens = getattr(getattr(batch, name, None), "tokens", None)
        assert tokens is None or tokens.shape[1] <= 4
    if hasattr(batch, "text_lengths"):
        assert batch.text_lengths.max() == 4
    assert len(batch) == len(examples.entries)
