"""From configuration to objects: what may be built, with which options, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.attention import GAT, AttentionFactory, Softmax
from zoo.config.instantiate import ALLOWED, build, check, resolve_target
from zoo.errors import ConfigError, DataError
from zoo.optim import LRSchedule, OptimizerConfig
from zoo.training import CheckpointAndStop

HOSTILE = {"_target_": "os.system", "command": "touch hacked"}
SCHEDULE = {"_target_": "zoo.optim.LRSchedule", "kind": "cosine"}
FORBIDDEN = [
    "os.system",
    "builtins.eval",
    "builtins.exec",
    "subprocess.run",
    "torch.load",
    "torch.hub.load",
    "torch.nn.init.normal_",
    "torch.nn.functional.relu",
    "torch.nn.modules.linear.Linear",
    "torch.nn.Parameter",
    "torch.nn.utils.clip_grad_norm_",
    "torch.optim.lr_scheduler.LambdaLR",
    "torchvision.models.list_models",
    "torchvision.models.get_model",
    "torch.optim",
    "torch.optimization.Adam",
    "pathlib.Path.write_text",
    "hydra.utils.instantiate",
    "zoo.training.run.train",
    "zoo.checkpoints.checkpoint.write",
    "zoo.checkpoints.checkpoint.load",
    "zoo.config.instantiate.build",
    "zoo.cli.main.main",
    "zoo.attention",
    "zoo.tasks",
    # what is allowed by its name and comes from elsewhere
    "zoo.optim.torch.load",
    "zoo.training.callbacks.Path",
    "zoo.training.callbacks.checkpoint.write",
    "zoo.training.callbacks.time.sleep",
    "zoo.training.callbacks.signal.raise_signal",
    "zoo.training.loggers.Path",
    "zoo.training.loggers.csv.writer",
    "zoo.optim.fnmatch.filter",
    "zoo.tasks.graph.datamodule.Path",
    "zoo.tasks.graph.planetoid_files.pickle.loads",
    "zoo.tasks.graph.planetoid_files.fetch",
    "zoo.tasks.graph.planetoid_files.read_planetoid",
    "zoo.tasks.graph.planetoid_files._unpickle",
    "zoo.tasks.graph.readers.read_graph",
    "zoo.tasks.graph.task.GraphAttentionNet",
    "zoo.optim._fits",
    "zoo.tasks.graph.planetoid_files.os.system",
    "torch.optim.optimizer.torch.load",
    # ways around it
    "zoo.training.callbacks.__builtins__",
    "zoo.attention.AttentionFactory.__init__",
    "zoo.attention.__import__",
    "zoo.attention.__init__.AttentionFactory",
    "zoo.attention..Softmax",
    " zoo.attention.Softmax",
    "zoo.attention.Nothing",
    "zoo.tasks.nothing.Module",
    "zoo.optim.math",
    "zoo.training.callbacks.SPLITS",
    "",
]


@pytest.mark.parametrize("target", [*FORBIDDEN, None, 5, ["zoo.attention.Softmax"]])
def test_what_may_not_be_built(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^part: .*(may not be built|cannot be imported)") as caught:
        build({"_target_": target}, "part")
    assert repr(target) in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_it_is_refused_wherever_it_hides_and_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("hydra.utils.instantiate", lambda *arguments, **_: calls.append(arguments))
    node = {
        "_target_": "zoo.optim.OptimizerConfig",
        "scheduler": SCHEDULE,
        "optimizer": {"_target_": "torch.optim.Adam", "_partial_": True, "betas": [0.9, {"deep": [HOSTILE]}]},
    }
    with pytest.raises(ConfigError, match=r"^optimization\.optimizer\.betas\.1\.deep\.0: 'os\.system' may not be"):
        build(node, "optimization")
    assert calls == []


@pytest.mark.parametrize("target", ["torch.optim.Adam", "zoo.attention.Softmax", "zoo.training.CheckpointAndStop"])
def test_what_may_be_built(target: str) -> None:
    assert resolve_target(target, "part").__name__ == target.rpartition(".")[2]
    assert target.startswith(ALLOWED)


@pytest.mark.parametrize(
    ("place", "target", "is_root"),
    [
        ("model", "zoo.tasks.graph.GraphAttentionNet", True),
        ("model", "zoo.tasks.graph.GraphData", False),
        ("model", "zoo.tasks.graph.planted_graph", True),
        ("model.net", "zoo.training.CheckpointAndStop", False),
        ("model.net", "zoo.training.MetricsFile", False),
        ("data", "zoo.tasks.graph.NodeClassifier", True),
        ("data", "zoo.attention.Softmax", False),
        ("data", "torch.optim.Adam", True),
        ("data", "zoo.tasks.graph.graph.Graph", True),
        ("callbacks.checkpoint", "zoo.training.wandb", True),
        ("logger.csv", "zoo.tasks.graph.planted_graph", True),
        ("optimizer", "zoo.attention.Softmax", True),
        ("scheduler", "torch.nn.Linear", True),
    ],
)
def test_what_does_not_belong_there(place: str, target: str, is_root: bool) -> None:
    with pytest.raises(ConfigError, match="may not be built"):
        resolve_target(target, place, is_root=is_root)


@pytest.mark.parametrize(
    ("place", "target", "is_root"),
    [
        ("model", "zoo.tasks.graph.NodeClassifier", True),
        ("model.net", "zoo.tasks.graph.GraphAttentionNet", False),
        ("model.net.act", "torch.nn.ReLU", False),
        ("model.net.attend", "zoo.attention.AttentionFactory", False),
        ("model.optimization", "zoo.optim.OptimizerConfig", False),
        ("model.optimization.optimizer", "torch.optim.AdamW", False),
        ("model.net.stem", "torchvision.models.resnet18", False),
        ("data", "zoo.tasks.graph.planetoid", True),
        ("data", "zoo.tasks.graph.GraphData", True),
    ],
)
def test_what_belongs_there(place: str, target: str, is_root: bool) -> None:
    assert resolve_target(target, place, is_root=is_root).__name__ == target.rpartition(".")[2]


def test_a_configuration_that_nobody_wrote() -> None:
    node: dict[str, Any] = {}
    for _ in range(100):
        node = {"in": node}
    with pytest.raises(ConfigError, match="is no configuration"):
        check({**SCHEDULE, "deep": node}, "scheduler")
    with pytest.raises(ConfigError, match=r"monitor='\$\{oc\.env:HOME\}' is not resolved"):
        build({**SCHEDULE, "monitor": "${oc.env:HOME}"}, "scheduler")


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({**SCHEDULE, "warm": 5}, "scheduler has no option 'warm'. Did you mean 'warmup'?"),
        ({**SCHEDULE, "_args_": [1]}, "scheduler has no option '_args_'."),
        ({**SCHEDULE, "_recursive_": False}, "scheduler has no option '_recursive_'."),
        ({**SCHEDULE, "warmup": "???"}, "scheduler.warmup must be given: scheduler.warmup=VALUE"),
        ({**SCHEDULE, "warmup": "long"}, "scheduler.warmup='long' does not fit: it is to be a number"),
        ({**SCHEDULE, "warmup": 1.5}, "scheduler.warmup=1.5: write a whole number of steps"),
        ({**SCHEDULE, "patience": 1.5}, "scheduler.patience=1.5 does not fit: it is to be a whole number"),
        ({**SCHEDULE, "warmup": True}, "scheduler.warmup=True does not fit"),
        ({**SCHEDULE, "min_lr_ratio": "low"}, "scheduler.min_lr_ratio='low' does not fit: it is to be a number"),
        ({**SCHEDULE, "min_lr_ratio": None}, "scheduler.min_lr_ratio=None does not fit"),
        ({**SCHEDULE, "monitor": 5}, "scheduler.monitor=5 does not fit: it is to be text"),
        ({**SCHEDULE, "kind": "cosin"}, "scheduler.kind='cosin' does not fit: it is to be 'constant' or 'cosine' or"),
        ({**SCHEDULE, "kind": "plateau", "warmup": 5}, "scheduler: scheduler=plateau takes no warm-up"),
        ({"_target_": "zoo.optim.OptimizerConfig"}, "scheduler needs optimizer"),
        ({"_target_": "zoo.optim.OptimizerConfig", "optimizer": 1}, "scheduler.optimizer=1 does not fit"),
        ({"_target_": "torch.optim.Adam", "_partial_": True, "lr": "fast"}, "scheduler.lr='fast' does not fit"),
        (
            {"_target_": "torch.optim.Adam", "_partial_": True, "learning_rate": 1},
            "has no option 'learning_rate'",
        ),
    ],
)
def test_options_that_do_not_fit(node: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(node, "scheduler")
    assert said.removeprefix("scheduler: ") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("floor", [0, 0.5, 1e-3])
def test_numbers_that_fit(floor: float) -> None:
    made = build({**SCHEDULE, "min_lr_ratio": floor}, "scheduler")
    assert isinstance(made, LRSchedule)
    assert made.min_lr_ratio == floor


def test_an_option_that_may_be_null() -> None:
    keeper = {"_target_": "zoo.training.CheckpointAndStop", "patience": None}
    check(keeper, "callbacks.checkpoint", injected={"run_dir", "metadata"})
    with pytest.raises(ConfigError, match=r"^callbacks\.checkpoint needs metadata, run_dir"):
        check(keeper, "callbacks.checkpoint")


def test_values_that_the_constructor_refuses_are_said_with_their_place(tmp_path: Path) -> None:
    node = {"_target_": "zoo.attention.Attention", "dropout": 2.0}
    with pytest.raises(ConfigError, match="p is to be a number of at least 0 and below 1"):
        build(node, "model.attend", score=GAT(dim=2, heads=2), normalizer=Softmax())
    keeper = {"_target_": "zoo.training.CheckpointAndStop", "monitors": {"val/loss": "mux"}}
    with pytest.raises(ConfigError, match=r"monitors=.*'mux'.* 'min' or 'max'"):
        build(keeper, "callbacks.checkpoint", run_dir=tmp_path, metadata={})


def test_errors_of_this_project_come_through_as_they_are(tmp_path: Path) -> None:
    node = {
        "_target_": "zoo.tasks.graph.graph_files",
        "nodes": str(tmp_path / "no.csv"),
        "edges": "no.csv",
        "max_epochs": 1,
    }
    with pytest.raises(DataError, match=r"no\.csv: the file does not exist"):
        build(node, "data").setup()


def test_a_partial_is_a_factory() -> None:
    made = build({"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5}, "optimizer")
    optimizer = made([torch.nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.5


def test_nested_nodes_are_built_and_lists_are_plain() -> None:
    node = {
        "_target_": "zoo.optim.OptimizerConfig",
        "optimizer": {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.5, "betas": [0.5, 0.6]},
        "scheduler": SCHEDULE,
        "freeze": ["net"],
        "lr_multipliers": {"net.0": 0.5},
        "unfreeze": {3: ["net"]},
    }
    made = build(node, "optimization")
    assert isinstance(made, OptimizerConfig)
    assert isinstance(made.scheduler, LRSchedule)
    assert type(made.lr_multipliers) is dict
    assert made.unfreeze == {3: ("net",)}
    assert made.optimizer([torch.nn.Parameter(torch.zeros(1))]).defaults["betas"] == (0.5, 0.6)


def test_what_is_given_is_passed_on_untouched(tmp_path: Path) -> None:
    """A checkpoint's section holds the configuration with all its targets, which nobody asked to build."""
    about = {"config": {"scheduler": SCHEDULE, "hostile": HOSTILE}}
    made = build(
        {"_target_": "zoo.training.CheckpointAndStop", "patience": 3},
        "callbacks.checkpoint",
        run_dir=tmp_path,
        metadata=about,
    )
    assert isinstance(made, CheckpointAndStop)
    assert made.metadata == about
    assert made.best_path == tmp_path / "checkpoints" / "best.ckpt"


def test_each_site_has_parameters_of_its_own() -> None:
    node = {
        "_target_": "zoo.attention.AttentionFactory",
        "score": {"_target_": "zoo.attention.GAT", "_partial_": True, "slope": 0.5},
        "normalizer": {"_target_": "zoo.attention.Softmax", "_partial_": True},
    }
    factory = build(node, "attention")
    assert isinstance(factory, AttentionFactory)
    one, other = factory(4, 2), factory(4, 2)
    assert one.score.slope == 0.5
    assert one.score.to_key.shape == (2, 4)
    assert one.score.to_key is not other.score.to_key


def test_an_old_name_is_answered_by_that_of_today() -> None:
    with pytest.raises(
        ConfigError, match=r"^attention: zoo\.attention\.AttendFactory is now zoo\.attention\.Attention"
    ):
        resolve_target("zoo.attention.AttendFactory", "attention")
