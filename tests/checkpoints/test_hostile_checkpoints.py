"""Every checkpoint of the hostile corpus: nothing runs, one sentence says what is wrong, or nothing is."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_cases import corpus

from zoo import processes
from zoo.checkpoints import checkpoint, migrations
from zoo.errors import CheckpointError


@pytest.fixture(scope="module")
def hostile(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    folder = tmp_path_factory.mktemp("hostile")
    trap = folder / "trap"
    return corpus(tiny_run / "checkpoints" / "best.ckpt", folder / "files", trap), trap


WITHOUT_EFFECT = ("gap", "header_differs")
"""Archives with bytes that no reader looks at; what is read is the good checkpoint."""


def test_none_executes_and_each_is_explained(
    hostile: tuple[dict[str, Path], Path], tiny_run: Path, cli: Any, tmp_path: Path
) -> None:
    files, trap = hostile
    assert len(files) >= 20
    out = tmp_path / "out.csv"
    assert cli("predict", tiny_run / "checkpoints" / "best.ckpt", "--out", out).code == 0
    predicted = out.read_text()
    for name in WITHOUT_EFFECT:
        out.unlink()
        assert cli("predict", files[name], "--out", out).code == 0
        assert out.read_text() == predicted
    out.unlink()
    unexplained = []
    for name, path in files.items():
        if name in WITHOUT_EFFECT:
            continue
        done = cli("predict", path, "--out", "out.csv")
        said = done.err
        if done.code != 2 or not re.fullmatch(r"zoo: [^\n]+\n", said) or str(path) not in said or len(said) > 1000:
            unexplained.append((name, done))
        assert not trap.exists(), name
    assert unexplained == []
    assert not any(tmp_path.iterdir())


def test_reading_them_is_a_checkpoint_error(hostile: tuple[dict[str, Path], Path]) -> None:
    for name in ("os_system", "target_os_system", "many_layers", "endless", "wrong_shape", "torchscript"):
        with pytest.raises(CheckpointError):
            checkpoint.load(hostile[0][name])


# slow tier: refuses in a process of its own what the tests beside it refuse in this one
@pytest.mark.slow
def test_refusing_takes_little_memory(hostile: tuple[dict[str, Path], Path]) -> None:
    """The files are refused one after the other, in a process of their own, whose peak memory is read."""
    code = """
import resource, sys
from pathlib import Path
import zoo.checkpoints.checkpoint
from zoo.errors import CheckpointError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    try:
        zoo.checkpoints.checkpoint.load(name)
    except CheckpointError:
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(Path(name).stem, (now - before) // 1024)
        before = max(now, before)
"""
    files = {name: path for name, path in hostile[0].items() if name not in WITHOUT_EFFECT}
    paths = sorted(files.values(), key=lambda path: path.stat().st_size)
    done = [*processes.make_command()[:2], "-c", code, *map(str, paths)]
    said = subprocess.run(done, env=processes.make_environment(), capture_output=True, text=True, check=True).stdout
    peaks = {name: int(grown) for name, grown in (line.split() for line in said.splitlines())}
    assert set(peaks) == set(files)
    assert {name: grown for name, grown in peaks.items() if grown > 300} == {}


@pytest.mark.parametrize("key", ["init", "resume"])
def test_training_from_them(hostile: tuple[dict[str, Path], Path], cli: Any, key: str, tmp_path: Path) -> None:
    files, trap = hostile
    for name in ("os_system", "zip_bomb", "deep", "truncated", "newer_format", "nan_key", "expanded_tensor"):
        done = cli("train", f"{key}='{files[name]}'")
        assert done.code == 2, (name, done)
        assert str(files[name]) in done.err
    assert not trap.exists()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (b"cbuiltins\nbytearray\n\x8a\x05\x00\xe8vH\x17\x85R.", "builtins.bytearray"),
        (b"ctorch\nTensor\n\x8a\x05\x00\xe8vH\x17\x85R.", "torch.Tensor"),
        (b")" + b"\x85" * 1_000_001 + b".", "more than 1,000,000 parts"),
        # slow tier: ten seconds of counting; the test after it counts to a lower limit
        pytest.param(b"N" * 34_000_000 + b".", "33,554,432 values", marks=pytest.mark.slow),
    ],
)
def test_what_torch_would_take_memory_for(tiny_run: Path, tmp_path: Path, code: bytes, said: str) -> None:
    path = with_pickle(code, tiny_run, tmp_path)
    with pytest.raises(CheckpointError, match=said):
        checkpoint.read(path)


def test_values_are_counted(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.checkpoints.untrusted._MOST_CODES", 1000)
    with pytest.raises(CheckpointError, match="1,000 values"):
        checkpoint.read(with_pickle(b"N" * 1000 + b".", tiny_run, tmp_path))
    with pytest.raises(CheckpointError) as refusal:
        checkpoint.read(with_pickle(b"N" * 900 + b".", tiny_run, tmp_path))
    assert "1,000 values" not in str(refusal.value)


def with_pickle(code: bytes, tiny_run: Path, tmp_path: Path) -> Path:
    """A checkpoint whose pickle is this code."""
    path = tmp_path / "large.ckpt"
    with zipfile.ZipFile(tiny_run / "checkpoints" / "best.ckpt") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"\x80\x02" + code if name.endswith("data.pkl") else old.read(name))
    return path


def test_storages_that_reach_beyond_their_members(tmp_path: Path) -> None:
    """Many small members, of each of which the pickle says that it has a million bytes, as many as the file."""
    path = tmp_path / "reaching.ckpt"
    code = b"\x80\x02](" + b"".join(
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x02\x00\x00\x00%d"
        b"X\x03\x00\x00\x00cpuJ\x40\x42\x0f\x00tQK\x00K\x01\x85K\x01\x85\x89}tR" % key
        for key in range(10, 99)
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"data.pkl": code + b"e.", "version": b"3\n"}.items():
            archive.writestr(f"archive/{name}", content)
        for key in range(10, 99):
            archive.writestr(f"archive/data/{key}", bytes(4))
        archive.writestr("archive/data/pad", bytes(1_000_000))
    with pytest.raises(CheckpointError, match="are declared to have 89,000,000 bytes, and 1,000,356 are there"):
        checkpoint.read(path)


def test_what_was_read_is_not_of_the_file(tiny_run: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(tiny_run / "checkpoints" / "best.ckpt", tmp_path / "read.ckpt"))
    content = checkpoint.read(path)
    before = {name: weight.clone() for name, weight in content["state_dict"].items()}
    path.write_bytes(bytes(path.stat().st_size))
    assert all(torch.equal(weight, before[name]) for name, weight in content["state_dict"].items())


def test_tensors_that_share_numbers_share_them_once_read(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")
    shared = torch.arange(12.0)
    content["state_dict"] |= {"whole": shared, "part": shared[2:8].view(2, 3).T}
    checkpoint.write(tmp_path / "shared.ckpt", content)
    weights = checkpoint.read(tmp_path / "shared.ckpt")["state_dict"]
    assert weights["part"].tolist() == shared[2:8].view(2, 3).T.tolist()
    assert weights["whole"].data_ptr() + 8 == weights["part"].data_ptr()


def test_the_traps_would_work(tiny_run: Path, tmp_path: Path) -> None:
    """An unsafe reader does run them: the corpus is no paper tiger."""
    trap = tmp_path / "trap"
    files = corpus(tiny_run / "checkpoints" / "best.ckpt", tmp_path / "files", trap)
    for name in ("os_system", "eval", "exec", "mkdir", "pickle_loads", "code_as_weight"):
        torch.load(files[name], weights_only=False)
        assert trap.exists(), name
        trap.rmdir() if trap.is_dir() else trap.unlink()


def test_an_older_format_is_migrated(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")
    about = dict(content["zoo"])
    sizes = about.pop("sizes")
    del about["metrics"], about["version"]
    old = {**content, "zoo": {**about, "format": 0, "data": {**about["data"], "sizes": sizes}}}
    checkpoint.write(tmp_path / "old.ckpt", old)
    module = checkpoint.load(tmp_path / "old.ckpt")
    assert module.about["format"] == migrations.FORMAT
    assert module.about["sizes"] == sizes
    assert set(migrations.MIGRATIONS) == set(range(migrations.FORMAT))


def test_half_precision_weights_are_taken(tiny_run: Path, tmp_path: Path) -> None:
    content = checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")
    content["state_dict"] = {name: weight.bfloat16() for name, weight in content["state_dict"].items()}
    checkpoint.write(tmp_path / "half.ckpt", content)
    assert next(checkpoint.load(tmp_path / "half.ckpt").parameters()).dtype == torch.float32


def test_a_checkpoint_does_not_say_where_downloads_go(
    tiny_run: Path, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda request, **_: asked.append(request.full_url))
    content = checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")
    chosen = tmp_path / "chosen"
    target = "zoo.tasks.graph.planetoid"
    node = {"_target_": target, "name": "cora", "root": str(chosen), "cache": str(chosen), "max_epochs": 1}
    content["zoo"]["config"]["data"] = node
    checkpoint.write(tmp_path / "theirs.ckpt", content)
    done = cli("evaluate", "theirs.ckpt")
    assert done.code == 2
    assert not chosen.exists()
    assert "a checkpoint does not decide where downloads go" in done.err or "cannot be downloaded" in done.err
    assert str(chosen) not in "".join(asked)


def test_a_stranger_steers_neither_hydra_nor_what_is_looked_up(tiny_run: Path, cli: Any, tmp_path: Path) -> None:
    content = checkpoint.read(tiny_run / "checkpoints" / "best.ckpt")
    for number, override in enumerate(["hydra.run.dir=/tmp/theirs", "model.net.dim=${oc.env:HOME}"]):
        content["zoo"]["config"]["overrides"] = ["model=gat", override]
        checkpoint.write(tmp_path / f"{number}.ckpt", content)
        done = cli("train", f"init={number}.ckpt")
        assert done.code == 2
        assert f"the checkpoint was trained with {override!r}" in done.err
