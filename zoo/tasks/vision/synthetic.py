"""Generated pictures, in which the cell that determines the label is known.

A picture is a grid of real handwritten digits (Alpaydin & Kaynak 1998; from scikit-learn), each on a background of
another colour. A cue elsewhere in the picture has the colour of one background; the digit on this background is the
label, and its cell is gold. The cue is

- `frame`: a frame around the grid, one cell wide;
- `cell`: one of the grid's cells, which holds no digit.

The other digits are drawn from the same distribution. Neither a digit nor the cue alone therefore reveals the label:
only a comparison of the cue's colour with the backgrounds does. Training, validation and test pictures share no digits.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt16
from sklearn.datasets import load_digits

from zoo.data.size_limits import check_numbers
from zoo.data.splits import SPLITS
from zoo.errors import ConfigError
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.types import NonNegativeInt, PositiveInt, Seed, validate_ranges

Cue = Literal["frame", "cell"]

_CLASSES = 10
_SIDE = 8
"""Height and width of a digit in pixels."""
_INK = 16
"""The maximum ink of a pixel of a digit."""
_LEVELS = (40, 128, 216)
"""Levels of red, green and blue in the colour of a background (ground); ink is white."""
_MOST_COLOURS = len(_LEVELS) ** 3 - len(_LEVELS)
"""Number of colours that are not grey."""


@validate_ranges
def plant(
    *,
    train: PositiveInt = 10_000,
    val: PositiveInt = 1_000,
    test: PositiveInt = 1_000,
    rows: PositiveInt = 4,
    columns: PositiveInt = 4,
    margin: NonNegativeInt = 0,
    colours: PositiveInt = 16,
    noise: Annotated[int, ">= 0", "<= 255"] = 16,
    cue: Cue = "frame",
    seed: Seed = 0,
) -> ImageSet:
    """Generates pictures; equal arguments give equal pictures.

    Args:
        train: Number of training pictures.
        val: Number of validation pictures.
        test: Number of test pictures.
        rows: Number of rows of the grid.
        columns: Number of columns of the grid.
        margin: Number of pixels by which a cell is larger than a digit, whose position in the cell is random.
        colours: Number of colours of backgrounds; the backgrounds of a picture all differ.
        noise: Maximum change of a pixel by noise, of 255.
        cue: The cue that selects a digit.
        seed: Seed of all random numbers.
    """
    counts = (train, val, test)
    _check(counts, rows, columns, margin, colours, noise, cue)
    random = np.random.default_rng(seed)
    (grain,) = random.spawn(1)  # a generator of its own: the noise level does not change the rest
    digits = load_digits()
    pools = _split(random, digits.target)
    scans = np.ascontiguousarray(digits.images, dtype=np.uint16)

    parts = []
    for count, pool in zip(counts, pools, strict=True):
        chosen = _draw_digits(random, digits.target, pool, (count, rows * columns - (cue == "cell")))
        order = random.permuted(np.tile(np.arange(rows * columns), (count, 1)), axis=1)
        tags = random.permuted(np.tile(np.arange(colours), (count, 1)), axis=1)[:, : chosen.shape[1]]
        grounds = _palette(colours)[tags]
        cells = np.empty((count, rows * columns, 3, _SIDE + margin, _SIDE + margin), dtype=np.uint8)
        numbers = np.arange(count)[:, None]
        cells[numbers, order[:, : chosen.shape[1]]] = _blend(_place(random, scans[chosen], margin), grounds)
        if cue == "cell":
            cells[np.arange(count), order[:, -1]] = grounds[:, 0, :, None, None]
        pixels, gold = _grid(cells, rows), _grid(_gold(order[:, 0], cells), rows)[:, 0]
        if cue == "frame":  # the first digit is the label
            pixels, gold = _add_frame(pixels, grounds[:, 0], _SIDE + margin), _add_frame(gold, False, _SIDE + margin)
        parts.append((_noisy(grain, pixels, noise), digits.target[chosen[:, 0]], gold))

    pixels, labels, gold = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ImageSet(
        pixels=pixels,
        labels=labels,
        splits=np.repeat(SPLITS, counts),
        label_names=tuple(map(str, range(_CLASSES))),
        ids=[f"{split}/{number}" for split, count in zip(SPLITS, counts, strict=True) for number in range(count)],
        channels=3,
        size=(pixels.shape[2], pixels.shape[3]),
        gold=gold,
    )


def _split(random: np.random.Generator, target: Int[np.ndarray, " n"]) -> list[Int[np.ndarray, " k"]]:
    """Splits the digits for training, validation and test pictures: 70, 15 and 15 % of each class."""
    parts: list[list[np.ndarray]] = [[], [], []]
    for digit in range(_CLASSES):
        shuffled = random.permutation(np.flatnonzero(target == digit))
        cuts = [round(0.7 * len(shuffled)), round(0.85 * len(shuffled))]
        for part, some in zip(parts, np.split(shuffled, cuts), strict=True):
            part.append(some)
    return [np.concatenate(part) for part in parts]


def _draw_digits(
    random: np.random.Generator, target: Int[np.ndarray, " n"], pool: Int[np.ndarray, " k"], shape: tuple[int, int]
) -> Int[np.ndarray, "p d"]:
    """Draws digits of a pool, with equal probability of all classes."""
    label = random.integers(_CLASSES, size=shape)
    chosen = np.empty_like(label)
    for digit in range(_CLASSES):
        candidates = pool[target[pool] == digit]
        chosen[label == digit] = candidates[random.integers(len(candidates), size=(label == digit).sum())]
    return chosen


def _palette(colours: int) -> UInt16[np.ndarray, "colours 3"]:
    """Returns distinct colours: each is the farthest from those before it."""
    every = np.stack(np.meshgrid(*[_LEVELS] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    left = every[~(every == every[:, :1]).all(1)]
    taken = [0]
    nearest = ((left - left[0]) ** 2).sum(1)
    while len(taken) < colours:
        taken.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, ((left - left[taken[-1]]) ** 2).sum(1))
    palette: np.ndarray = left[taken].astype(np.uint16)
    return palette


def _place(random: np.random.Generator, scans: np.ndarray, margin: int) -> np.ndarray:
    """Puts scans (p,d,h,w) at random positions in cells (p,d,c,c)."""
    if not margin:
        return scans
    count, digits = scans.shape[:2]
    ink = np.zeros((count, digits, _SIDE + margin, _SIDE + margin), dtype=scans.dtype)
    top, left = random.integers(margin + 1, size=(2, count, digits, 1, 1))
    inside = np.arange(_SIDE)
    picture, digit = np.ogrid[:count, :digits]
    ink[picture[..., None, None], digit[..., None, None], top + inside[:, None], left + inside] = scans
    return ink


def _blend(ink: np.ndarray, grounds: np.ndarray) -> UInt8[np.ndarray, "p d 3 c c"]:
    """Blends white ink (p,d,c,c) with backgrounds (p,d,3)."""
    share, ground = ink[:, :, None], grounds[..., None, None]
    drawn: np.ndarray = ((ground * (_INK - share) + 255 * share) // _INK).astype(np.uint8)
    return drawn


def _gold(chosen: Int[np.ndarray, " p"], cells: UInt8[np.ndarray, "p n 3 c c"]) -> Bool[np.ndarray, "p n 1 c c"]:
    """Returns masks of the cells that are True in the chosen cell of each picture."""
    gold = np.zeros((cells.shape[0], cells.shape[1], 1, *cells.shape[3:]), dtype=bool)
    gold[np.arange(len(chosen)), chosen] = True
    return gold


def _grid(cells: np.ndarray, rows: int) -> np.ndarray:
    """Arranges cells (p,n,k,c,c), given row by row, as pictures (p,k,h,w)."""
    count, number, channels, side, _ = cells.shape
    by_row = cells.reshape(count, rows, number // rows, channels, side, side)
    return by_row.transpose(0, 3, 1, 4, 2, 5).reshape(count, channels, rows * side, number // rows * side)


def _add_frame(inner: np.ndarray, colours: np.ndarray | bool, width: int) -> np.ndarray:
    """Adds a frame of one colour, (p,k), to pictures (p,k,h,w), or to maps (p,h,w)."""
    shape = (*inner.shape[:-2], inner.shape[-2] + 2 * width, inner.shape[-1] + 2 * width)
    outer = np.empty(shape, dtype=inner.dtype)
    outer[:] = np.asarray(colours)[..., None, None]
    outer[..., width:-width, width:-width] = inner
    return outer


def _noisy(random: np.random.Generator, pixels: UInt8[np.ndarray, "p 3 h w"], noise: int) -> np.ndarray:
    change = random.integers(-noise, noise + 1, size=pixels.shape, dtype=np.int16)
    return np.clip(change + pixels, 0, 255, out=change).astype(np.uint8)


def _check(
    counts: tuple[int, int, int], rows: int, columns: int, margin: int, colours: int, noise: int, cue: str
) -> None:
    check_numbers(sum(counts) * 3 * (rows + 2) * (columns + 2) * (_SIDE + margin) ** 2, "these options")
    digits = rows * columns - (cue == "cell")
    if digits < 2:
        raise ConfigError(f"{rows} rows and {columns} columns leave no room for two digits, of which one is meant.")
    if not digits <= colours <= _MOST_COLOURS:
        raise ConfigError(
            f"colours={colours} does not fit: {digits} digits need as many grounds, and there are {_MOST_COLOURS}."
        )
