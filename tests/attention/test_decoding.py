"""Decoding by steps is the pass over all target positions, for every mechanism that may attend to a source."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from tiers import each_once
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.attention import (
    Additive,
    ALiBi,
    Attention,
    AttentionFactory,
    AttentionState,
    BigBird,
    Concat,
    Cosine,
    CoverageAware,
    DecoderBlock,
    DecoderState,
    DenseSupport,
    Dot,
    FeedForward,
    GatedRecurrent,
    Gaussian,
    General,
    KeyDropout,
    LatentPooling,
    LinearAttention,
    LinearState,
    Linformer,
    LocalM,
    LocalP,
    LocationAware,
    MechanismFactory,
    Monotonic,
    MonotonicChunkwise,
    MultiheadAttention,
    Performer,
    Pooling,
    PositionAware,
    Rotary,
    ScaledDot,
    ScorePair,
    Shaw,
    SlidingWindow,
    Softmax,
    Sparsemax,
    T5Bias,
    TransformerXL,
    record,
)
from zoo.config import plugins

EXACT = {"rtol": 0.0, "atol": 1e-12}
CONFIGS = list(plugins.find_choices("attention").values())
STEPS, KEYS, DIM = 6, 7, 12
LENGTHS = torch.tensor([7, 4, 1])
REFUSED = {
    "bigbird": "BigBird depends on the positions of queries and keys",
    "convolution": "DilatedConvolution replaces self-attention over a whole sequence",
    "degree": "Degree works on EdgeSupport only",
    "dilated": "SlidingWindow depends on the positions of queries and keys",
    "fourier": "FourierMixer replaces self-attention",
    "global_window": "SlidingWindow depends on the positions of queries and keys",
    "linear": "LinearAttention has no weights over a source",
    "none": "MultiheadAttention has nothing but attention to read with",
    "linformer": "Linformer has no weights",
    "performer": "Performer has no weights",
    "position_aware": "PositionAware depends on the distance between query and key",
    "recurrent": "GatedRecurrent replaces self-attention",
    "state_space": "replaces self-attention",
    "window": "SlidingWindow depends on the positions of queries and keys",
}


def two_scores(**options: Any) -> Callable[..., nn.Module]:
    return partial(ScorePair, monotonic=Additive, chunk=options.get("chunk", ScaledDot))


def factory(score: Any, normalizer: Any = Softmax, **options: Any) -> AttentionFactory:
    return AttentionFactory(score=score, normalizer=normalizer, **options)


MECHANISMS: dict[str, Any] = {
    "location": factory(partial(LocationAware, filters=3, kernel_size=3)),
    "location, sparsemax": factory(partial(LocationAware, filters=3, kernel_size=3), Sparsemax),
    "location, monotonic": factory(
        partial(LocationAware, filters=3, kernel_size=3), partial(Monotonic, offset=0.0, inference="expected")
    ),
    "coverage": factory(CoverageAware),
    "fertility": factory(partial(CoverageAware, fertility=2.0)),
    "monotonic": factory(Additive, partial(Monotonic, offset=0.0, inference="expected")),
    "monotonic, hard": factory(Additive, partial(Monotonic, offset=0.0)),
    "monotonic, advancing": factory(Additive, partial(Monotonic, offset=0.0, advance=1)),
    "mocha": factory(two_scores(), partial(MonotonicChunkwise, offset=0.0, chunk=3, inference="expected")),
    "mocha, hard": factory(two_scores(), partial(MonotonicChunkwise, offset=0.0)),
    "mocha, coverage": factory(
        two_scores(chunk=CoverageAware), partial(MonotonicChunkwise, offset=0.0, inference="expected")
    ),
    "local-m": factory(ScaledDot, restrict=partial(LocalM, radius=1)),
    "local-p": factory(ScaledDot, Gaussian, restrict=partial(LocalP, radius=2)),
    "dot": factory(Dot),
    "concat": factory(Concat),
}
REMEMBER = {
    name for name in MECHANISMS if name.split(",")[0] in ("location", "coverage", "fertility", "monotonic", "mocha")
}
ONE_BY_ONE = {name for name in REMEMBER if name.split(",")[0] in ("location", "coverage", "fertility")} | {
    "mocha, coverage"
}
DECODERS = ("coverage", "location", "location_window")
"""Files of conf/attention whose score depends on previous weights."""
ADMITTED = MECHANISMS | {f"conf: {path.stem}": path for path in CONFIGS if path.stem not in REFUSED}
every_mechanism = pytest.mark.parametrize("name", ADMITTED)
every_remembering = pytest.mark.parametrize("name", sorted(REMEMBER))


def mechanism(name: str) -> Any:
    found = ADMITTED[name]
    return instantiate(OmegaConf.load(found), _convert_="all") if isinstance(found, Path) else found


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def decoder(cross: Any, **options: Any) -> DecoderBlock:
    torch.manual_seed(0)
    made = DecoderBlock(
        dim=DIM,
        mixer=MultiheadAttention(dim=DIM, heads=2, attend=factory(ScaledDot), position=Rotary),
        cross=MultiheadAttention(dim=DIM, heads=2, attend=cross, **options),
        feed_forward=FeedForward(dim=DIM, width=DIM),
    )
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made.double().eval()


def padded() -> tuple[Tensor, DenseSupport]:
    """A source, NaN where it is padding."""
    real = torch.arange(KEYS) < LENGTHS[:, None]
    source = torch.where(real.unsqueeze(-1), draw(3, KEYS, DIM, seed=1), torch.nan)
    return source, DenseSupport.from_key_mask(real)


@every_mechanism
@pytest.mark.parametrize("cuts", [[1] * STEPS, [0, 2, 1, 3]])
def test_steps_are_the_pass_over_all_positions(name: str, cuts: list[int]) -> None:
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, DIM), padded()
    whole = block(x, source, source_support=seen)
    assert whole.isfinite().all()
    state, rows = block.start(source, seen), []
    for part in x.split(cuts, 1):
        row, state = block.step(part, state)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)
    assert state.position == STEPS
    torch.testing.assert_close(block(x, block.prepare(source, seen)), whole, **EXACT)


@every_mechanism
def test_padding_of_the_source_is_no_source(name: str) -> None:
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, DIM), padded()
    whole = block(x, source, source_support=seen)
    for row, own, of, length in zip(whole, x, source, LENGTHS, strict=True):
        torch.testing.assert_close(block(own[None], of[None, :length])[0], row, **EXACT)


@every_mechanism
def test_hypotheses_take_their_state_with_them(name: str) -> None:
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, DIM), padded()
    beams = torch.tensor([2, 0, 0, 1])
    _, state = block.step(x[:, :2], block.start(source, seen))
    moved = state.select(beams)
    assert isinstance(moved, DecoderState)
    rest, after = block.step(x[beams, 2:4], moved)
    last, _ = block.step(x[beams, 4:], after.select(torch.arange(4)))
    whole = block(x, source, source_support=seen)
    torch.testing.assert_close(torch.cat([rest, last], 1), whole[beams, 2:], **EXACT)


@each_once(name=ADMITTED.keys(), begun=[False, True])
def test_hypotheses_of_a_sentence_share_its_keys(name: str, begun: bool) -> None:
    """Steps of several hypotheses equal those of as many sentences with copied keys, through two selections."""
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, 4, DIM), padded()
    shared = block.start(source, seen)
    copied, held = shared, 1
    selections = [[[0] * 4] * 3, [[3, 3, 0], [1, 2, 0], [0, 0, 0]]]
    for number in range(STEPS):
        if number in (int(begun), 3):
            beams = torch.tensor(selections.pop(0))
            copied = copied.select((torch.arange(3)[:, None] * held + beams).flatten())
            shared, held = shared.reorder(beams), beams.shape[1]
        if number == 4:
            kept = torch.tensor([2, 0])
            copied = copied.select((kept[:, None] * held + torch.arange(held)).flatten())
            shared, x = shared.select(kept), x[kept]
        rows = x[:, number, :held].flatten(0, 1)[:, None]
        expected, copied = block.step(rows, copied)
        found, shared = block.step(rows, shared)
        torch.testing.assert_close(found, expected, **EXACT)
        assert len(shared.cross.key) == len(x)
    with pytest.raises(ValueError, match="share a source go on by one position at a time, not by 2"):
        block.step(rows.repeat(1, 2, 1), shared)


@every_remembering
def test_gradients_of_steps_are_those_of_the_pass(name: str) -> None:
    block, (source, seen) = decoder(mechanism(name)).train(), padded()
    x, source = draw(3, STEPS, DIM).requires_grad_(), source.nan_to_num().requires_grad_()
    for module in block.modules():
        if isinstance(module, Monotonic):
            module.noise = 0.0
    state, rows = block.start(source, seen), []
    for part in x.split(1, 1):
        row, state = block.step(part, state)
        rows.append(row)
    leaves = [x, source, *block.parameters()]
    found, wanted = (
        torch.autograd.grad(y.square().sum(), leaves) for y in (torch.cat(rows, 1), block(x, source, None, seen))
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_source_is_refused_to_what_cannot_attend_to_it(path: Path) -> None:
    """When the net is built, in one sentence."""
    made = instantiate(OmegaConf.load(path), _convert_="all")
    if path.stem not in REFUSED:
        assert decoder(made)(draw(1, 2, DIM), draw(1, 3, DIM)).isfinite().all()
        return
    with pytest.raises(ValueError, match=REFUSED[path.stem]) as refusal:
        decoder(made)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("position", [ALiBi, Rotary, Shaw, partial(T5Bias, distance=64), TransformerXL])
def test_positions_between_two_sequences_are_refused(position: Any) -> None:
    with pytest.raises(
        ValueError, match="depends on the distance between query and key, which exists only within one sequence"
    ):
        decoder(factory(ScaledDot), position=position)
    with pytest.raises(ValueError, match="LatentPooling attends from one sequence to another"):
        LatentPooling(dim=DIM, queries=2, heads=2, attend=placed(position))


def placed(position: Any) -> Callable[[int, int], Attention]:
    def make(dim: int, heads: int) -> Attention:
        attend = Attention(ScaledDot(), Softmax())
        asked = {"dim": dim, "heads": heads}
        target = position.func if isinstance(position, partial) else position
        names = target.__init__.__annotations__
        attend.set_position(position(**{name: size for name, size in asked.items() if name in names}))
        return attend

    return make


@pytest.mark.parametrize("restrict", [partial(SlidingWindow, radius=2), partial(BigBird, block=2)])
def test_pooling_in_a_window_is_refused(restrict: Any) -> None:
    """A learned query has no position: padding would move its window."""
    with pytest.raises(ValueError, match="which are those of one sequence; Pooling attends"):
        Pooling(dim=DIM, attend=factory(ScaledDot, restrict=restrict))


# What a mechanism says of itself


def site(name: str) -> Attention:
    torch.manual_seed(0)
    made = mechanism(name)(6, 2).double().eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    return draw(2, 2, STEPS, 6), draw(2, 2, KEYS, 6, seed=1), draw(2, 2, KEYS, 6, seed=2)


@every_mechanism
def test_whether_it_remembers(name: str) -> None:
    """The next query depends on what the queries before attended to, or does not."""
    attend, (query, key, value) = site(name), tensors()
    assert attend.is_stateful == (name in REMEMBER or name.removeprefix("conf: ") in ("monotonic", "mocha", *DECODERS))
    if attend.restrict is not None:
        return
    state = attend.start(query, key, DenseSupport())
    other = torch.softmax(draw(2, 2, 1, KEYS, seed=5), -1)
    later = AttentionState(other, 2.0 * other, other)
    first, second = (attend(query[:, :, :1], key, value, DenseSupport(), each)[0] for each in (state, later))
    assert torch.equal(first, second) != attend.is_stateful


@every_mechanism
def test_several_queries_are_steps(name: str) -> None:
    """In one call or one by one: the same contexts, the last weights, and a total that is their sum."""
    attend, (query, key, value) = site(name), tensors()
    assert attend.is_parallel == (name not in ONE_BY_ONE and name.removeprefix("conf: ") not in DECODERS)
    support = DenseSupport.from_key_mask(torch.arange(KEYS) < torch.tensor([[KEYS], [4]]))
    context, state = attend(query, key, value, support, attend.start(query, key, support))
    rows, one = [], attend.start(query, key, support)
    for number in range(STEPS):
        here = support.advance_to(number)
        row, one = attend(query[:, :, number : number + 1], key, value, here, one)
        rows.append(row)
    torch.testing.assert_close(context, torch.cat(rows, 2), **EXACT)
    for found, wanted in zip((state.weights, state.total), (one.weights, one.total), strict=True):
        assert found.shape == (2, 2, 1, KEYS)
        torch.testing.assert_close(found, wanted, **EXACT)


@every_remembering
def test_a_row_of_the_state_for_each_hypothesis(name: str) -> None:
    """Hypotheses that share their keys may be queries: each goes on from its own."""
    attend, (query, key, value) = site(name), tensors()
    states = [attend.start(query, key, DenseSupport())]
    for number in range(2):
        states.append(attend(query[:, :, number : number + 1], key, value, DenseSupport(), states[-1])[1])
    parts = [[getattr(state, part) for state in states[1:]] for part in ("weights", "total", "alignment")]
    rows = AttentionState(*(None if part[0] is None else torch.cat(part, 2) for part in parts))
    context, after = attend(query[:, :, 3:5], key, value, DenseSupport(), rows)
    for number, state in enumerate(states[1:]):
        row, own = attend(query[:, :, 3 + number : 4 + number], key, value, DenseSupport(), state)
        torch.testing.assert_close(context[:, :, number : number + 1], row, **EXACT)
        torch.testing.assert_close(after.total[:, :, number : number + 1], own.total, **EXACT)
    with pytest.raises(ValueError, match="the state is of 2 hypotheses, one query each, and there are 3 queries"):
        attend(query[:, :, :3], key, value, DenseSupport(), rows)


def test_a_score_refuses_to_take_every_query_for_the_first() -> None:
    attend, (query, key, _) = site("location"), tensors()
    with pytest.raises(
        ValueError, match=r"computes one step at a time.* has 1 row and there are 6 queries; call it for each step"
    ):
        attend.score(query, key, DenseSupport(), attend.start(query, key, DenseSupport()))


def test_keys_dropped_for_all_queries_are_dropped_for_all_steps_of_a_call() -> None:
    attend, (query, key, value) = site("location").train(), tensors()
    attend.dropout = KeyDropout(0.5)
    value = torch.eye(KEYS, dtype=torch.float64).expand(2, 2, -1, -1)
    context, _ = attend(query, key, value, DenseSupport(), attend.start(query, key, DenseSupport()))
    assert (context == 0).any()
    assert torch.equal(context == 0, (context == 0).all(2, keepdim=True).expand_as(context))


@every_mechanism
def test_a_recorder_changes_nothing_and_sees_all_steps(name: str) -> None:
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, DIM), padded()
    plain = block(x, source, source_support=seen)
    with record(block) as maps:
        assert torch.equal(block(x, source, source_support=seen), plain)
    found = maps["cross.attend"]
    assert found.axes[:3] == ("batch", "head", "query")
    assert found.weights.shape[2] == STEPS


# Steps of a sequence that attends to itself


@every_remembering
@pytest.mark.parametrize("cuts", [[1] * STEPS, [0, 2, 3, 1]])
def test_memory_of_attention_grows_with_the_keys(name: str, cuts: list[int]) -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(dim=DIM, heads=2, attend=mechanism(name)).double().eval()
    x, memory, rows = draw(2, STEPS, DIM), None, []
    whole, _ = layer(x, None, DenseSupport(causal=True))
    for part in x.split(cuts, 1):
        row, memory = layer.step(part, memory)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows, 1), whole, **EXACT)
    with pytest.raises(ValueError, match="begin with the first position and no memory"):
        layer.step(x[:, 3:], layer.prepare(x[:, :3]))


@pytest.mark.parametrize("options", [{"attend": factory(ScaledDot)}, {"attend": MechanismFactory(LinearAttention)}])
def test_a_step_does_not_see_ahead(options: dict[str, Any]) -> None:
    layer, x = MultiheadAttention(dim=DIM, heads=2, **options).double(), draw(2, 3, DIM)
    with pytest.raises(
        ValueError, match="the steps of MultiheadAttention are causal: their support must be causal too"
    ):
        layer.step(x, None, DenseSupport.from_key_mask(torch.ones(2, 3, dtype=torch.bool)))


@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (factory(ScaledDot, Gaussian, restrict=LocalP), "LocalP predicts a position in the whole source"),
        (MechanismFactory(partial(Linformer, length=9)), "Linformer mixes all positions"),
        (factory(ScaledDot, restrict=BigBird), "BigBird needs the whole sequence at once"),
    ],
)
def test_what_cannot_go_by_steps_says_so_at_the_first(attend: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MultiheadAttention(dim=DIM, heads=2, attend=attend).double().step(draw(1, 1, DIM))


@pytest.mark.parametrize("kind", [LinearAttention, Performer])
@pytest.mark.parametrize("position", [None, Rotary])
def test_linear_attention_keeps_sums(kind: Any, position: Any) -> None:
    """And no keys: also after a first part that was prepared, and with padding."""
    torch.manual_seed(0)
    layer = MultiheadAttention(dim=DIM, heads=2, attend=MechanismFactory(kind), position=position).double()
    x, real = draw(3, 6, DIM), torch.arange(6) >= torch.tensor([[0], [2], [4]])
    whole, _ = layer(x, None, DenseSupport.from_key_mask(real, causal=True))
    state: Any = layer.prepare(x[:, :2], DenseSupport.from_key_mask(real[:, :2]))
    for stop in range(3, 7):
        support = DenseSupport.from_key_mask(real[:, :stop], causal=True)
        row, state = layer.step(x[:, stop - 1 : stop], state, support)
        assert isinstance(state, LinearState)
        assert state.sums.numel() == layer.attend.size(6) * 7 * 6
        torch.testing.assert_close(row, whole[:, stop - 1 : stop], rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("name", ["location", "coverage"])
def test_a_forgotten_state_is_noticed(name: str) -> None:
    """One query of a source might be any step: it is not taken for the first."""
    layer = MultiheadAttention(dim=DIM, heads=2, attend=mechanism(name)).double()
    source, x = draw(2, KEYS, DIM), draw(2, 1, DIM)
    for given in (source, layer.prepare(source)):
        with pytest.raises(ValueError, match="Aware depends on previous weights: pass a state"):
            layer(x, given)
    _, memory = layer.attend_step(x, layer.prepare(source))
    assert memory.attention is not None


# Prepared once


@pytest.mark.parametrize(
    ("score", "position"), [(Cosine, None), (General, None), (Concat, None), (Cosine, Rotary), (Dot, Rotary)]
)
def test_nobody_can_forget_to_prepare(score: Any, position: Any) -> None:
    """Tensors are prepared by the call; what `read` takes is another type, which `prepare` alone makes."""
    attend, (query, key, value) = factory(score)(6, 2).double(), tensors()
    if position is not None:
        attend.set_position(position(dim=6))
    support = DenseSupport.from_key_mask(torch.arange(KEYS) < torch.tensor([[KEYS], [4]]))
    expected, _ = attend(query, key, value, support)
    torch.testing.assert_close(attend.read(query, attend.prepare(key, value, support))[0], expected, **EXACT)
    torch.testing.assert_close(
        attend.read(query, attend.prepare(key, value, DenseSupport()), support)[0], expected, **EXACT
    )
    if score is Cosine:
        longer, _ = attend(query, 3.0 * key, value, support)
        torch.testing.assert_close(longer, expected, **EXACT)
    with pytest.raises((TypeError, AttributeError)):
        attend(query, attend.prepare(key, value, support), value, support)


class Written(TorchDispatchMode):
    """The size of the largest floating-point tensor that an operation writes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in result if isinstance(result, tuple | list) else (result,):
            is_new = isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in given
            if is_new and x.is_floating_point():
                self.largest = max(self.largest, x.numel())
        return result


@pytest.mark.parametrize("name", ["dot", "location", "monotonic", "conf: additive", "conf: cosine", "conf: sparsemax"])
def test_a_step_copies_no_keys_to_clean_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block, x, (source, seen) = decoder(mechanism(name)), draw(3, STEPS, DIM), padded()
    state = block.start(source, seen)
    cleaned: list[tuple[int, ...]] = []
    clean = DenseSupport.zero_masked
    monkeypatch.setattr(DenseSupport, "zero_masked", lambda self, x: cleaned.append(x.shape) or clean(self, x))
    for part in x.split(1, 1):
        key, value = state.cross.key, state.cross.value
        _, state = block.step(part, state)
        assert state.cross.key is key
        assert state.cross.value is value
    assert not [shape for shape in cleaned if shape[2] == KEYS]


@pytest.mark.parametrize("restrict", [partial(SlidingWindow, radius=5), partial(SlidingWindow, radius=3, dilation=2)])
@pytest.mark.parametrize("masks", [False, True])
def test_a_step_in_a_window_reads_the_window(restrict: Any, masks: bool) -> None:
    keys = 600
    layer = MultiheadAttention(dim=DIM, heads=2, attend=factory(ScaledDot, restrict=restrict)).double()
    x, real = draw(2, keys + 1, DIM), torch.arange(keys + 1) >= torch.tensor([[0], [40]])
    support = DenseSupport.from_key_mask(real, causal=True) if masks else DenseSupport(causal=True)
    whole, _ = layer(x, None, support)
    with torch.no_grad():
        memory = layer.extend(layer.prepare(x[:, : keys - 1]), x[:, keys - 1 : keys])
        with Written() as written:
            row, _ = layer.step(x[:, keys:], memory, support)
    torch.testing.assert_close(row, whole[:, keys:], **EXACT)
    assert written.largest <= 2 * 8 * DIM


def test_a_mixer_in_a_decoder() -> None:
    """Its own state stands where a memory would, and follows its hypotheses."""
    block = decoder(factory(CoverageAware))
    block.mixer = GatedRecurrent(dim=DIM).double()
    x, (source, seen) = draw(3, STEPS, DIM), padded()
    whole, beams = block(x, source, source_support=seen), torch.tensor([1, 1, 2])
    _, state = block.step(x[:, :3], block.start(source, seen))
    rest, _ = block.step(x[beams, 3:], state.select(beams))
    torch.testing.assert_close(rest, whole[beams, 3:], **EXACT)
    assert block.start(source, seen).select(beams).own is None


def test_scores_with_positions_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match="PositionAware depends on the distance"):
        decoder(factory(PositionAware))
