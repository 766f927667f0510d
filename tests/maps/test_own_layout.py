"""A layout of pairs that is defined here: attention, maps, scores, rollout and pictures work with it unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    Additive,
    ALiBi,
    Attention,
    AttentionFactory,
    Coverage,
    DenseSupport,
    EntropyPenalty,
    GuidanceCrossEntropy,
    HardReinforce,
    MultiheadAttention,
    RelativeBias2D,
    Restriction,
    Rotary,
    ScaledDot,
    Shaw,
    SlidingWindow,
    Softmax,
    Sparsemax,
    Support,
    T5Bias,
    Traits,
    TransformerXL,
    log_probability,
    record,
)
from zoo.maps import Writer, describe, diagnose, label_map, load, plots
from zoo.maps.metrics import truth
from zoo.maps.rollout import rollout
from zoo.tasks.vision import ViT
from zoo.tasks.vision.maps.heatmaps import heat
from zoo.tasks.vision.maps.map_labels import heads_over_picture

N = 9


@dataclass(frozen=True, eq=False)
class Links(Support):
    """Pairs (b,h,l), one list of links for all examples and heads; some examples lack some of them."""

    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "link")

    query: Tensor
    key: Tensor
    permitted: Tensor
    queries: int
    keys: int

    def zeros(self, query: Tensor, key: Tensor) -> Tensor:
        return query.new_zeros(*query.shape[:2], len(self.query))

    def dot(self, query: Tensor, key: Tensor) -> Tensor:
        return (self.gather_queries(query) * self.gather_keys(key)).sum(-1)

    def gather_queries(self, x: Tensor) -> Tensor:
        return x[:, :, self.query]

    def gather_keys(self, x: Tensor) -> Tensor:
        return x[:, :, self.key]

    def dot_parameter(self, hidden: Tensor, parameter: Tensor) -> Tensor:
        return (hidden * parameter.unsqueeze(1)).sum(-1)

    def apply_per_query(self, function: Callable[[Tensor, Tensor | None], Tensor], scores: Tensor) -> Tensor:
        laid = self._laid(torch.where(self.permitted, scores, 0.0))
        return function(laid, self.dense_mask(scores))[:, :, self.query, self.key]

    def combine(self, weights: Tensor, value: Tensor) -> Tensor:
        return self._sum(weights.unsqueeze(-1) * self.gather_keys(value), self.query, self.queries)

    def zero_masked(self, x: Tensor) -> Tensor:
        seen = self._sum(self.permitted.float(), self.key, self.keys) > 0
        return torch.where(seen.unsqueeze(-1), x, 0.0)

    def zero_blind_queries(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.where(self.sum_per_query(self.permitted.float()).unsqueeze(-1) > 0, query, 0.0)

    def relative_positions(self, query: Tensor, key: Tensor) -> Tensor:
        return (self.key - self.query)[None, None]

    def gather_rows(self, x: Tensor, index: Tensor) -> Tensor:
        return self.gather_queries(x).gather(-1, index.expand(*x.shape[:2], -1).unsqueeze(-1)).squeeze(-1)

    def scatter_add(self, pairs: Tensor, index: Tensor, bins: int) -> Tensor:
        return self._sum(pairs.unsqueeze(-1) * nn.functional.one_hot(index, bins), self.query, self.queries)

    def sizes(self, pairs: Tensor) -> tuple[int, int]:
        return self.queries, self.keys

    def exists(self, pairs: Tensor) -> Tensor:
        return self.permitted

    def sum_per_query(self, pairs: Tensor) -> Tensor:
        return self._sum(pairs, self.query, self.queries)

    def pairs(self) -> Tensor:
        return torch.stack([self.query, self.key])

    def to_dense(self, pairs: Tensor, queries: int, keys: int) -> Tensor:
        return self._laid(pairs * self.permitted)

    def select_example(self, index: int) -> Links:
        return replace(self, permitted=self.permitted[index : index + 1])

    def select_heads(self, heads: Sequence[int] | None) -> Links:
        return self

    def _laid(self, pairs: Tensor) -> Tensor:
        return self._sum(pairs, self.query * self.keys + self.key, self.queries * self.keys).unflatten(
            2, (self.queries, self.keys)
        )

    def _sum(self, x: Tensor, index: Tensor, count: int) -> Tensor:
        return x.new_zeros(*x.shape[:2], count, *x.shape[3:]).index_add(2, index, x)


class Near(Restriction):
    """Limits attention to keys at most two positions away, as links; the first position sees all."""

    traits = Traits(layouts=(DenseSupport,), output_layout=Links, content_based=False)

    def forward(self, query: Tensor, key: Tensor, support: DenseSupport) -> Links:
        queries, keys = query.shape[2], key.shape[2]
        at_query, at_key = near(queries, keys).nonzero(as_tuple=True)
        permitted = torch.ones(1, 1, queries, keys).bool() if support.permitted is None else support.permitted
        permitted = permitted.expand(len(query), 1, queries, keys)[:, :, at_query, at_key]
        return Links(at_query, at_key, permitted, queries, keys)


def near(queries: int, keys: int) -> Tensor:
    found = (torch.arange(queries)[:, None] - torch.arange(keys)).abs() <= 2
    found[0] = True
    return found


def inputs() -> tuple[Tensor, DenseSupport, DenseSupport]:
    """Returns queries, keys and values, the mask of a batch, and the pairs that links over it permit, as a matrix."""
    torch.manual_seed(0)
    mask = torch.ones(2, N).bool()
    mask[1, -3:] = False
    given = DenseSupport.from_key_mask(mask)
    return torch.randn(3, 2, 2, N, 4), given, DenseSupport(near(N, N) & mask[:, None, None])


POSITIONS: dict[str, Callable[[], nn.Module]] = {
    "alibi": lambda: ALiBi(heads=2),
    "t5": lambda: T5Bias(heads=2, buckets=8, distance=16),
    "grid": lambda: RelativeBias2D(heads=2, grid=(3, 3)),
    "shaw": lambda: Shaw(dim=4, distance=3),
    "xl": lambda: TransformerXL(dim=4, heads=2),
    "rotary": lambda: Rotary(dim=4),
}


@pytest.mark.parametrize("position", [None, *POSITIONS])
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_attention(score: str, position: str | None) -> None:
    if score == "additive" and position == "rotary":
        pytest.skip("refused: it depends on more than the angle")
    (query, key, value), given, dense = inputs()
    torch.manual_seed(1)
    scored = ScaledDot() if score == "dot" else Additive(dim=4, heads=2)
    own, whole = Attention(scored, Sparsemax(), restrict=Near()), Attention(scored, Sparsemax())
    if position is not None:
        placed = POSITIONS[position]()
        own.set_position(placed)
        whole.set_position(placed)
    with record(own) as found, record(whole) as expected:
        contexts = own(query, key, value, given)[0], whole(query, key, value, dense)[0]
    torch.testing.assert_close(*contexts)
    torch.testing.assert_close(found[""].dense(), expected[""].weights)
    assert torch.equal(found[""].pair_mask(), expected[""].pair_mask().expand(-1, 2, -1, -1))


def test_written_read_scored_drawn_and_said(tmp_path: Path) -> None:
    (query, key, value), given, dense = inputs()
    gold = torch.zeros(N, N).bool()
    gold[torch.arange(N), torch.arange(N).roll(1)] = True
    names = [f"t{position}" for position in range(6)]
    labels = {"query": names, "key": names}
    for each in ("each", "mean"):
        made = {}
        for name, support, restrict in (("own", given, Near()), ("whole", dense, None)):
            attend = Attention(ScaledDot(), Softmax(), restrict=restrict)
            with record(attend) as found:
                attend(query, key, value, support)
            folder = tmp_path / f"{name} {each}"
            with Writer(folder, model="own", layers=[""], heads=each) as writer:  # type: ignore[arg-type]
                writer.add("second", found, axis_labels=labels, gold=gold, index_in_batch=1)
            made[name] = load(folder)
        own, whole = (maps["second"][""] for maps in made.values())
        torch.testing.assert_close(own.weights, whole.weights)
        assert own.labels == whole.labels
        assert own.permitted is not None
        assert whole.permitted is not None
        assert torch.equal(own.permitted, whole.permitted.expand_as(own.permitted))
        measures = truth(own)
        assert measures == pytest.approx(truth(whole))
        assert 0 < measures["mass_on_gold"] < 1  # type: ignore[operator]
        frames = [maps.to_pandas() for maps in made.values()]
        assert len(frames[0]) == len(frames[1]) == int(own.permitted.expand_as(own.weights).sum())
        assert diagnose.table(own)["keys"].tolist() == diagnose.table(whole)["keys"].tolist()
        assert describe.describe(own, "t4") == describe.describe(whole, "t4")
        plots.save(plots.heat_map(own), tmp_path / "map.png")
        assert (tmp_path / "map.png").stat().st_size > 1000


def test_steps_of_a_decoder() -> None:
    query, key, value = inputs()[0]
    attend = Attention(ScaledDot(), Softmax(), restrict=Near())
    with record(attend) as found:
        for length in (4, 6, 5):
            attend(query[:, :, :1], key[:, :, :length], value[:, :, :length], DenseSupport())
    one = label_map(found[""], {}, index_in_batch=1)
    assert one.axes == ("head", "step", "key")
    assert one.permitted is not None
    assert one.permitted[0].sum(-1).tolist() == [4, 6, 5]
    torch.testing.assert_close(one.weights.sum(-1), torch.ones(2, 3))


def test_penalties_and_draws() -> None:
    (query, key, value), given, dense = inputs()
    site = Attention(ScaledDot(), HardReinforce(), restrict=Near()).eval()
    whole = Attention(ScaledDot(), HardReinforce()).eval()
    with record(site, grad=True) as found, record(whole, grad=True) as expected:
        site(query, key, value, given)
        whole(query, key, value, dense)
    torch.testing.assert_close(log_probability(found[""]), log_probability(expected[""]))
    one, other = EntropyPenalty()(found[""]), EntropyPenalty()(expected[""])
    torch.testing.assert_close(one.total, other.total)
    assert one.count == other.count
    gold = near(N, N) & (torch.arange(N) == 2)
    at = near(N, N).nonzero(as_tuple=True)
    guided = GuidanceCrossEntropy()
    torch.testing.assert_close(guided(found[""], gold[at]).total, guided(expected[""], gold).total)
    with pytest.raises(ValueError, match="needs a dense map"):
        Coverage()(found[""])


def test_rollout_and_heat_over_a_picture() -> None:
    """A ViT of 8 patches and a class token."""

    class Masked(Restriction):
        """The same pairs as a matrix."""

        traits = Traits(layouts=(DenseSupport,), output_layout=DenseSupport, content_based=False)

        def forward(self, query: Tensor, key: Tensor, support: DenseSupport) -> DenseSupport:
            return DenseSupport(near(query.shape[2], key.shape[2])[None, None])

    nets = []
    for restrict in (Near, Masked):
        torch.manual_seed(0)
        attend = AttentionFactory(score=ScaledDot, normalizer=Softmax, restrict=restrict)
        nets.append(
            ViT(
                attend=attend, channels=1, height=8, width=16, classes=3, patch=4, dim=8, heads=2, hidden=8, layers=3
            ).eval()
        )
    pixels = torch.randn(2, 1, 8, 16)
    for how in ("rollout", "gradient_rollout", "class_attention"):
        own, whole = (heat(net, pixels, how) for net in nets)  # type: ignore[arg-type]
        torch.testing.assert_close(own, whole)
        assert own.shape == (2, 2, 4)
    over = []
    for net in nets:
        with record(net) as found:
            net(pixels[:1])
        over.append([heads_over_picture(net, each, (8, 16)) for each in found.values()])
    torch.testing.assert_close(*over)


def test_rollout_of_what_was_recorded() -> None:
    torch.manual_seed(0)
    sites = nn.ModuleList(
        MultiheadAttention(dim=8, heads=2, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax, restrict=Near))
        for _ in range(2)
    )
    x = torch.randn(1, N, 8)
    with record(sites) as found:
        for site in sites:
            x = site(x)[0]
    first, last = (each.mean_heads().dense()[:, 0] for each in found.values())
    torch.testing.assert_close(
        rollout([first, last]), (0.5 * last + 0.5 * torch.eye(N)) @ (0.5 * first + 0.5 * torch.eye(N))
    )


@pytest.mark.parametrize("restrict", [None, SlidingWindow(radius=2)])
def test_a_recorded_head_has_its_own_mask(restrict: nn.Module | None) -> None:
    (query, key, value), _, _ = inputs()
    mask = torch.ones(2, 2, N, N).bool()
    mask[:, 1, :, -3:] = False
    attend = Attention(ScaledDot(), Softmax(), restrict=restrict)
    with record(attend, heads=[1]) as found:
        attend(query, key, value, DenseSupport(mask))
    permitted = found[""].pair_mask()
    assert permitted[..., :-3].any()
    assert not permitted[..., -3:].any()
    assert EntropyPenalty()(found[""]).count == int(permitted.any(-1).sum())
