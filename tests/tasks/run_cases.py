"""A tiny configuration of every domain, and checks of its runs: exact resuming, equal results with two processes."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from zoo import processes
from zoo.checkpoints import checkpoint
from zoo.training.callbacks.guards import GracefulShutdown

ROOT = Path(__file__).resolve().parents[2]


class Domain(NamedTuple):
    """Overrides of runs that take about a second.

    Args:
        tiny: What every run of the domain has.
        random: Everything random that its training can have.
        exact: What makes the figures of two processes those of one.
        stops: Steps after which a run is stopped.
    """

    tiny: list[str]
    random: list[str]
    exact: Sequence[str] = ()
    stops: Sequence[int] = (1, 3, 4)


def domain(model: str, *options: str, epochs: int = 2) -> list[str]:
    return [f"model={model}", *options, f"data.max_epochs={epochs}", "trainer=cpu", "logger=csv"]


DOMAINS = {
    "graph": Domain(
        domain(
            "gat",
            *(
                "data.nodes=240",
                "data.classes=3",
                "data.tags=4",
                "data.trusted=2",
                "data.distractors=2",
                "data.width=12",
            ),
            *("model.net.dim=4", "model.net.heads=2", "data.batch_size=50"),
        ),
        random=["model.net.dropout=0.3", "attention.dropout=0.3"],
    ),
    "vision": Domain(
        domain(
            "vit",
            *("data.train=96", "data.val=32", "data.test=40", "data.rows=2", "data.columns=2", "data.colours=4"),
            *("model.net.dim=16", "model.net.layers=2", "model.net.heads=2", "model.net.hidden=16"),
        ),
        random=["model.net.dropout=0.1", "model.net.stochastic_depth=0.2", "model.mixup=0.8", "model.cutmix=1.0"],
    ),
    "recommendation": Domain(
        domain(
            "sasrec",
            *("data.users=90", "data.items=40", "data.reach=4", "data.shortest=8", "data.longest=12"),
            *("data.batch_size=32", "model.net.dim=16"),
        ),
        random=["loss=bce", "loss.negatives=2", "model.net.dropout=0.2", "attention.dropout=0.2"],
    ),
    "documents": Domain(
        domain(
            "han",
            *("data.reviews=60", "data.sentences=4", "data.words=6", "data.batch_size=12"),
            *("model.net.dim=8", "model.net.hidden=4", "model.net.context=8"),
        ),
        random=[
            *("data.augmentation.word_dropout=0.1", "data.augmentation.shuffle=3", "data.shortcut=0.9"),
            *("data.max_tokens=300", "model.smoothing=0.1", "model.class_weights=balanced"),
        ],
        exact=["model.net.dropout=0.0"],
        stops=(1, 4),
    ),
    "translation": Domain(
        domain(
            "transformer_nmt",
            *("data.pairs=60", "data.held_out=20", "data.longest=8", "data.batch_size=24"),
            *("model.net.dim=16", "model.net.layers=1", "model.net.heads=2", "model.net.hidden=16"),
            "model.search.width=2",
        ),
        random=[
            *("model.net.dropout=0.2", "attention.dropout=0.2", "data.max_tokens=300", "callbacks=ema"),
            *("model.scheduled.share=0.5", "model.scheduled.steps=4", "penalty.coverage=0.1"),
        ],
        exact=["model.net.dropout=0.0"],
        stops=(1, 4),
    ),
    "captioning": Domain(
        domain(
            "captioner",
            *("data.pictures=40", "data.held_out=12", "data.most=2", "data.batch_size=16"),
            *("model.net.encoder.channels=[8,8]", "model.net.encoder.dim=8", "model.search.width=2"),
            *("decoder.dim=8", "decoder.hidden=12", "decoder.compared=8"),
        ),
        random=[
            *("decoder.dropout=0.2", "decoder.out_dropout=0.2", "attention.dropout=0.2", "attention=hard_reinforce"),
            *("model.scheduled.share=0.5", "model.scheduled.steps=4", "penalty.doubly_stochastic=0.1"),
        ],
        stops=(1, 4),
    ),
    "speech": Domain(
        domain(
            "las",
            *("data.utterances=40", "data.held_out=10", "data.letters=3", "data.shortest=2", "data.longest=4"),
            *("data.batch_size=16", "model.net.listener.hidden=4", "model.search.width=2"),
            *("decoder.dim=4", "decoder.hidden=8", "decoder.compared=8"),
            *("attention.score.filters=2", "attention.score.kernel_size=3"),
        ),
        random=[
            *("decoder.dropout=0.2", "attention.dropout=0.2", "data.max_frames=1500", "callbacks=ema"),
            *(
                "data.augmentation.frequency_masks=1",
                "data.augmentation.time_masks=1",
                "data.augmentation.speeds=[1.0,1.1]",
            ),
            *("model.scheduled.share=0.5", "model.scheduled.steps=4", "model.ctc=0.3", "penalty.locality=0.1"),
        ],
        exact=["model.net.listener.dropout=0.0", "decoder.dropout=0.0"],
        stops=(1, 4),
    ),
    "answering": Domain(
        domain(
            "coattention",
            *("data.pictures=60", "data.held_out=20", "data.batch_size=16"),
            *("model.net.encoder.channels=[8,8]", "model.net.encoder.dim=8", "model.net.dim=8"),
            *("model.net.encoder.strides=[2,3]", "model.net.context=8", "model.net.fused=12"),
        ),
        random=["model.net.dropout=0.2", "attention.dropout=0.2", "model.smoothing=0.1"],
        exact=["model.net.encoder.norm=layer"],  # batches of two processes are normalised each on its own
        stops=(1, 4),
    ),
}
"""What a domain names here is tested in `test_domain_runs.py`."""


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.read(run / "checkpoints" / "last.ckpt")["state_dict"]
    return found


def figures(run: Path) -> dict[str, Any]:
    return {k: v for k, v in json.loads((run / "metrics.json").read_text()).items() if "/" in k}


def stopped_and_continued(cli: Any, options: Sequence[str], after: int) -> Path:
    """Stops a run with SIGTERM after some steps, and continues it."""
    start = GracefulShutdown.on_train_batch_start

    def stop(self: GracefulShutdown, trainer: Any, *rest: Any) -> None:
        if trainer.global_step == after:
            self.request.received = signal.SIGTERM
        start(self, trainer, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GracefulShutdown, "on_train_batch_start", stop)
        assert cli("train", *options, "run_dir=run").code == 130
    done = cli("train", f"resume={Path('run/checkpoints/last.ckpt').absolute()}")
    assert done.code == 0, done.err
    return Path("run")


def predicted(cli: Any, *arguments: object) -> list[dict[str, str]]:
    """Returns the rows that `zoo predict` writes to the terminal."""
    done = cli("predict", *arguments)
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def same_run(run: Path, other: Path) -> bool:
    """Checks that weights are equal bit by bit, and metrics are equal."""
    ours = weights(run)
    return figures(run) == figures(other) and all(
        torch.equal(value, ours[name]) for name, value in weights(other).items()
    )


def command(*options: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *options]


def finished(words: Sequence[str], folder: Path) -> None:
    """Runs a command in a folder, and waits for it."""
    environment = processes.make_environment(OMP_NUM_THREADS="1")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def two_equal_one(cli: Any, options: Sequence[str], folder: Path) -> None:
    """Trains with two processes (`two`) and with one (`one`), and evaluates the model of two with one.

    The optimizer is SGD: where a gradient is zero but for rounding (biases of keys), Adam would step by the rounding.
    """
    same = [*options, "optimizer=sgd", "optimizer.lr=0.1"]
    finished(command(*same, "run_dir=two", "trainer=ddp_cpu", "trainer.devices=2"), folder)
    assert cli("train", *same, "run_dir=one", "threads=1").code == 0
    for name, value in weights(folder / "one").items():
        torch.testing.assert_close(weights(folder / "two")[name], value, rtol=0, atol=1e-5)
    found = figures(folder / "two")
    assert found == pytest.approx(figures(folder / "one"), abs=1e-5)
    for split in ("train", "val", "test"):
        assert cli("evaluate", "two/checkpoints/best.ckpt", "--split", split, "--out", f"{split}.json").code == 0
        alone = {k: v for k, v in json.loads(Path(f"{split}.json").read_text()).items() if "/" in k}
        assert alone
        assert alone == {key: found[key] for key in alone}
