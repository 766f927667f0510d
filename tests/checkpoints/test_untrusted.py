"""Limits on the processes and data that a checkpoint may ask for, and control characters in its names."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest

from zoo import console
from zoo.checkpoints import checkpoint, untrusted
from zoo.errors import ConfigError, DataError, ProblemsError, ZooError, escape_control
from zoo.io import dump_yaml, read_text, read_yaml
from zoo.training import summary

COLOUR = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202edcba"


@pytest.fixture
def theirs(tiny_run: Path, tmp_path: Path) -> Any:
    """`theirs(change)`: a last.ckpt whose `zoo` section a stranger has changed."""

    def make(change: Any, name: str = "last.ckpt") -> Path:
        content = checkpoint.read(tiny_run / "checkpoints" / name)
        change(content["zoo"])
        path = tmp_path / "theirs" / "checkpoints" / name
        checkpoint.write(path, content)
        return path

    return make


@pytest.mark.parametrize(
    "override",
    ["trainer.devices=50", "data.num_workers=300", "threads=5000", "trainer.devices=[0,1,2]", "trainer.num_nodes=9999"],
)
def test_processes_are_not_taken_from_a_file(cli: Any, theirs: Any, override: str) -> None:
    path = theirs(lambda about: about["config"]["overrides"].append(override))
    done = cli("train", f"resume={path}")
    assert done.code == 2
    assert f"the checkpoint was trained with {override}" in done.err
    assert done.err.count("\n") == 1


def test_what_is_modest_or_typed_is_taken() -> None:
    stored = ["trainer.devices=2", "threads=null", "trainer.devices=auto", "data.batch_size=5000"]
    untrusted.check_overrides(stored, ())
    untrusted.check_overrides(["trainer.devices=5000"], {"trainer.devices"})
    with pytest.raises(ConfigError):
        untrusted.check_overrides(["trainer.devices=5000"], {"threads"})


def about(state: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **data: Any) -> dict[str, Any]:
    return {"config": {"data": data, "model": model or {}}, "data": state or {}}


def test_workers_and_devices_of_data(tmp_path: Path) -> None:
    assert untrusted.cap_data_config(about(num_workers=300))["num_workers"] == untrusted.get_resource_cap() < 300
    data = {"num_workers": 2, "folder": str(tmp_path)}
    assert untrusted.cap_data_config(about(**data)) == data
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(ConfigError, match="which is no file"):
            untrusted.cap_data_config(about(table=name))


def test_batches_have_a_limited_number_of_pixels_and_of_hypotheses() -> None:
    small, large = {"height": 32, "width": 32}, {"height": 1024, "width": 1024}
    assert untrusted.cap_data_config(about(small, batch_size=100, eval_batch_size=256))["eval_batch_size"] == 256
    assert untrusted.cap_data_config(about(small, batch_size=100))["eval_batch_size"] == 100
    assert untrusted.cap_data_config(about(large, batch_size=10**9))["eval_batch_size"] == 2
    assert untrusted.cap_data_config(about(large))["eval_batch_size"] == 2
    assert untrusted.cap_data_config(about({"height": 0, "width": 0}, batch_size=7)) == {"batch_size": 7}
    found = untrusted.cap_data_config(about(model={"search": {"width": 1000}}, eval_batch_size=64, batch_size=8))
    assert found == {"eval_batch_size": 2, "batch_size": 8}


def test_generated_data_is_bounded(cli: Any, theirs: Any) -> None:
    path = theirs(lambda about: about["config"]["data"].update(nodes=20_000_000), "best.ckpt")
    for arguments in (["evaluate", path], ["train", "model=gat", "data.nodes=20_000_000"]):
        done = cli(*arguments)
        assert done.code == 2
        assert "numbers of generated data" in done.err
    for data in (
        "planted_baskets data.users=10**8 model=din",
        "planted_glimpse data.train=100_000_000 model=vit",
        "planted_sessions data.users=10**8 model=sasrec",
    ):
        name, option, model = data.replace("10**8", "100_000_000").split()
        done = cli("train", model, f"data={name}", option)
        assert (done.code, "numbers of generated data" in done.err) == (2, True), done.err


def test_names_in_a_checkpoint_do_not_steer_the_terminal(cli: Any, theirs: Any, tiny: list[str]) -> None:
    path = theirs(lambda about: about["data"].update(labels=[COLOUR, "[red]b[/red]", "c"]), "best.ckpt")
    done = cli("train", *tiny, f"init={path}")
    assert done.code == 0
    assert "[red]b[/red]" in done.out
    assert r"\x1b[31mred" in done.out
    for shown in (done.out, done.err):
        assert not set(shown) & set("\x1b\x07\r\x9b\u202e")
    path = theirs(lambda about: about.update(sizes={COLOUR: 3}), "best.ckpt")
    done = cli("evaluate", path)
    assert done.code == 2
    assert not set(done.err) & set("\x1b\x07\r\x9b\u202e")


def test_predictions_are_shown_on_a_terminal_and_kept_in_a_file() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, said in ((Terminal(), escape_control(COLOUR)), (io.StringIO(), COLOUR)):
        console.sanitize(stream).write(COLOUR)
        assert stream.getvalue() == said


def test_tables_take_texts_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    summary.show_rows([{"id": name} for name in ("[bold]a", COLOUR, "two\nlines")], "a [red]title")
    out = capsys.readouterr().out
    assert "[bold]a" in out
    assert "a [red]title" in out
    assert r"two\nlines" in out
    assert "\x1b" not in out


def test_messages_are_bounded() -> None:
    for error in (
        DataError("x" * 200_000 + " remedy"),
        ProblemsError(["y" * 10_000 for _ in range(5)]),
        ConfigError("\n" * 200_000),
    ):
        said = str(error)
        assert len(said) < 30_000
        assert str(ZooError(said)) == said
    assert str(DataError("x" * 200_000 + " remedy")).endswith(" remedy")


def test_small_files_are_files_that_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "large.yaml").write_text("a" * 300_000)
    for name in ("pipe.yaml", "zero.yaml", "large.yaml", "."):
        with pytest.raises(OSError, match=name):
            read_text(tmp_path / name)


@pytest.mark.parametrize("name", ["pipe.yaml", "zero.yaml", "bomb.yaml", "deep.yaml"])
def test_an_experiment_that_is_none(cli: Any, name: str) -> None:
    os.mkfifo("pipe.yaml")
    Path("zero.yaml").symlink_to("/dev/zero")
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    Path("bomb.yaml").write_text("\n".join(["model: gat", "a0: &a0 [x]", *levels, "optimizer: {betas: *a9}"]))
    Path("deep.yaml").write_text("model: gat\nseed: " + "[" * 5000)
    started = time.process_time()
    done = cli("train", f"experiment={name}")
    assert time.process_time() - started < 10
    assert done.code == 2
    assert name in done.err
    assert done.err.count("\n") == 1


def test_what_is_written_has_no_aliases(tmp_path: Path) -> None:
    shared = [1, 2]
    (tmp_path / "config.yaml").write_text(dump_yaml({"a": shared, "b": shared}))
    assert read_yaml(tmp_path / "config.yaml") == {"a": [1, 2], "b": [1, 2]}
