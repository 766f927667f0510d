"""Sizes in a checkpoint that no weight tells are compared with its data, and limited."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from run_cases import DOMAINS

from zoo.checkpoints import checkpoint
from zoo.cli.main import main
from zoo.errors import CheckpointError


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The checkpoint of a net of convolutions, none of whose weights tells the size of pictures."""
    folder = tmp_path_factory.mktemp("captioner")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *DOMAINS["captioning"].tiny, "data.max_epochs=1", "run_dir=run"]) == 0
    return checkpoint.read(folder / "run" / "checkpoints" / "best.ckpt")


def test_sizes_are_those_of_the_data(captioner: dict[str, Any], cli: Any, tmp_path: Path) -> None:
    """Pictures were padded to `zoo.sizes.height`: 42 GB for 30,000."""
    content = copy.deepcopy(captioner)
    content["zoo"]["sizes"]["height"] *= 3
    checkpoint.write(tmp_path / "theirs.ckpt", content)
    done = cli("evaluate", "theirs.ckpt")
    assert done.code == 2
    assert "zoo.sizes.height is 144, not 48 as in zoo.data" in done.err
    with pytest.raises(CheckpointError, match="not 48 as in zoo"):
        checkpoint.load(tmp_path / "theirs.ckpt")


def test_pictures_are_resized_to_a_limited_size(captioner: dict[str, Any], cli: Any, tmp_path: Path) -> None:
    content = copy.deepcopy(captioner)
    for part in ("sizes", "data"):
        content["zoo"][part] |= {"height": 6000, "width": 6000}
    checkpoint.write(tmp_path / "theirs.ckpt", content)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    done = cli("predict", "theirs.ckpt", "a.png")
    assert done.code == 2
    assert "resizes pictures to 6,000 x 6,000" in done.err
    assert "--most-input-pixels 36000000" in done.err
