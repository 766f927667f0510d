"""A value that makes no sense: one message that names the option as it was typed, exit code 2, and nothing written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from conf_cases import with_bases
from omegaconf import DictConfig, ListConfig, OmegaConf

from zoo.config import checks, compose, instantiate, plugins
from zoo.config.groups import GROUPS_BY_NODE
from zoo.errors import ConfigError
from zoo.types import explain_mismatch, matches

SLIPS = [
    *(
        "run_dir=1",
        "init=5",
        "resume=7",
        "seed=-1",
        "seed=1.5",
        "seed=5000000000",
        "threads=0",
        "check=1",
        "check=null",
    ),
    *("paths.runs=3", "logger=null", "callbacks=null", "scheduler=null", "attention=null", "optimization=null"),
    *("data.max_epochs=-1", "data.max_epochs=0", "data.max_epochs=1.5", "data.batch_size=0", "data.noise=nan"),
    *("model.net.dim=-3", "model.net.dim=0", "model.net.heads=0", "model.net.dim=[8]", "model.net.dropout=1"),
    *("model.net.dim=null", "model.net=null", "model.net=5", "attention.dropout=-1", "attention.score.slope=inf"),
    *("optimizer.lr=-1", "optimizer.lr=x", "optimizer.betas=[0.9,1]", "scheduler.warmup=-1", "optimizer=5"),
    *("optimization.layer_decay=0", "optimization.lr_multipliers={net: -1}", "optimization.freeze=[3]"),
    *("callbacks.checkpoint.patience=-1", "callbacks.checkpoint.monitors={val/loss: low}", "callbacks.checkpoint=null"),
    *("logger.csv=null", "penalty.entropy=much", "penalty.layers=0", "trainer.precision=33", "trainer.max_time=5"),
    *("trainer.accumulate_grad_batches=0", "trainer.gradient_clip_val=-1", "trainer.devices=0"),
]
OTHERS = [
    ("model=sasrec", "model.protocol.ks=[0,10]"),
    ("model=sasrec", "data=ml_1m", "data.eval_users=0"),
    ("model=din", "model.net.hidden=[200,0]"),
    ("model=din", "attention.score.hidden=[a]"),
    ("model=vit", "model.net.registers=-1"),
    ("model=vit", "data.num_workers=-1"),
    ("model=se_resnet", "gate.reduction=0"),
    ("model=swin", "model.net.layers=[2,0]"),
    ("model=gat", "callbacks=ema", "callbacks.average.decay=1"),
    ("model=gat", "scheduler=plateau", "scheduler.patience=-1"),
    ("model=gat", "attention=mocha", "attention.normalizer.chunk=0"),
    ("model=gat", "trainer=ddp_cpu", "trainer.num_nodes=0"),
    ("model=gat", "trainer=ddp_cpu", "trainer.max_restarts=-1"),
]


@pytest.mark.parametrize("given", [*((slip,) for slip in SLIPS), *OTHERS], ids=" ".join)
def test_a_slip_is_one_message_that_names_the_option(cli: Any, tmp_path: Path, given: tuple[str, ...]) -> None:
    model = [] if any(each.startswith("model=") for each in given) else ["model=gat"]
    done = cli("train", *model, *given)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"zoo: [^\n]+\n", done.err)
    key = given[-1].partition("=")[0]
    assert re.match(rf"zoo: (there is no )?{re.escape(key)}\b(?!\.)", done.err), done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "slip", ["seed=-1", "run_dir=1", "check=1", "logger=null", "trainer.accumulate_grad_batches=0"]
)
def test_it_is_said_before_anything_heavy_is_imported(slip: str) -> None:
    code = (
        "import sys; from zoo.cli.main import main; code = main(sys.argv[1:]); "
        "print({'torch', 'pytorch_lightning', 'numpy'} & set(sys.modules) or 'light', code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "model=gat", slip], capture_output=True, text=True, check=True
    )
    assert done.stdout == "light 2\n", done


def test_the_preflight_lists_all_of_them(cli: Any) -> None:
    slips = ["optimizer.lr=-1", "seed=-1", "model.net.dim=0", "callbacks.checkpoint.patience=-1", "data.nodes=0"]
    done = cli("check", "model=gat", *slips)
    assert done.code == 2
    assert f"{len(slips)} problems" in done.err
    assert all(f" {slip} does not fit" in done.err for slip in slips)


def test_what_makes_sense_is_taken() -> None:
    given = ["run_dir='1'", "init=null", "threads=2", "check=TRUE", "trainer.gradient_clip_val=1", "optimizer.lr=0"]
    given += ["callbacks.checkpoint.patience=null", "optimization.lr_multipliers={net: 0.1}", "data.batch_size=5"]
    assert list(checks.iter_errors(compose.compose(["model=gat", *given]))) == []


def is_constrained(hint: Any) -> bool:
    """Returns whether every number in a type has a range, or is marked as any."""
    if get_origin(hint) is Annotated:
        return True
    return hint not in (int, float) and all(map(is_constrained, members(hint)))


def members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        return get_args(hint)
    kind = get_origin(hint)
    if not inspect.isclass(kind):
        return ()
    if issubclass(kind, Mapping):
        return get_args(hint)[1:]
    return get_args(hint) if issubclass(kind, Iterable) else ()


def targets(node: Any, where: str) -> Iterator[tuple[str, DictConfig]]:
    """Every part of a file; what an interpolation leads to is visited in its own."""
    if isinstance(node, DictConfig | ListConfig):
        if isinstance(node, DictConfig) and "_target_" in node:
            yield where, node
        for key in node if isinstance(node, DictConfig) else range(len(node)):
            if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
                yield from targets(node[key], f"{where}.{key}")


@pytest.mark.parametrize(
    "path",
    sorted(path for folder in plugins.find_folders() for path in folder.rglob("*.yaml")),
    ids=lambda path: path.parent.name + "/" + path.stem,
)
def test_every_number_of_a_file_has_a_range_or_is_said_to_be_any(path: Path) -> None:
    above = (path.parent.name, path.parent.parent.name)
    place = next((each for each in above if each in GROUPS_BY_NODE and each != "experiment"), path.stem)
    for where, node in targets(with_bases(path), place):
        hints = instantiate.get_option_types(instantiate.resolve_target(node["_target_"], where))
        for key in {str(key) for key in node} - {"_target_", "_partial_"}:
            assert key in hints, f"{where}.{key} has no type that can be known"
            assert is_constrained(hints[key]) or node["_target_"].startswith("torch."), f"{where}.{key}: {hints[key]}"


def test_every_number_at_the_top_has_a_range() -> None:
    root = OmegaConf.to_container(OmegaConf.load(plugins.CONF / "train.yaml"))
    assert isinstance(root, dict)
    plain = {key for key, value in root.items() if not isinstance(value, Mapping | list)}
    files = [
        (group, path) for group in ("trainer", "paths", "penalty") for path in (plugins.CONF / group).rglob("*.yaml")
    ]
    inside = {f"{group}.{key}" for group, path in files for key in with_bases(path)}
    debugging = [yaml.safe_load(path.read_text()) or {} for path in (plugins.CONF / "debug").glob("*.yaml")]
    inside |= {f"trainer.{key}" for each in debugging for key in each.get("trainer", {})}
    inside -= {"trainer.max_epochs"}  # which becomes data.max_epochs
    assert plain | inside == set(checks.KEYS)
    free = ("trainer.devices",)  # `launch.devices` knows more
    assert [key for key, hint in checks.KEYS.items() if not is_constrained(hint) and key not in free] == []


@pytest.mark.parametrize(
    ("hint", "fitting", "unfitting"),
    [
        (Annotated[int, ">= 1"], [1, 5], [0, -1, 1.0, True, "1", None, [1], {}]),
        (Annotated[float, ">= 0", "< 1"], [0, 0.5], [1, -0.1, float("nan"), float("inf"), "0"]),
        (Annotated[float, "any"], [-5, 0.5], [float("nan"), "x"]),
        (Annotated[int, ">= 1"] | None, [1, None], [0, "x"]),
        (list[Annotated[int, ">= 1"]], [[], [1, 2]], [[0], [1, "x"], 1, {"a": 1}]),
        (dict[str, Annotated[float, "> 0"]] | None, [{}, {"a": 1}, None], [{"a": 0}, [1], 1]),
        (Mapping[int, list[str]], [{5: ["a"]}], [{5: "a"}, {5: [1]}]),
        (float, [1, 0.5], [float("nan"), True]),
        (str | None, ["x", None], [1, True]),
    ],
)
def test_what_fits(hint: Any, fitting: list[Any], unfitting: list[Any]) -> None:
    assert [value for value in fitting if not matches(value, hint)] == []
    assert [value for value in unfitting if matches(value, hint)] == []


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        (0, Annotated[int, ">= 1"], "x=0 does not fit: it is to be a whole number of at least 1"),
        (1, Annotated[float, ">= 0", "< 1"], "x=1 does not fit: it is to be a number of at least 0 and below 1"),
        (0, Annotated[int, ">= 1"] | None, "x=0 does not fit: it is to be a whole number of at least 1 or null"),
        (
            [0],
            list[Annotated[int, ">= 1"]],
            "x=[0] does not fit: it is to be a list, each a whole number of at least 1",
        ),
        (1, str | None, "x=1 does not fit: it is to be text or null; as text: \"x='1'\""),
    ],
)
def test_what_is_said_of_what_does_not_fit(value: Any, hint: Any, said: str) -> None:
    assert (explain_mismatch(value, hint, "x") or "").startswith(said)


def test_a_checkpoint_s_configuration_is_compared_too() -> None:
    node = compose.compose(["model=gat"])["model"]
    node["net"]["dim"] = -3
    with pytest.raises(ConfigError, match=r"^model\.net\.dim=-3 does not fit"):
        instantiate.build(node, "model", features=3, classes=2)


@pytest.mark.parametrize(
    "value", ["[" * 5000 + "]" * 5000, "{a:" * 5000, "f(" * 5000 + ")" * 5000, "{x:'['}" + "[" * 5000]
)
@pytest.mark.parametrize("flags", [[], ["check=true"], ["-m"], ["--help"], ["--cfg", "job"]])
def test_a_value_that_is_nested_without_end(cli: Any, flags: list[str], value: str) -> None:
    done = cli("train", "model=gat", *flags, f"optimizer.lr={value}")
    assert done.code == 2
    assert done.err == "zoo: optimizer.lr: its value is nested 5,000 levels deep, and 20 are the most\n"


def test_brackets_in_quotes_are_no_levels() -> None:
    assert compose.compose_unchecked(["model=gat", f"run_dir='{'[' * 30}'"])["run_dir"] == "[" * 30


@pytest.mark.parametrize(
    ("key", "offered"),
    [
        ("epochs", "data.max_epochs"),
        ("batchsize", "data.batch_size"),
        ("max_epoch", "data.max_epochs"),
        ("sede", "seed"),
    ],
)
def test_a_key_without_its_group_is_found(cli: Any, key: str, offered: str) -> None:
    done = cli("train", "model=gat", f"{key}=3")
    assert (done.code, done.err) == (2, f"zoo: there is no option '{key}'. Did you mean '{offered}'?\n")


@pytest.mark.parametrize("value", ["5", "00:00:05", "long"])
def test_a_duration_is_told_its_form(cli: Any, value: str) -> None:
    """The advice is taken."""
    done = cli("train", "model=gat", f"trainer.max_time={value}")
    assert done.code == 2
    (form,) = re.findall("of the form days:hours:minutes:seconds, such as ([0-9:]+), or null", done.err)
    assert compose.compose(["model=gat", f"trainer.max_time={form}"])["trainer"]["max_time"] == form
