"""Which epoch is kept, when training stops, and what is written in which order."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.config import compose
from zoo.config.instantiate import resolve_target
from zoo.errors import ConfigError, InterruptedRunError, TrainingError
from zoo.training import CheckpointAndStop

METADATA = {"format": 1, "version": "0", "model": "m", "config": {}, "data": {}, "sizes": {}}
GAT_RULE = {"val/accuracy": "max", "val/loss": "min"}
# few values, so that ties are common
curves = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30)


def trainer(epoch: int = 0, **metrics: float) -> Any:
    """As much of Lightning's trainer as a CheckpointAndStop looks at."""
    named = {f"val/{name}": torch.tensor(float(value)) for name, value in metrics.items()}
    return SimpleNamespace(
        sanity_checking=False,
        state=SimpleNamespace(fn="fit"),
        strategy=None,
        callback_metrics=named,
        current_epoch=epoch,
        global_step=epoch,
        should_stop=False,
        is_global_zero=True,
        global_rank=0,
        world_size=1,
        loggers=[],
        accumulate_grad_batches=1,
        fit_loop=SimpleNamespace(
            epoch_loop=SimpleNamespace(batch_progress=SimpleNamespace(current=SimpleNamespace(completed=0)))
        ),
        save_checkpoint=lambda path: None,
    )


def module(epoch: int) -> Any:
    return SimpleNamespace(state_dict=lambda: {"weight": torch.tensor([float(epoch)])})


def keeper(monitors: dict[str, Any], patience: int | None = None, run_dir: Path = Path("unused")) -> CheckpointAndStop:
    ties = monitors == GAT_RULE
    return CheckpointAndStop(monitors=monitors, patience=patience, ties=ties, run_dir=run_dir, metadata=METADATA)


def played(each: CheckpointAndStop, curve: list[tuple[float, float]], first: int = 0) -> tuple[int | None, int]:
    """The epoch whose weights are kept after this curve of accuracies and losses, and how many epochs it took."""
    for epoch, (accuracy, loss) in enumerate(curve, start=first):
        run = trainer(epoch, accuracy=accuracy, loss=loss)
        each.on_validation_end(run, module(epoch))
        if run.should_stop:
            break
    return (None if each._best is None else each._best["epoch"]), epoch + 1


def rule_of_gats_authors(curve: list[tuple[float, float]], patience: int) -> tuple[int | None, int]:
    """Velickovic et al. 2018, section 3.3: early stopping on loss and accuracy of the validation nodes, as published
    with the paper: kept is an epoch in which both are at least as good as ever; patience ends when neither is."""
    kept, idle = None, 0
    for epoch in range(len(curve)):
        before = curve[:epoch]
        accurate = all(curve[epoch][0] >= accuracy for accuracy, _ in before)
        low = all(curve[epoch][1] <= loss for _, loss in before)
        kept = epoch if accurate and low else kept
        idle = 0 if accurate or low else idle + 1
        if idle == patience:
            return kept, epoch + 1
    return kept, len(curve)


@given(curve=curves, patience=st.integers(1, 6))
def test_two_monitors_follow_the_rule_of_gats_authors(curve: list[tuple[float, float]], patience: int) -> None:
    assert played(keeper(GAT_RULE, patience), curve) == rule_of_gats_authors(curve, patience)


@given(curve=curves)
def test_one_monitor_keeps_the_best_epoch(curve: list[tuple[float, float]]) -> None:
    kept, _ = played(keeper({"val/accuracy": "max"}), curve)
    assert kept is not None
    assert curve[kept][0] == max(accuracy for accuracy, _ in curve)
    kept, _ = played(keeper({"val/loss": "min"}), curve)
    assert kept is not None
    assert curve[kept][1] == min(loss for _, loss in curve)


@given(curve=curves, patience=st.integers(1, 6), at=st.integers(0, 30))
def test_a_keeper_goes_on_from_its_state(curve: list[tuple[float, float]], patience: int, at: int) -> None:
    whole, first, second = (keeper(GAT_RULE, patience) for _ in range(3))
    kept, epochs = played(whole, curve)
    at = min(at, epochs - 1)
    before = played(first, curve[:at]) if at else (None, 0)
    second.load_state_dict(first.state_dict())
    after = played(second, curve[at:], first=at)
    assert after[1] == epochs
    assert (before[0] if after[0] is None else after[0]) == kept
    assert second.best_scores == whole.best_scores


def test_patience_counts_epochs_without_a_gain() -> None:
    falling = [(1.0 - 0.1 * epoch, 1.0 + epoch) for epoch in range(10)]
    assert played(keeper(GAT_RULE, 3), falling) == (0, 4)
    assert played(keeper(GAT_RULE, None), falling) == (0, 10)


def test_an_epoch_exactly_as_good_is_kept_but_does_not_feed_patience() -> None:
    flat = [(1.0, 1.0)] * 10
    assert played(keeper({"val/accuracy": "max"}, 3), flat) == (3, 4)
    assert played(keeper(GAT_RULE, 3), flat) == (9, 10)


@pytest.mark.parametrize(("nan_at", "expected"), [(0, 2), (1, 2), (2, 3), (3, 2)])
def test_nan_is_never_the_best_and_does_not_stand_in_the_way(nan_at: int, expected: int) -> None:
    curve = [(0.5, 3.0), (0.6, 2.0), (0.7, 1.0), (0.6, 1.5)]
    curve[nan_at] = (math.nan, math.nan)
    assert played(keeper(GAT_RULE), curve)[0] == expected


def test_weights_are_kept_as_they_were(tmp_path: Path) -> None:
    each = keeper({"val/accuracy": "max"}, run_dir=tmp_path)
    weight = torch.tensor([1.0])
    each.on_validation_end(trainer(accuracy=0.5), SimpleNamespace(state_dict=lambda: {"weight": weight}))  # type: ignore[arg-type]
    weight += 1
    each.save(trainer())
    assert torch.load(each.best_path, weights_only=True)["state_dict"]["weight"].tolist() == [1.0]


def test_a_metric_that_is_not_measured() -> None:
    with pytest.raises(ConfigError, match=r"'val/acc' is not measured\. Did you mean 'val/accuracy'\?"):
        keeper({"val/acc": "max"}).on_validation_end(trainer(accuracy=0.5, loss=1), module(0))


@pytest.mark.parametrize("state", [{"sanity_checking": True}, {"state": SimpleNamespace(fn="validate")}])
def test_validation_outside_of_training_does_not_count(state: dict[str, Any]) -> None:
    each, run = keeper({"val/accuracy": "max"}), trainer(accuracy=0.5)
    vars(run).update(state)
    each.on_validation_end(run, module(0))
    assert each._best is None
    assert each.best_scores == {}


def test_the_best_is_on_the_disk_before_a_state_that_speaks_of_it(tmp_path: Path) -> None:
    each, run = keeper({"val/accuracy": "max"}, run_dir=tmp_path), trainer(accuracy=0.5)
    run.save_checkpoint = lambda path: seen.append((path.name, each.best_path.exists()))
    seen: list[tuple[str, bool]] = []
    each.on_validation_end(run, module(0))
    each.save(run)
    assert seen == [("last.ckpt", True)]


@pytest.mark.parametrize(
    ("error", "saved"),
    [(TrainingError(), 1), (InterruptedRunError(), 1), (RuntimeError(), 0), (KeyboardInterrupt(), 0)],
)
def test_after_which_errors_the_state_is_saved(error: BaseException, saved: int, tmp_path: Path) -> None:
    each, run, calls = keeper(GAT_RULE, run_dir=tmp_path), trainer(), []
    run.save_checkpoint = calls.append
    each.on_exception(run, module(0), error)
    assert len(calls) == saved


def test_an_evaluation_that_is_stopped_saves_nothing(tmp_path: Path) -> None:
    """A state is saved with all processes, and the others may wait for something else just then."""
    each, run, calls = keeper(GAT_RULE, run_dir=tmp_path), trainer(), []
    run.state.fn, run.save_checkpoint = "test", calls.append
    each.on_exception(run, module(0), InterruptedRunError())
    assert calls == []


def test_every_so_many_seconds(tmp_path: Path) -> None:
    run, calls = trainer(), []
    run.save_checkpoint = calls.append
    for seconds, expected in ((1000.0, 0), (0.0, 3)):
        each = CheckpointAndStop(monitors=GAT_RULE, save_every_seconds=seconds, run_dir=tmp_path, metadata=METADATA)  # type: ignore[arg-type]
        for _ in range(3):
            each.on_train_batch_start(run, module(0))
        assert len(calls) == expected


def test_between_epochs_in_which_nothing_was_learned_the_loss_decides() -> None:
    """An error rate of 1 is an empty text; 1.3 is one in which learning has begun, and as bad."""
    each = keeper({"val/cer": "min"}, patience=3)
    each._worst = {"val/cer": 1.0}
    curve = [(1.0, 3.0), (1.3, 2.0), (1.1, 1.0), (1.0, 1.5), (1.0, 1.4)]
    for epoch, (error, loss) in enumerate(curve):
        each.on_validation_end(trainer(epoch, cer=error, loss=loss), module(epoch))
    assert each._best is not None
    assert (each._best["epoch"], each.epochs_without_improvement, each.best_scores) == (
        2,
        2,
        {"val/cer": 1.0, "val/loss": 1.0},
    )
    each.on_validation_end(trainer(5, cer=0.9, loss=2.0), module(5))
    each.on_validation_end(trainer(6, cer=0.9, loss=9.0), module(6))
    assert (each._best["epoch"], each.epochs_without_improvement) == (6, 1)


@pytest.mark.parametrize("model", ["nmt", "captioner", "las"])
def test_the_value_of_a_model_that_has_learned_nothing_is_the_worst(model: str) -> None:
    task = resolve_target(compose.compose([f"model={model}"])["model"]["_target_"], "model")
    assert task.primary_worst == {"max": 0.0, "min": 1.0}[task.primary_mode]
