"""Sparse patterns for `Attention(restrict=...)`, which limit self-attention to O(n) pairs.

Each pattern narrows the `DenseSupport` of a site to a `BlockSupport` with the same mask and causality. Layouts are made
once for a length and shared by all sites and steps.
"""

from __future__ import annotations

from inspect import unwrap
from math import ceil, isqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.kernels.cache import cache_recent, is_eager_cpu
from zoo.attention.mechanism import Restriction, Traits, Use
from zoo.attention.supports.blocks import BlockSet, BlockStructure, BlockSupport, Rule, own_lengths
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.partition import Partition, Permutation
from zoo.attention.supports.random_blocks import NO_LINK, draw_links
from zoo.types import NonNegativeInt, PositiveInt, Seed, validate_ranges

_LAYOUTS = 16
_OF_ONE_SEQUENCE = "depends on the positions of queries and keys, which are those of one sequence"
_WHOLE = "needs the whole sequence at once and cannot continue it step by step"


@validate_ranges
class SlidingWindow(Restriction):
    """Position i attends to i - rg, ..., i - g, i, i + g, ..., i + rg (Beltagy et al. 2020, section 3.1).

    Global tokens attend to all positions, and all positions to them; this is Longformer's pattern, without its separate
    projections for global attention. Under a causal support only earlier keys are seen. There may be fewer queries than
    keys, as in a decoder with a cache: the last query stands at the last key.

    Cost: O(n radius)

    Args:
        radius: Number of keys on each side, r.
        dilation: Distance between these keys, g; 1 leaves no gaps.
        global_tokens: Number of tokens at the start of the sequence that are global.
    """

    traits = Traits(
        layouts=(DenseSupport,),
        output_layout=BlockSupport,
        content_based=False,
        unsupported={Use.CROSS: _OF_ONE_SEQUENCE},
    )

    def __init__(self, *, radius: NonNegativeInt, dilation: PositiveInt = 1, global_tokens: NonNegativeInt = 0) -> None:
        super().__init__()
        self.radius, self.dilation, self.global_tokens = radius, dilation, global_tokens

    def forward(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: DenseSupport
    ) -> BlockSupport:
        queries, keys = query.shape[2], key.shape[2]
        # Not cached for a decoder with a cache, whose lengths do not repeat.
        make = _make_sliding if queries == keys else unwrap(_make_sliding)
        pattern = self.radius, self.dilation, self.global_tokens
        layout = make(queries, keys, support.later, support.causal, *pattern, query.device)
        return BlockSupport.from_structure(layout, support)

    def extra_repr(self) -> str:
        return f"radius={self.radius}, dilation={self.dilation}, global_tokens={self.global_tokens}"


@validate_ranges
class BigBird(Restriction):
    """Blocks attend to neighbouring, global and random blocks (Zaheer et al. 2020, section 2, appendix D).

    The first blocks are global: they attend to all blocks, and all blocks to them (in the authors' code the last block
    is global too). Random blocks are drawn among the remaining blocks and shared by all heads. They depend on the
    length of a sequence, up to the last key that its mask permits, and not on the padding of its batch. Under a causal
    support only earlier keys are seen, and only earlier blocks are drawn.

    Cost: O(n block (global_blocks + window_blocks + random_blocks))

    Args:
        block: Number of tokens in a block.
        global_blocks: Number of blocks at the start of the sequence that are global.
        window_blocks: Number of neighbouring blocks, the block itself included; an odd number.
        random_blocks: Number of random blocks for each block.
        seed: Seed of the random blocks.
    """

    traits = Traits(
        layouts=(DenseSupport,),
        output_layout=BlockSupport,
        content_based=False,
        unsupported={Use.CROSS: _OF_ONE_SEQUENCE, Use.STEPWISE: _WHOLE},
    )

    def __init__(
        self,
        *,
        block: PositiveInt = 64,
        global_blocks: NonNegativeInt = 2,
        window_blocks: PositiveInt = 3,
        random_blocks: NonNegativeInt = 3,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        if window_blocks % 2 == 0:
            raise ValueError(
                f"window_blocks must be odd, so that a block is in the middle of its own, got {window_blocks}"
            )
        self.block, self.global_blocks, self.window_blocks = block, global_blocks, window_blocks
        self.random_blocks, self.seed = random_blocks, seed

    def forward(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: DenseSupport
    ) -> BlockSupport:
        length = _one_sequence(self, query, key, support)
        counts = _counts(support, length, self.block)
        pattern = self.block, self.global_blocks, self.window_blocks // 2, self.random_blocks, self.seed
        return BlockSupport.from_structure(_big_bird(length, counts, support.causal, *pattern, query.device), support)

    def extra_repr(self) -> str:
        kinds = f"global_blocks={self.global_blocks}, window_blocks={self.window_blocks}"
        return f"block={self.block}, {kinds}, random_blocks={self.random_blocks}, seed={self.seed}"


@validate_ranges
class ShiftedWindows(Restriction):
    """Positions of a grid attend to the positions of their window (Liu et al. 2021, section 3.2).

    Layers should alternate between a shift of 0 and of half a window, so that windows exchange information. A cyclic
    shift (figure 4) combines the partial windows at the edges into full ones, in which only true neighbours see each
    other. If the window does not divide the grid, the grid is padded, and padding is masked (the authors' code attends
    to it). A side that fits into one window is not shifted.

    Cost: O(n window^2)

    Args:
        window: Side of a window.
        shift: Number of rows and columns by which windows are shifted; below `window`.
        height: Number of rows of the grid, whose positions are in row-major order. Default: a square grid.
        width: Number of columns of the grid. Default: a square grid.
    """

    traits = Traits(
        layouts=(DenseSupport,),
        output_layout=BlockSupport,
        content_based=False,
        unsupported={Use.CROSS: _OF_ONE_SEQUENCE, Use.STEPWISE: _WHOLE},
    )

    def __init__(
        self,
        *,
        window: PositiveInt,
        shift: NonNegativeInt = 0,
        height: PositiveInt | None = None,
        width: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        if not shift < window:
            raise ValueError(f"shift must be from 0 to window - 1 = {window - 1}, got {shift}")
        if (height is None) != (width is None):
            raise ValueError(f"height and width go together, got height={height} and width={width}")
        self.window, self.shift, self.height, self.width = window, shift, height, width

    def forward(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: DenseSupport
    ) -> BlockSupport:
        height, width = self._grid(_one_sequence(self, query, key, support))
        layout = _windows(height, width, self.window, self.shift, support.causal, query.device)
        return BlockSupport.from_structure(layout, support)

    def _grid(self, length: int) -> tuple[int, int]:
        side = isqrt(length)
        height, width = side if self.height is None else self.height, side if self.width is None else self.width
        if height * width != length:
            raise ValueError(f"{length} positions are not a grid of {height} x {width}: give height and width")
        return height, width

    def extra_repr(self) -> str:
        return f"window={self.window}, shift={self.shift}, height={self.height}, width={self.width}"


def _counts(support: DenseSupport, length: int, block: int) -> tuple[int, ...]:
    """Returns the numbers of blocks of the sequences of a batch; all numbers on devices that would have to wait."""
    most = max(1, ceil(length / block))
    if support.permitted is None or support.causal:
        return (most,)
    lengths = own_lengths(support.permitted, length)
    if not is_eager_cpu(lengths):
        return tuple(range(1, most + 1))
    return tuple(sorted({most, *(ceil(own / block) for own in lengths.tolist() if own)}))


def _one_sequence(restrict: nn.Module, query: Tensor, key: Tensor, support: DenseSupport) -> int:
    queries, keys = query.shape[2], key.shape[2]
    if queries != keys or support.later:
        name = type(restrict).__name__
        raise ValueError(f"{name} is for self-attention over a whole sequence, got {queries} queries and {keys} keys")
    return keys


@cache_recent(_LAYOUTS)
def _make_sliding(
    queries: int,
    keys: int,
    later: int,
    causal: bool,
    radius: int,
    dilation: int,
    global_tokens: int,
    device: torch.device,
) -> BlockStructure:
    start = keys - queries - later
    leading = max(0, min(global_tokens - start, queries))
    columns = min(global_tokens, keys)

    def near(i: Tensor, j: Tensor) -> Tensor:
        mask = ((i - j).abs() <= radius * dilation) & ((i - j) % dilation == 0)
        return mask & (i >= start + leading) & (j >= columns)

    order, reach = None, radius * dilation
    if dilation > 1 and queries == keys and not start:
        order, reach = _order_by_residue(keys, dilation, device), radius
    after = 0 if causal else reach
    size = min(_block_size(reach), max(1, queries))
    count = max(1, ceil((queries if order is None else len(order.slots)) / size))
    if size + reach + after >= keys:  # one block with all keys has fewer pairs than overlapping runs
        cut = Partition(1, queries, 0, keys, columns=columns)
    else:
        cut = Partition(count, size, reach - start, size + reach + after, order, columns)
    rest = BlockSet.from_partition(cut, queries, keys, device, start, _rule(near, cut, leading + start, causal))
    return BlockStructure(rest, queries, keys, _first(leading, queries, keys, start, causal, device), start)


@cache_recent(_LAYOUTS)
def _big_bird(
    length: int,
    counts: tuple[int, ...],
    causal: bool,
    block: int,
    first: int,
    neighbours: int,
    linked: int,
    seed: int,
    device: torch.device,
) -> BlockStructure:
    """Makes a layout with the links of sequences of several lengths.

    Args:
        counts: Numbers of blocks of the sequences in ascending order; the last one is that of `length`.
        first: Number of global blocks.
        neighbours: Number of neighbours on each side.
        linked: Number of random blocks.
    """
    count = counts[-1]
    columns = min(first * block, length)
    after = 0 if causal else neighbours
    span = (1 + neighbours + after) * block
    rows = draw_links(counts, first, neighbours, linked, seed, causal)
    most = max(len(row) for row in rows)
    links = torch.tensor([row + [NO_LINK] * (most - len(row)) for row in rows], dtype=torch.int64, device=device)
    to, since, until = links.view(count, most, 3).unbind(2)
    cut = Partition(count, block, neighbours * block, span, None, columns, to)
    is_link = (torch.arange(cut.slots, device=device) >= columns + span)[None, None]

    def is_seen(of_links: Tensor, of_others: int) -> Tensor:
        others = of_links.new_full((count, columns + span), of_others)
        return torch.cat([others, of_links.repeat_interleave(block, 1)], 1)

    drawn = is_seen(since <= until, False).unsqueeze(1)
    lengths = None
    if len(counts) > 1:
        lengths = is_seen((since - 1) * block + 1, 0), is_seen(until * block, length)

    def near(i: Tensor, j: Tensor) -> Tensor:
        is_near = ((i // block - j // block).abs() <= neighbours) & ~is_link
        return (is_near | drawn) & (i >= columns) & (j >= columns)

    rest = BlockSet.from_partition(cut, length, length, device, 0, _rule(near, cut, columns, causal), lengths)
    return BlockStructure(rest, length, length, _first(columns, length, length, 0, causal, device))


@cache_recent(_LAYOUTS)
def _windows(height: int, width: int, window: int, shift: int, causal: bool, device: torch.device) -> BlockStructure:
    down, right = shift if height > window else 0, shift if width > window else 0
    order = _order_by_window(height, width, window, down, right, device)
    cut = Partition(len(order.slots) // window**2, window**2, 0, window**2, order)

    def near(i: Tensor, j: Tensor) -> Tensor:
        same_rows = (i // width - down) // window == (j // width - down) // window
        return same_rows & ((i % width - right) // window == (j % width - right) // window)

    is_full = not (down or right or height % window or width % window)
    rule = None if is_full and not causal else _rule(near, cut, 0, causal)
    return BlockStructure(
        BlockSet.from_partition(cut, height * width, height * width, device, 0, rule), height * width, height * width
    )


def _block_size(reach: int) -> int:
    """Chooses the size of blocks: small blocks compute fewer forbidden pairs, large ones are faster per pair."""
    return min(max(16, 1 << max(1, (reach - 1).bit_length()) - 1), 128)


def _rule(near: Rule, cut: Partition, first: int, causal: bool) -> Rule:
    """Extends a rule by the keys of `columns`, for all queries from `first` on, and by causality."""
    columns = cut.columns

    def rule(i: Tensor, j: Tensor) -> Tensor:
        mask = near(i, j)
        if columns:
            mask[..., :columns] = i >= first
        return mask & (j <= i) if causal else mask

    return rule


def _first(leading: int, queries: int, keys: int, start: int, causal: bool, device: torch.device) -> BlockSet | None:
    """Returns the block of the queries of global tokens, which attend to all keys."""
    if not leading:
        return None
    return BlockSet.from_partition(
        Partition(1, leading, 0, keys), queries, keys, device, start, (lambda i, j: j <= i) if causal else None
    )


def _order_by_residue(length: int, dilation: int, device: torch.device) -> Permutation:
    """Orders positions by their remainder modulo the dilation."""
    size = ceil(length / dilation)
    slots = torch.arange(size, device=device) * dilation + torch.arange(dilation, device=device).unsqueeze(1)
    places = torch.arange(length, device=device)
    return Permutation(slots.masked_fill(slots >= length, -1).flatten(), places % dilation * size + places // dilation)


def _order_by_window(height: int, width: int, window: int, down: int, right: int, device: torch.device) -> Permutation:
    """Orders the positions of a grid by window, after padding to whole windows and a cyclic shift."""
    rows, columns = ceil(height / window), ceil(width / window)
    y = (torch.arange(rows * window, device=device) + down) % max(1, rows * window)
    x = (torch.arange(columns * window, device=device) + right) % max(1, columns * window)
    at = torch.where((y < height).unsqueeze(1) & (x < width), y.unsqueeze(1) * width + x, -1)
    slots = at.view(rows, window, columns, window).transpose(1, 2).flatten()
    places = slots.new_empty(height * width + 1)
    places[torch.where(slots < 0, height * width, slots)] = torch.arange(len(slots), device=device)
    return Permutation(slots, places[:-1])
