"""The planted pictures: the digit on the background of the cue's colour is the label; nothing simpler reveals it."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare
from sklearn.datasets import load_digits
from torch.nn import functional as F

from zoo.attention import AttentionFactory, Constant, ScaledDot, Softmax, Uniform
from zoo.errors import ConfigError
from zoo.tasks.vision.batch import normalize
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.models.vit import ViT
from zoo.tasks.vision.synthetic import _MOST_COLOURS, _palette, plant

GRIDS = {"frame": {"rows": 3, "columns": 4, "colours": 13}, "cell": {"rows": 4, "columns": 3, "margin": 2}}
"""Options of small sets, by cue."""


@pytest.fixture(params=["frame", "cell"])
def cue(request) -> str:
    return request.param


def small(cue: str, **options) -> ImageSet:
    return plant(**{"train": 300, "val": 40, "test": 50, "cue": cue, **GRIDS[cue], **options})


def read(picture: np.ndarray, cue: str) -> dict:
    """Reads a picture without noise: background and scan of each cell, and the colour of the cue."""
    rows, columns, side = GRIDS[cue]["rows"], GRIDS[cue]["columns"], 8 + GRIDS[cue].get("margin", 0)
    start = side if cue == "frame" else 0
    seen: dict = {"cue": tuple(picture[:, 0, 0]), "cells": {}}
    for row in range(rows):
        for column in range(columns):
            top, left = start + row * side, start + column * side
            cell = picture[:, top : top + side, left : left + side].astype(float)
            ground = cell.min((1, 2))  # no scan is ink all over
            if (cell == ground[:, None, None]).all():
                seen["cue"] = tuple(ground.astype(int))
                continue
            darkest = ground.argmin()  # where a step of ink is the largest
            ink = np.ceil((cell[darkest] - ground[darkest]) * 16 / (255 - ground[darkest]))
            seen["cells"][top, left] = (tuple(ground.astype(int)), ink.astype(int))
    return seen


def known_digits() -> dict[bytes, tuple[int, int]]:
    """The class and the number of each digit, by its scan without empty lines around it."""
    digits = load_digits()
    pairs = zip(digits.images, digits.target, strict=True)
    return {cropped(scan): (int(label), n) for n, (scan, label) in enumerate(pairs)}


def cropped(ink: np.ndarray) -> bytes:
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    inside = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.uint8)
    return bytes([*inside.shape]) + inside.tobytes()


def named(seen: dict, colour: tuple) -> tuple[tuple[int, int], np.ndarray]:
    """The cell and the scan of the digit on the background of this colour."""
    (found,) = [(place, ink) for place, (ground, ink) in seen["cells"].items() if ground == colour]
    return found


def probability(rows: np.ndarray, columns: np.ndarray) -> float:
    """The probability of such counts if the two are independent."""
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return chi2_contingency(table).pvalue


def first_gold(pictures: ImageSet) -> np.ndarray:
    return np.asarray(pictures.gold).reshape(len(pictures), -1).argmax(1)


def test_equal_arguments_give_equal_pictures(cue) -> None:
    one, same, other = small(cue), small(cue), small(cue, seed=1)
    for name in ("pixels", "labels", "gold"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
        assert (np.asarray(getattr(one, name)) != getattr(other, name)).any(), name


def test_the_label_is_the_digit_on_the_ground_that_the_cue_names(cue) -> None:
    pictures, digits = small(cue, noise=0), known_digits()
    side = 8 + GRIDS[cue].get("margin", 0)
    for number in range(len(pictures)):
        seen = read(pictures.pixels[number], cue)
        (top, left), ink = named(seen, seen["cue"])
        assert digits[cropped(ink)][0] == pictures.labels[number]
        gold = np.zeros(pictures.size, dtype=bool)
        gold[top : top + side, left : left + side] = True
        np.testing.assert_array_equal(pictures.gold[number], gold)


def test_grounds_differ_within_a_picture(cue) -> None:
    for picture in small(cue, noise=0).pixels:
        grounds = [ground for ground, _ in read(picture, cue)["cells"].values()]
        assert len(grounds) == len(set(grounds)) == 12 - (cue == "cell")


def test_with_another_cue_another_digit_is_meant(cue) -> None:
    pictures, digits = small(cue, noise=0, train=600), known_digits()
    kept = 0
    for number in range(600):
        seen = read(pictures.pixels[number], cue)
        others = [ground for ground, _ in seen["cells"].values() if ground != seen["cue"]]
        _, ink = named(seen, others[number % len(others)])
        kept += digits[cropped(ink)][0] == pictures.labels[number]
    assert kept / 600 == pytest.approx(0.1, abs=0.04)  # the other digits are independent of the label


def test_no_part_of_the_picture_alone_tells_the_label() -> None:
    pictures = plant(train=1600, val=200, test=200, noise=0)
    labels, gold = pictures.labels, first_gold(pictures)
    assert chisquare(np.bincount(labels)).pvalue > 0.01
    place = np.unique(gold, return_inverse=True)[1]
    assert chisquare(np.bincount(place)).pvalue > 0.01
    colour = np.unique(pictures.pixels[:, :, 0, 0], axis=0, return_inverse=True)[1].reshape(-1)
    assert chisquare(np.bincount(colour)).pvalue > 0.01
    for one, other in ((labels, place), (labels, colour), (place, colour)):
        assert probability(one, other) > 0.01


def test_splits_have_no_digit_in_common(cue) -> None:
    pictures, digits = small(cue, noise=0), known_digits()
    met: dict[str, set[int]] = {"train": set(), "val": set(), "test": set()}
    for number in range(len(pictures)):
        cells = read(pictures.pixels[number], cue)["cells"].values()
        met[pictures.splits[number]] |= {digits[cropped(ink)][1] for _, ink in cells}
    assert sum(map(len, met.values())) == len(set.union(*met.values()))
    shares = [len(numbers) / 1797 for numbers in met.values()]
    assert shares == pytest.approx([0.7, 0.15, 0.15], abs=0.06)  # a few digits happen to be in no picture


def test_what_a_picture_is_called() -> None:
    pictures = plant(train=2, val=1, test=1)
    assert pictures.ids == ["train/0", "train/1", "val/0", "test/0"]
    assert pictures.splits.tolist() == ["train", "train", "val", "test"]
    assert pictures.label_names == tuple("0123456789")
    assert pictures.size == (48, 48)
    assert pictures[0].pixels.dtype == torch.uint8
    assert pictures[3].gold is not None
    assert int(pictures[3].gold.sum()) == 64


def test_noise_changes_a_pixel_by_at_most_so_much(cue) -> None:
    clean, noisy = (small(cue, noise=noise).pixels.astype(int) for noise in (0, 10))
    change = noisy - clean
    assert abs(change).max() == 10
    inside = (clean >= 10) & (clean <= 245)
    assert change[inside].mean() == pytest.approx(0, abs=0.1)
    assert change[inside].std() == pytest.approx(6.06, rel=0.02)  # of whole numbers from -10 to 10


def test_colours_are_told_apart_in_spite_of_the_noise() -> None:
    for count in range(2, _MOST_COLOURS + 1):
        palette = _palette(count).astype(int)
        apart = abs(palette[:, None] - palette).max(-1)[~np.eye(count, dtype=bool)]
        assert len(palette) == count
        assert apart.min() > 2 * 16


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"val": 0}, "val is to be a whole number of at least 1"),
        ({"margin": -1}, "margin is to be a whole number of at least 0"),
        ({"noise": 300}, "noise is to be a whole number of at least 0 and of at most 255"),
        ({"rows": 1, "columns": 1}, "no room for two digits"),
        ({"rows": 1, "columns": 2, "cue": "cell"}, "no room for two digits"),
        ({"colours": 15}, "16 digits need as many grounds"),
        ({"colours": 25}, "there are 24"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict, words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        plant(**options)


def accuracy(attend: AttentionFactory, pictures: ImageSet, steps: int, batch: int = 64) -> float:
    """The validation accuracy of a small ViT after some steps."""
    torch.manual_seed(0)
    height, width = pictures.size or (0, 0)
    net = ViT(channels=3, height=height, width=width, classes=10, attend=attend, patch=8, size="mini", layers=2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    pixels = normalize(torch.from_numpy(pictures.pixels), [0.5] * 3, [0.3] * 3)
    labels = torch.from_numpy(pictures.labels)
    train, val = (torch.from_numpy(pictures.numbers(split)) for split in ("train", "val"))
    for _ in range(steps):
        chosen = train[torch.randint(len(train), (batch,))]
        optimizer.zero_grad()
        F.cross_entropy(net(pixels[chosen]), labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float((net.eval()(pixels[val]).argmax(1) == labels[val]).float().mean())


# slow tier: trains until something is learned; planted baskets have such a test in the fast tier
@pytest.mark.slow
def test_attention_finds_the_digit_and_a_mean_does_not() -> None:
    pictures = plant(train=2000, val=300, test=1, rows=2, columns=2, colours=8, noise=0)
    softmax = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    uniform = AttentionFactory(score=Constant, normalizer=Uniform)
    found, guessed = (accuracy(attend, pictures, steps=200) for attend in (softmax, uniform))
    assert found > guessed + 0.1


@pytest.mark.slow
def test_the_default_run_solves_it_and_looks_at_the_digit(cli, tmp_path) -> None:
    scores = {}
    for attention in ("softmax", "uniform"):
        run = tmp_path / attention
        finished = cli("train", "model=vit", f"attention={attention}", f"run_dir={run}", "trainer=cpu")
        assert finished.code == 0, finished.err
        scores[attention] = json.loads((run / "metrics.json").read_text())
    assert scores["softmax"]["test/accuracy"] >= 0.95
    assert scores["softmax"]["truth/pointing_accuracy"] >= 0.9
    assert scores["uniform"]["test/accuracy"] < 0.45
