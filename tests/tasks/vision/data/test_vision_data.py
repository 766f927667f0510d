"""Data sets of pictures: order, splits, the state in a checkpoint, and data for a trained model."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from vision_published_cases import SMALL_CIFAR10, SMALL_IDX, publish_cifar, publish_idx, publish_imagenet

from zoo.config import compose, instantiate
from zoo.errors import ConfigError, DataError
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.vision import datasets as sets
from zoo.tasks.vision.batch import ImageBatch
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.published import SETS
from zoo.tasks.vision.data.transforms import Augmentation
from zoo.tasks.vision.datamodule import ImageData, PictureSource

SPLITS = np.array(["train"] * 11 + ["val"] * 4 + ["test"] * 5 + [""])


def some() -> ImageSet:
    draw = np.random.default_rng(0)
    return ImageSet(
        pixels=draw.integers(0, 256, (21, 1, 6, 8), dtype=np.uint8),
        labels=np.array([number % 3 for number in range(20)] + [-1]),
        splits=SPLITS,
        label_names=("a", "b", "c"),
        ids=[f"picture {number}" for number in range(21)],
        channels=1,
        size=(6, 8),
    )


def data(**options: Any) -> ImageData:
    chosen = {"read": some, "max_epochs": 3, "batch_size": 4, "mean": [0.25], "std": [0.5]} | options
    read = chosen.pop("read")
    return dataset(ImageData)(lambda: PictureSource(read))(**chosen)


def ids(batches: Any) -> list[str]:
    return [name for batch in batches for name in batch.ids]


def test_sizes_and_splits() -> None:
    made = data()
    assert made.sizes() == {"channels": 1, "height": 6, "width": 8, "classes": 3}
    assert made.train_size() == 11
    assert [len(ids(made.loader(split))) for split in ("train", "val", "test", "all")] == [11, 4, 5, 21]
    assert ids(made.val_dataloader()) == [f"picture {number}" for number in range(11, 15)]
    assert ids(made.predict_dataloader()) == [f"picture {number}" for number in range(21)]
    (batch,) = data(eval_batch_size=30).loader("all")
    assert batch.splits == tuple(SPLITS.tolist())
    assert batch.labels.tolist() == [number % 3 for number in range(20)] + [-1]


def test_evaluation_is_in_order_and_not_augmented() -> None:
    made = data(augmentation=Augmentation(crop_padding=3, flip=True))
    for split in ("train", "val", "test", "all"):
        first, again = ([batch.pixels for batch in made.loader(split)] for _ in range(2))
        assert all(map(torch.equal, first, again))
    whole = torch.cat([batch.pixels for batch in made.loader("all")])
    expected = (torch.from_numpy(some().pixels).float() / 255 - 0.25) / 0.5
    torch.testing.assert_close(whole, expected)


def test_training_is_shuffled_and_augmented_anew_each_epoch() -> None:
    made = data(augmentation=Augmentation(crop_padding=3, flip=True))
    loader = made.train_dataloader()
    epochs = [list(loader) for _ in range(2)]
    assert all(sorted(ids(epoch)) == sorted(f"picture {number}" for number in range(11)) for epoch in epochs)
    assert ids(epochs[0]) != ids(epochs[1])
    assert [len(batch.labels) for batch in epochs[0]] == [4, 4, 3]
    changed = [
        {name: pixels for batch in epoch for name, pixels in zip(batch.ids, batch.pixels, strict=True)}
        for epoch in epochs
    ]
    assert sum(torch.equal(changed[0][name], changed[1][name]) for name in changed[0]) < 4

    same = data(augmentation=Augmentation(crop_padding=3, flip=True)).train_dataloader()
    assert all(torch.equal(a.pixels, b.pixels) for a, b in zip(epochs[0], same, strict=True))
    other = data(augmentation=Augmentation(crop_padding=3, flip=True))
    other.order_seed = 1
    assert ids(other.train_dataloader()) != ids(epochs[0])


def test_what_a_worker_process_is_given_can_be_sent_to_it() -> None:
    loader = data(augmentation=Augmentation(flip=True)).train_dataloader()
    for part in (loader.examples, loader.collate, loader.augment):
        pickle.loads(pickle.dumps(part))


def test_a_checkpoint_keeps_the_preprocessing_as_plain_types() -> None:
    made = data(height=12, width=10, resize="pad")
    state = json.loads(json.dumps(made.state()))
    assert state == made.state()
    assert state["labels"] == ["a", "b", "c"]
    other = data(mean=[0.0], std=[1.0])
    other.restore(state)
    assert other.state() == state
    assert all(map(_same, made.loader("all"), other.loader("all")))


def _same(a: ImageBatch, b: ImageBatch) -> bool:
    return torch.equal(a.pixels, b.pixels) and a.ids == b.ids


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_ones_own_pictures_are_prepared_as_the_models_data(tmp_path: Path) -> None:
    original = data(height=12, width=10, mean=[0.3], std=[0.2], augmentation=Augmentation(flip=True))
    draw = np.random.default_rng(1)
    grey = draw.integers(0, 256, (6, 8), dtype=np.uint8)
    alone = save(tmp_path / "photo.png", grey)
    save(tmp_path / "folder" / "b" / "known.png", draw.integers(0, 256, (30, 20, 3), dtype=np.uint8))
    save(tmp_path / "folder" / "unknown.png", draw.integers(0, 256, (9, 40, 4), dtype=np.uint8))
    mine = original.from_files([alone, tmp_path / "folder"], original.state())
    assert mine.sizes() == original.sizes()
    (batch,) = mine.loader("all")
    assert dict(zip(batch.ids, batch.labels.tolist(), strict=True)) == {
        str(alone): -1,
        str(tmp_path / "folder" / "b" / "known.png"): 1,
        str(tmp_path / "folder" / "unknown.png"): -1,
    }
    assert batch.pixels.shape == (3, 1, 12, 10)
    assert batch.label_names == ("a", "b", "c")
    as_data = replace(some(), pixels=grey[None, None], labels=np.array([0]), splits=np.array(["test"]), ids=["x"])
    (expected,) = data(read=lambda: as_data, height=12, width=10, mean=[0.3], std=[0.2]).loader("all")
    assert torch.equal(batch.pixels[0], expected.pixels[0])


def test_pictures_without_a_common_size_need_one(tmp_path: Path) -> None:
    publish_imagenet(tmp_path / "imagenet")
    options = {"root": str(tmp_path), "validation": 3, "max_epochs": 1, "batch_size": 4}
    normal = {"mean": [0.5] * 3, "std": [0.5] * 3}
    with pytest.raises(ConfigError, match=r"no size in common; give data\.height and data\.width"):
        sets.imagenet(**options, **normal, height=16).sizes()
    made = sets.imagenet(**options, **normal, height=16, width=12, augmentation=Augmentation(resized_crop=[0.5, 1.0]))
    assert {batch.pixels.shape[1:] for batch in made.train_dataloader()} == {(3, 16, 12)}
    assert {batch.pixels.shape[1:] for batch in made.loader("all")} == {(3, 16, 12)}
    with pytest.raises(ConfigError, match=r"data\.mean has 1 number"):
        sets.imagenet(**options, mean=[0.5], std=[0.5], height=16, width=12).sizes()


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("eval_batch_size", -3), ("eval_batch_size", 0)])
def test_a_bad_batch_size_is_said(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is to be a whole number of at least 1"):
        data(**{name: value})


def test_a_set_with_names_of_its_own_serves_a_model_of_these_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_idx(tmp_path)
    monkeypatch.setitem(SETS, "fashion_mnist", SMALL_IDX)
    options = {"validation": 20, "max_epochs": 1, "batch_size": 8, "mean": [0.3], "std": [0.3]}
    made = sets.published(name="fashion_mnist", root=str(tmp_path), **options)
    state = made.state()
    made.restore(state)
    assert made.sizes()["classes"] == 10
    made.restore(state | {"labels": ["cat", "dog"]})
    with pytest.raises(DataError, match=r"other labels than this data has \(2 against 10\); fine-tune it"):
        made.sizes()


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10", "cifar100", "imagenet"])
def test_the_configuration_of_a_set_builds_it(name: str, tmp_path: Path) -> None:
    node = compose.compose(["model=resnet", f"data={name}", f"paths.data={tmp_path}"])["data"]
    made = instantiate.build(node, "data")
    assert isinstance(made, ImageData)
    assert isinstance(made.augmentation, Augmentation)
    assert len(made.options.mean or ()) == (1 if name == "fashion_mnist" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["resnet20_cifar10", "se_resnet20_cifar10"])
def test_an_epoch_of_the_cifar_recipe_on_generated_pictures(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    publish_cifar(tmp_path / "data", SMALL_CIFAR10)
    monkeypatch.setitem(SETS, "cifar10", SMALL_CIFAR10)
    done = cli(
        "train",
        f"experiment={recipe}",
        f"paths.data={tmp_path / 'data'}",
        "data.max_epochs=1",
        "data.validation=20",
        "run_dir=run",
    )
    assert done.code == 0, done.err
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert 0 <= metrics["test/accuracy"] <= 1
