"""Sparse patterns equal dense attention under the same mask, which is written out here from the papers' definitions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from attention_cases import NORMALISERS, SCORES, Shape, assert_close, inputs, run, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.attention import (
    ALiBi,
    Attention,
    BigBird,
    BlockSupport,
    DenseSupport,
    EdgeSupport,
    MultiheadAttention,
    Rotary,
    ScaledDot,
    Shaw,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    T5Bias,
    TransformerXL,
    record,
)
from zoo.attention.kernels import fused_blocks
from zoo.attention.supports.random_blocks import draw_links

Pattern = tuple[nn.Module, int, Tensor]
"""A module, a length, and who may attend to whom without a mask."""


def sliding(n: int, radius: int, dilation: int = 1, global_tokens: int = 0) -> Pattern:
    """Beltagy et al. 2020, section 3.1: sliding, dilated, global."""
    allowed = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for step in range(-radius, radius + 1):
            if 0 <= i + step * dilation < n:
                allowed[i, i + step * dilation] = True
    allowed[:global_tokens] = True
    allowed[:, :global_tokens] = True
    return SlidingWindow(radius=radius, dilation=dilation, global_tokens=global_tokens), n, allowed


def big_bird(n: int, block: int, first: int, window: int, drawn: int, causal: bool = False, seed: int = 0) -> Pattern:
    """Zaheer et al. 2020, appendix D; the random blocks are read from the layout, and tested on their own below."""
    module = BigBird(block=block, global_blocks=first, window_blocks=window, random_blocks=drawn, seed=seed)
    linked = links_of(module, n, causal)
    allowed = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            own, other = i // block, j // block
            allowed[i, j] = abs(own - other) <= window // 2 or min(own, other) < first or other in linked[own]
    return module, n, allowed


def links_of(module: BigBird, n: int, causal: bool) -> list[set[int]]:
    """The random blocks of each block: what it sees that is neither near nor global."""
    x = torch.zeros(1, 1, n, 1)
    support = module(x, x, DenseSupport(causal=causal))
    blocks = support.pairs()[:, support.permitted] // module.block
    linked: list[set[int]] = [set() for _ in range(max(1, math.ceil(n / module.block)))]
    for own, other in blocks.unique(dim=1).T.tolist():
        if min(own, other) >= module.global_blocks and abs(own - other) > module.window_blocks // 2:
            linked[own].add(other)
    return linked


def swin(height: int, width: int, window: int, shift: int) -> Pattern:
    """Liu et al. 2021, section 3.2: the windows of a plane whose partition begins `shift` further up and left."""
    down, right = shift if height > window else 0, shift if width > window else 0
    allowed = torch.zeros(height * width, height * width, dtype=torch.bool)
    for i in range(height * width):
        for j in range(height * width):
            rows = [math.floor((at // width - down) / window) for at in (i, j)]
            columns = [math.floor((at % width - right) / window) for at in (i, j)]
            allowed[i, j] = rows[0] == rows[1] and columns[0] == columns[1]
    return ShiftedWindows(window=window, shift=shift, height=height, width=width), height * width, allowed


PATTERNS: dict[str, Callable[[bool], Pattern]] = {
    "window": lambda causal: sliding(77, 3),
    "window of the size of a block": lambda causal: sliding(131, 32),
    "only itself": lambda causal: sliding(37, 0),
    "dilated": lambda causal: sliding(101, 4, 3),
    "window and global": lambda causal: sliding(90, 5, 1, 3),
    "dilated and global": lambda causal: sliding(97, 3, 2, 4),
    "wider than the sequence": lambda causal: sliding(9, 20),
    "dilated wider than the sequence": lambda causal: sliding(9, 3, 7),
    "all global": lambda causal: sliding(5, 1, 1, 9),
    "one position": lambda causal: sliding(1, 2, 2, 1),
    "bigbird": lambda causal: big_bird(61, 4, 1, 3, 2, causal),
    "bigbird without random": lambda causal: big_bird(30, 4, 1, 3, 0, causal),
    "bigbird without global": lambda causal: big_bird(43, 5, 0, 1, 3, causal),
    "bigbird in one block": lambda causal: big_bird(6, 8, 1, 3, 2, causal),
    "bigbird with few blocks": lambda causal: big_bird(20, 4, 2, 3, 5, causal),
    "swin": lambda causal: swin(8, 8, 4, 0),
    "swin shifted": lambda causal: swin(8, 8, 4, 2),
    "swin shifted, odd": lambda causal: swin(7, 10, 4, 2),
    "swin, one window high": lambda causal: swin(3, 9, 4, 1),
}
KINDS = ("none", "key", "query", "any")
every_pattern = pytest.mark.parametrize("name", PATTERNS)


def support_of(kind: str, n: int, causal: bool, seed: int = 0) -> tuple[DenseSupport, Tensor]:
    """A mask for two examples of three heads, and what it leaves; ragged, one example without any key."""
    generator = torch.Generator().manual_seed(seed)
    permitted = None
    if kind == "key":
        permitted = torch.arange(n).expand(2, 1, 1, n) < torch.tensor([0, (2 * n + 2) // 3]).view(2, 1, 1, 1)
    elif kind == "query":
        permitted = torch.rand(2, 1, n, 1, generator=generator) < 0.7
    elif kind == "any":
        permitted = torch.rand(2, 3, n, n, generator=generator) < 0.6
    allowed = torch.ones(2, 3, n, n, dtype=torch.bool) if permitted is None else permitted.expand(2, 3, n, n).clone()
    if causal:
        allowed &= torch.ones(n, n, dtype=torch.bool).tril()
    return DenseSupport(permitted, causal=causal), allowed


def site(
    score: str, restrict: nn.Module | None, dtype: torch.dtype = torch.float64, normaliser: str = "softmax"
) -> Attention:
    torch.default_generator.manual_seed(5)
    return Attention(SCORES[score](4, 3), NORMALISERS[normaliser](), restrict=restrict).to(dtype)


def by_own_length(module: nn.Module, support: DenseSupport, near: Tensor) -> Tensor:
    """(b,1,n,n): the links of a sequence that is shorter than its batch are those that it has alone."""
    if not isinstance(module, BigBird) or support.permitted is None or support.permitted.shape[2] > 1:
        return near
    n, options = len(near), (module.block, module.global_blocks, module.window_blocks, module.random_blocks)
    x = torch.zeros(2, 1, n, 1)
    narrow = module(x, x, support)
    found = narrow.to_dense(narrow.permitted.expand(2, 1, -1).double(), n, n) > 0
    for example, own in enumerate(support.permitted.sum(-1).flatten().tolist()):
        if own:  # what padding looks at is no one's business
            found[example, 0, :own, :own] = big_bird(own, *options, support.causal, module.seed)[2]
    return found


def check(
    pattern: Pattern,
    kind: str,
    causal: bool,
    score: str,
    dtype: torch.dtype = torch.float64,
    normaliser: str = "softmax",
) -> None:
    """Outputs, gradients and weights, on both paths."""
    module, n, near = pattern
    shape = Shape(2, 3, n, n, 4)
    support, allowed = support_of(kind, n, causal)
    allowed &= by_own_length(module, support, near)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    tensors = inputs(shape, dtype)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    spoilt = {**tensors, **{name: tensors[name].masked_fill(unseen, torch.nan) for name in ("key", "value")}}
    dense, sparse = site(score, None, dtype, normaliser), site(score, module, dtype, normaliser)
    expected = run(dense, tensors, DenseSupport(allowed))
    for within in ([], [record(sparse, grad=True)]):
        found = run(sparse, spoilt, support, within=within)
        torch.testing.assert_close(found.context, expected.context, rtol=tolerance, atol=tolerance)
        for name, gradient in expected.gradients.items():
            largest = max(1.0, gradient.abs().max().item())  # a sum's rounding is that of its terms
            torch.testing.assert_close(found.gradients[name], gradient, rtol=0.0, atol=tolerance * largest)
        assert not found.context[~allowed.any(-1)].any()
    weights = weights_of(sparse, spoilt, support)
    narrow = module(tensors["query"], tensors["key"], support)
    assert isinstance(narrow, BlockSupport)
    torch.testing.assert_close(
        narrow.to_dense(weights, n, n), weights_of(dense, tensors, DenseSupport(allowed)), rtol=0.0, atol=tolerance
    )
    everything = narrow.permitted.expand(2, 3, -1)
    assert torch.equal(narrow.to_dense(everything.double(), n, n), allowed.double()), "each pair once"


@every_pattern
@pytest.mark.parametrize("causal", [False, True])
def test_equals_dense_attention_under_the_same_mask(name: str, causal: bool) -> None:
    for kind in KINDS:
        check(PATTERNS[name](causal), kind, causal, "scaled dot")


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", ["dilated and global", "bigbird", "swin shifted, odd"])
def test_every_score(name: str, score: str) -> None:
    check(PATTERNS[name](False), "key", False, score)
    check(PATTERNS[name](True), "none", True, score, torch.float32)


@pytest.mark.parametrize("normaliser", NORMALISERS)
@pytest.mark.parametrize("name", ["dilated and global", "swin shifted, odd"])
def test_every_normaliser(name: str, normaliser: str) -> None:
    check(PATTERNS[name](False), "key", False, "additive", torch.float64, normaliser)


@settings(max_examples=15)
@given(
    n=st.integers(1, 60),
    radius=st.integers(0, 20),
    dilation=st.integers(1, 4),
    global_tokens=st.integers(0, 4),
    kind=st.sampled_from(KINDS),
    causal=st.booleans(),
)
def test_any_window(n: int, radius: int, dilation: int, global_tokens: int, kind: str, causal: bool) -> None:
    check(sliding(n, radius, dilation, global_tokens), kind, causal, "scaled dot")


@settings(max_examples=8)
@given(
    n=st.integers(1, 40),
    block=st.integers(1, 6),
    first=st.integers(0, 2),
    near=st.integers(0, 2),
    drawn=st.integers(0, 3),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_big_bird(n: int, block: int, first: int, near: int, drawn: int, causal: bool, seed: int) -> None:
    check(big_bird(n, block, first, 2 * near + 1, drawn, causal, seed), "key", causal, "scaled dot")


@settings(max_examples=8)
@given(height=st.integers(1, 9), width=st.integers(1, 9), window=st.integers(1, 5), data=st.data())
def test_any_grid(height: int, width: int, window: int, data: st.DataObject) -> None:
    check(swin(height, width, window, data.draw(st.integers(0, window - 1))), "key", False, "scaled dot")


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize(
    "module",
    [
        SlidingWindow(radius=2),
        SlidingWindow(radius=1, dilation=2, global_tokens=3),
        BigBird(),
        ShiftedWindows(window=2),
    ],
)
def test_short_sequences(module: nn.Module, n: int) -> None:
    tensors = inputs(Shape(2, 3, n, n, 4))
    for score in ("scaled dot", "additive"):
        context = run(site(score, module), tensors, DenseSupport()).context
        assert context.shape == (2, 3, n, 5)
        torch.testing.assert_close(context, tensors["value"])


def test_a_window_wider_than_the_sequence_is_full_attention() -> None:
    tensors = inputs(Shape(2, 3, 50, 50, 4))
    wide = run(site("scaled dot", SlidingWindow(radius=10**9)), tensors, DenseSupport())
    assert_close(wide, run(site("scaled dot", None), tensors, DenseSupport()), 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Finite, zeros where there is no key, and close to double precision."""
    module, n, near = PATTERNS["dilated and global"](False)
    support, allowed = support_of("key", n, False)
    tensors = inputs(Shape(2, 3, n, n, 4), dtype)
    found = run(site("scaled dot", module, dtype), tensors, support)
    exact = run(site("scaled dot", None), {k: x.double() for k, x in tensors.items()}, DenseSupport(allowed & near))
    torch.testing.assert_close(found.context.double(), exact.context, rtol=0.05, atol=0.05)
    assert not found.context[0].any()
    assert all(gradient.isfinite().all() for gradient in found.gradients.values())


@pytest.mark.parametrize("make", [ALiBi, T5Bias, Shaw, TransformerXL, Rotary], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["dilated and global", "bigbird", "swin shifted, odd"])
def test_positions_are_those_of_the_sequence(make: type, name: str) -> None:
    """However the pairs are laid out."""
    module, n, near = PATTERNS[name](False)
    options = {"dim": {"dim": 4}, "heads": {"heads": 3}}
    takes = {"ALiBi": ["heads"], "T5Bias": ["heads"], "Shaw": ["dim"], "TransformerXL": ["dim", "heads"]}
    chosen = {k: v for each in takes.get(make.__name__, ["dim"]) for k, v in options[each].items()}
    support, allowed = support_of("key", n, False)
    tensors = inputs(Shape(2, 3, n, n, 4))
    tensors["value"] = tensors["value"][..., :4]
    runs = []
    for restrict, given_support in (
        (module, support),
        (None, DenseSupport(allowed & by_own_length(module, support, near))),
    ):
        attend = site("scaled dot", restrict)
        attend.set_position(make(**chosen).double())
        runs.append(run(attend.double(), tensors, given_support))
    assert_close(*runs, 1e-12)


@pytest.mark.parametrize("radius", [0, 3, 40])
@pytest.mark.parametrize(("dilation", "global_tokens"), [(1, 0), (2, 3)])
def test_a_decoder_with_a_cache_equals_the_full_pass(radius: int, dilation: int, global_tokens: int) -> None:
    module = SlidingWindow(radius=radius, dilation=dilation, global_tokens=global_tokens)
    for score in ("scaled dot", "additive"):
        attend, x = site(score, module), inputs(Shape(2, 3, 30, 30, 4))
        whole = run(attend, x, DenseSupport(causal=True)).context
        for start, stop in ((0, 1), (12, 13), (29, 30), (20, 27)):
            past = {
                "query": x["query"][:, :, start:stop],
                "key": x["key"][:, :, :stop],
                "value": x["value"][:, :, :stop],
            }
            step = run(attend, past, DenseSupport(causal=True)).context
            torch.testing.assert_close(step, whole[:, :, start:stop], rtol=0.0, atol=1e-12)


def test_a_step_reads_no_more_than_its_window() -> None:
    """Earlier keys are not read, even if they are NaN."""
    x = inputs(Shape(1, 3, 1, 500, 4))
    before = run(site("scaled dot", SlidingWindow(radius=7)), x, DenseSupport(causal=True)).context
    x["key"][:, :, :-8] = x["value"][:, :, :-8] = torch.nan
    assert torch.equal(run(site("scaled dot", SlidingWindow(radius=7)), x, DenseSupport(causal=True)).context, before)
    narrow = SlidingWindow(radius=7)(x["query"], x["key"], DenseSupport(causal=True))
    assert len(narrow.pairs()[0]) < 30


def test_random_blocks() -> None:
    """As many as asked for or as there are, none that is seen anyway, the same for a seed, all equally often."""
    n, count = 200, 40
    drawn = torch.zeros(count)
    for seed in range(100):
        linked = links_of(BigBird(block=5, global_blocks=2, random_blocks=3, seed=seed), n, False)
        assert all(len(blocks) == 3 for blocks in linked[2:])
        drawn[list(linked[20])] += 1
    assert linked == links_of(BigBird(block=5, global_blocks=2, random_blocks=3, seed=99), n, False)
    assert linked != links_of(BigBird(block=5, global_blocks=2, random_blocks=3, seed=0), n, False)
    free = [block for block in range(2, count) if abs(block - 20) > 1]
    assert drawn.sum() == drawn[free].sum() == 300
    share = 300 / len(free)
    assert (drawn[free] - share).abs().max() < 5 * math.sqrt(share)
    later = links_of(BigBird(block=5, global_blocks=2, random_blocks=3), n, True)
    assert [len(blocks) for blocks in later[2:8]] == [0, 0, 1, 2, 3, 3]
    assert all(max(blocks, default=-1) < own for own, blocks in enumerate(later))
    assert links_of(BigBird(block=5, global_blocks=2, random_blocks=3), 145, True) == later[:29]


@pytest.mark.parametrize("lengths", [(640, 704), (64, 700), (1, 40, 41, 130, 650), (0, 300, 700)])
@pytest.mark.parametrize("causal", [False, True])
def test_big_bird_does_not_depend_on_its_batch(lengths: tuple[int, ...], causal: bool) -> None:
    """Alone, and in batches that are padded to any length: the same context and gradients, on both paths."""
    n = max(lengths) + 3
    attend = site("scaled dot", BigBird(block=16, global_blocks=1, random_blocks=3))
    tensors = inputs(Shape(len(lengths), 3, n, n, 4))
    mask = torch.arange(n) < torch.tensor(lengths).unsqueeze(1)
    tensors["value"] = tensors["value"].masked_fill(~mask[:, None, :, None], torch.nan)

    def found(tensors: dict[str, Tensor], support: DenseSupport, real: Tensor) -> list[Tensor]:
        leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
        context = attend(leaves["query"], leaves["key"], leaves["value"], support)[0]
        context = context.masked_fill(~real[:, None, :, None], 0.0)
        return [context.detach(), *torch.autograd.grad(context.square().sum(), list(leaves.values()))]

    for within in (contextlib.nullcontext(), record(attend, grad=True)):
        with within:
            batch = found(tensors, DenseSupport.from_key_mask(mask, causal=causal), mask)
            for example, length in enumerate(lengths):
                one = {name: x[example : example + 1, :, :length] for name, x in tensors.items()}
                alone = found(one, DenseSupport(causal=causal), mask[example : example + 1, :length])
                for x, other in zip(batch, alone, strict=True):
                    torch.testing.assert_close(x[example : example + 1, :, :length], other, rtol=0.0, atol=1e-12)


def test_links_of_every_length_are_known_at_once() -> None:
    """A block more changes as few links as it must, and none is lost of those that a length has alone."""
    together = draw_links(range(20, 91), 2, 1, 3, 7, False)
    for count in range(20, 91):
        alone = draw_links([count], 2, 1, 3, 7, False)
        for own in range(count):
            valid = {link.to for link in together[own] if link.since <= count <= link.until}
            assert valid == {link.to for link in alone[own]}
            assert len(valid) == len(alone[own]) == 3
            assert not any(abs(to - own) <= 1 or to < 2 or to >= count for to in valid)
    assert sum(len(row) for row in together) / 90 < 3 * (1 + math.log(90 / 20))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_windows_equal_local_attention(causal: bool, masked: bool) -> None:
    peer = pytest.importorskip("local_attention").LocalAttention(
        16, causal=causal, look_backward=1, exact_windowsize=True, use_rotary_pos_emb=False
    )
    x = {name: each[..., :4] for name, each in inputs(Shape(2, 3, 96, 96, 4)).items()}
    mask = torch.arange(96) < torch.tensor([[96], [83]]) if masked else None
    support = DenseSupport(causal=causal) if mask is None else DenseSupport.from_key_mask(mask, causal)
    found = run(site("scaled dot", SlidingWindow(radius=16)), x, support).context
    expected = peer(x["query"], x["key"], x["value"], mask=mask)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("side", "shift"), [(8, 0), (8, 2), (12, 1), (4, 2)])
def test_shifted_windows_equal_torchvision(side: int, shift: int) -> None:
    transformer = pytest.importorskip("torchvision.models.swin_transformer")
    torch.manual_seed(0)
    layer = MultiheadAttention(
        dim=6,
        heads=2,
        attend=lambda dim, heads: Attention(ScaledDot(), Softmax(), restrict=ShiftedWindows(window=4, shift=shift)),
    ).double()
    x = torch.randn(2, side, side, 6, dtype=torch.float64)
    projections = layer.query, layer.key, layer.value
    expected = transformer.shifted_window_attention(
        x,
        torch.cat([each.weight for each in projections]),
        layer.out.weight,
        torch.zeros(1, 2, 16, 16, dtype=torch.float64),
        [4, 4],
        2,
        [shift, shift],
        qkv_bias=torch.cat([each.bias for each in projections]),
        proj_bias=layer.out.bias,
    )
    found, _ = layer(x.flatten(1, 2))
    torch.testing.assert_close(found, expected.flatten(1, 2), rtol=0.0, atol=1e-12)


def test_dilated_window_of_the_worked_example() -> None:
    """Two to each side with gap 2: i-4, i-2, i, i+2, i+4."""
    x = torch.zeros(1, 1, 20, 1)
    support = SlidingWindow(radius=2, dilation=2)(x, x, DenseSupport())
    seen = support.to_dense(support.permitted.float()[None, None], 20, 20)[0, 0, 10].nonzero().flatten()
    assert seen.tolist() == [6, 8, 10, 12, 14]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SlidingWindow(radius=-1), "radius"),
        (lambda: SlidingWindow(radius=1, dilation=0), "dilation"),
        (lambda: SlidingWindow(radius=1, global_tokens=-1), "global_tokens"),
        (lambda: BigBird(block=0), "block"),
        (lambda: BigBird(window_blocks=2), "odd"),
        (lambda: BigBird(random_blocks=-1), "random_blocks"),
        (lambda: ShiftedWindows(window=0), "window"),
        (lambda: ShiftedWindows(window=4, shift=4), "shift"),
        (lambda: ShiftedWindows(window=4, height=3), "height and width"),
        (lambda: run(site("dot", BigBird()), inputs(Shape()), DenseSupport()), "5 queries and 4 keys"),
        (lambda: run(site("dot", ShiftedWindows(window=2)), inputs(Shape()), DenseSupport()), "5 queries and 4 keys"),
        (lambda: run(site("dot", ShiftedWindows(window=2)), inputs(Shape(keys=5)), DenseSupport()), "not a grid"),
        (lambda: site("dot", SlidingWindow(radius=1)).check_layout(EdgeSupport, "a graph"), "SlidingWindow works on"),
    ],
)
def test_bad_input(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("length", [16, 61, 64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
def test_linked_blocks_in_parts(length: int, causal: bool, is_masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some blocks at a time: the context and the gradients of all at once."""
    shape = Shape(queries=length, keys=length)
    big_bird = BigBird(block=4, global_blocks=1, window_blocks=3, random_blocks=2)
    attend = Attention(ScaledDot(), Softmax(), restrict=big_bird)
    mask = torch.rand(shape.batch, 1, 1, length) < 0.7 if is_masked else None
    whole = run(attend, inputs(shape), DenseSupport(mask, causal=causal))
    monkeypatch.setattr("zoo.attention.kernels.fused_blocks._LARGEST", 0)
    monkeypatch.setattr(
        "zoo.attention.kernels.fused_blocks._PART", 3 * shape.batch * shape.heads * 24 * shape.width * 8
    )
    split = []
    monkeypatch.setattr("zoo.attention.kernels.fused_blocks._attend", counted(fused_blocks._attend, split))
    assert_close(run(attend, inputs(shape), DenseSupport(mask, causal=causal)), whole, 1e-12)
    assert len(split) > 2


def counted(function: Callable[..., Tensor], calls: list[None]) -> Callable[..., Tensor]:
    def called(*arguments: object) -> Tensor:
        calls.append(None)
        return function(*arguments)

    return called
