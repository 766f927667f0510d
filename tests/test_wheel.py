"""The wheel, outside of the checkout: read-only, in a folder with a space and an umlaut, TMPDIR on another file system.

Torch is not installed again: the packages of the environment that runs the tests are made visible to the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLES = CHECKOUT / "data" / "samples" / "graph"
FEW = ["model=gat", "data.max_epochs=3", "data.nodes=600", "logger=csv"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an environment with the wheel alone, which nobody may write to."""
    folder = tmp_path_factory.mktemp("über all")
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, CHECKOUT]
    subprocess.run(wheel, check=True)  # fetches hatchling if pip has not got it
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (found,) = folder.glob("*.whl")
    into = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", packages, found]
    subprocess.run(into, check=True)
    # not as a .pth of that folder: its own .pth files would lead to the checkout
    borrowed = "\n".join(f"import sys; sys.path.append({path!r})" for path in site.getsitepackages())
    (packages / "borrowed.pth").write_text(borrowed + "\n", encoding="utf-8")
    for root, _, files in os.walk(packages / "zoo"):
        for name in files:
            (Path(root) / name).chmod(0o444)
        Path(root).chmod(0o555)
    yield environment
    for root, _, _ in os.walk(packages / "zoo"):
        Path(root).chmod(0o755)


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Iterator[Run]:
    """`zoo ...` in a folder with a difficult name."""
    here = tmp_path / "mein Ordner für Läufe"
    here.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ZOO", "HYDRA"))}
    shared = Path("/dev/shm")
    temporary = shared / f"zoo test {os.getpid()}" if shared.is_dir() else here / "tmp"
    temporary.mkdir()
    environment = {**kept, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "HOME": str(here), "LC_ALL": "C.UTF-8"}

    def zoo(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        start = "import sys; from zoo.cli.main import main; sys.exit(main())"
        command = [str(installed / "bin" / "python"), "-c", start, *map(str, arguments)]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done
        return done

    yield zoo
    shutil.rmtree(temporary)


def test_the_package_comes_from_the_wheel(installed: Path) -> None:
    show = "import zoo, torch; print(zoo.__file__)"
    done = subprocess.run([installed / "bin" / "python", "-c", show], cwd="/", capture_output=True, text=True, env={})
    assert done.returncode == 0, done
    assert str(installed) in done.stdout


def test_it_does_all_that_the_checkout_does(run: Run, tmp_path: Path, installed: Path) -> None:
    here = tmp_path / "mein Ordner für Läufe"
    (package,) = (installed / "lib").glob("python*/site-packages/zoo")
    before = sorted(package.rglob("*"))
    assert "gat" in run("list").stdout
    assert "model.net.heads=8" in run("train", "model=gat", "--help").stdout
    assert "nothing was trained" in run("check", *FEW).stdout
    run("train", *FEW, "run_dir='erster Lauf/für mich'")
    best = here / "erster Lauf" / "für mich" / "checkpoints" / "best.ckpt"
    assert "commit" in json.loads((best.parents[0] / "metrics.json").read_text(encoding="utf-8"))
    assert "test/accuracy" in run("evaluate", best).stdout
    run("predict", best, "--out", "Vorhersagen für alle.csv")
    assert len((here / "Vorhersagen für alle.csv").read_text(encoding="utf-8").splitlines()) == 601
    run("maps", best, "--out", "die Karten", "--pictures", 1)
    assert (here / "die Karten" / "maps.safetensors").is_file()
    run("train", f"init='{best}'", *FEW[1:], "attention=uniform")
    run("train", f"resume='{best.with_name('last.ckpt')}'", "data.max_epochs=5")
    assert sorted(package.rglob("*")) == before  # root may write where nobody may: nothing is to be new


def test_own_data_in_a_folder_with_a_difficult_name(run: Run, tmp_path: Path) -> None:
    mine = tmp_path / "mein Ordner für Läufe" / "meine Daten, größer"
    mine.mkdir()
    for name in ("nodes.csv", "edges.csv"):
        shutil.copy(SAMPLES / name, mine / name)
    own = ["model=gat", "data=graph_files", f"data.nodes='{mine / 'nodes.csv'}'", f"data.edges='{mine / 'edges.csv'}'"]
    run("check", *own)
    run("train", *own, "data.max_epochs=2", "run_dir='Lauf 2'", "logger=csv")
    run("predict", "Lauf 2/checkpoints/best.ckpt", mine, "--out", "gefunden.csv")
    hint = run("predict", "Lauf 3/nicht da.ckpt", mine, code=2).stderr
    assert "there is no checkpoint Lauf 3/nicht da.ckpt" in hint
