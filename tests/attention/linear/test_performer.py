"""The Performer's features: what they estimate, how well, how they are drawn, and when they are drawn anew."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from attention_cases import Shape, inputs
from torch import Tensor

from zoo.attention import DenseSupport, MechanismFactory, MultiheadAttention, Performer, record, sites
from zoo.attention.linear import kernel_attention


def drawn(dim: int, heads: int, features: int, seed: int = 0) -> Performer:
    torch.default_generator.manual_seed(seed)
    return Performer(dim=dim, heads=heads, features=features).double()


def quiet(shape: Shape) -> dict[str, Tensor]:
    """Queries and keys whose norms leave the estimate a small variance."""
    tensors = inputs(shape)
    return {**tensors, "query": 0.5 * tensors["query"], "key": 0.5 * tensors["key"]}


def estimate(attend: Performer, query: Tensor, key: Tensor) -> Tensor:
    """phi(q) · phi(k) by lemma 1 of the paper, from the vectors that were drawn; not normalised."""
    features = []
    for x in (query / query.shape[-1] ** 0.25, key / key.shape[-1] ** 0.25):
        products = x @ attend.directions.mT
        features.append((products - x.square().sum(-1, keepdim=True) / 2.0).exp())
    return features[0] @ features[1].mT / attend.directions.shape[1]


def test_the_estimate_is_unbiased() -> None:
    """E[phi(q) · phi(k)] = exp(q · k / sqrt(d)), within four standard errors over 4,000 independent draws."""
    query, key, _ = quiet(Shape(1, 1, 3, 3, 4)).values()
    attend = drawn(4, 4000, 8)
    draws = estimate(attend, query, key)[0]  # every head is a draw
    error = draws.std(0) / math.sqrt(len(draws))
    expected = (query[0, 0] @ key[0, 0].T / 2.0).exp()
    assert (error < 0.1 * expected).all()
    assert ((draws.mean(0) - expected).abs() < 4.0 * error).all()


def test_the_error_falls_as_the_root_of_the_number_of_features() -> None:
    shape = Shape(1, 32, 16, 32, 8)
    tensors = quiet(shape)
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors.values())
    counts, errors = (16, 32, 64, 128, 256, 512, 1024), []
    for count in counts:
        found = [drawn(8, 32, count, seed)(**tensors, support=DenseSupport())[0] for seed in range(4)]
        errors.append(torch.stack([(x - expected).square().mean() for x in found]).mean().sqrt().item())
    x = torch.tensor(counts).double().log()
    y = torch.tensor(errors).log().double()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    assert -0.65 < slope < -0.35, (slope, errors)
    assert errors[-1] < 0.1


@pytest.mark.parametrize(("features", "dim"), [(20, 8), (8, 8), (5, 8), (3, 1)])
def test_directions_are_orthogonal_in_blocks(features: int, dim: int) -> None:
    directions = drawn(dim, 3, features).directions
    assert directions.shape == (3, features, dim)
    for head in directions:
        for start in range(0, features, dim):
            block = head[start : start + dim]
            products = block @ block.T
            torch.testing.assert_close(products, torch.diag(products.diagonal()), rtol=0.0, atol=1e-5)


def test_directions_are_gaussian_one_by_one() -> None:
    """Norms of chi(d), independent of one another, and no preferred direction."""
    dim = 6
    directions = drawn(dim, 2000, dim).directions
    squares = directions.square().sum(-1)
    assert squares.mean().item() == pytest.approx(dim, rel=0.03)
    assert squares.var().item() == pytest.approx(2 * dim, rel=0.08)
    correlation = torch.corrcoef(squares.T) - torch.eye(dim)
    assert correlation.abs().max() < 0.1
    flat = directions.flatten(0, 1)
    assert flat.mean(0).abs().max() < 0.05
    torch.testing.assert_close(flat.T @ flat / len(flat), torch.eye(dim).double(), rtol=0.0, atol=0.05)
    first = directions[:, 0]  # QR without its signs put right turns the first of a block to one side
    assert first.mean(0).abs().max() < 0.12


def test_implied_weights_near_softmax() -> None:
    """With many features the map that is implied is that of softmax, causal too."""
    tensors = quiet(Shape(1, 2, 6, 6, 4))
    attend = drawn(4, 2, 40_000)
    support = DenseSupport(causal=True)
    with record(attend, implied=True) as maps:
        attend(**tensors, support=support)
    scores = tensors["query"] @ tensors["key"].mT / 2.0
    expected = support.softmax(scores)
    torch.testing.assert_close(maps[""].weights, expected, rtol=0.0, atol=0.03)


def test_redrawing() -> None:
    attend = drawn(4, 2, 8)
    before, state = attend.directions.clone(), torch.get_rng_state()
    attend.redraw()
    assert not torch.equal(attend.directions, before)
    assert torch.equal(torch.get_rng_state(), state)  # training's randomness is not touched


def test_redrawing_every_so_many_passes_of_training() -> None:
    torch.default_generator.manual_seed(0)
    attend = Performer(dim=4, heads=2, features=8, redraw_every=3)
    tensors = inputs(Shape(1, 2, 3, 3, 4), torch.float32)
    seen = []
    for step in range(9):
        attend.train()
        attend(**tensors, support=DenseSupport())
        seen.append(attend.directions.clone())
        attend.eval()
        attend(**tensors, support=DenseSupport())
        assert torch.equal(attend.directions, seen[step])
    changed = [step for step in range(1, 9) if not torch.equal(seen[step], seen[step - 1])]
    assert changed == [3, 6]


def test_redrawing_before_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass recomputes the features of its own forward pass, not the redrawn ones."""
    attend, tensors = drawn(4, 2, 8), inputs(Shape(1, 2, 9, 9, 4))
    gradients = []
    for redraw in (False, True):
        monkeypatch.setattr(kernel_attention, "_BLOCK", 2)
        monkeypatch.setattr(kernel_attention, "_LARGEST", 0)
        monkeypatch.setattr(kernel_attention, "_PART", 0)
        leaves = [x.clone().requires_grad_() for x in tensors.values()]
        context, _ = attend(*leaves, DenseSupport())
        if redraw:
            attend.redraw()
        gradients.append(torch.autograd.grad(context.square().sum(), leaves))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_continues_the_same_features() -> None:
    """Features, what comes after them, and how long until then."""
    tensors = inputs(Shape(1, 2, 3, 3, 4), torch.float32)
    models = []
    for seed in (1, 2):
        torch.default_generator.manual_seed(seed)
        models.append(Performer(dim=4, heads=2, features=8, redraw_every=3))
    one, other = models
    for _ in range(2):
        one(**tensors, support=DenseSupport())
    other.load_state_dict(one.state_dict())
    for _ in range(5):
        assert torch.equal(one(**tensors, support=DenseSupport())[0], other(**tensors, support=DenseSupport())[0])
    assert torch.equal(copy.deepcopy(one).directions, pickle.loads(pickle.dumps(other)).directions)


def test_heads_and_layers_have_features_of_their_own() -> None:
    torch.default_generator.manual_seed(0)
    factory = MechanismFactory(site=Performer)
    layers = torch.nn.ModuleList(MultiheadAttention(dim=8, heads=2, attend=factory) for _ in range(2))
    assert len(sites(layers)) == 2
    all_directions = torch.cat([layer.attend.directions for layer in layers])
    assert len(torch.unique(all_directions, dim=0)) == 4


def test_on_meta() -> None:
    with torch.device("meta"):
        attend = Performer(dim=4, heads=2)
    attend.to_empty(device="cpu").reset_parameters()
    assert attend.directions.isfinite().all()
    assert attend.directions.any()


def test_gradients() -> None:
    for causal in (False, True):
        attend, tensors = drawn(3, 2, 7), inputs(Shape(1, 2, 4, 4, 3))
        leaves = [x.requires_grad_() for x in tensors.values()]
        support = DenseSupport(causal=causal)
        assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, support)[0], leaves)  # noqa: B023


def test_a_loud_key_among_quiet_ones_in_half_precision() -> None:
    """Without the maximum of each feature the quiet keys' features vanish, and with them a causal query's only keys."""
    attend = drawn(8, 1, 64).to(torch.bfloat16)
    query, key, value = inputs(Shape(1, 1, 50, 50, 8), torch.bfloat16).values()
    key[:, :, -1] *= 20.0
    for causal in (False, True):
        context, _ = attend(query, key, value, DenseSupport(causal=causal))
        assert context.isfinite().all()
        assert context.any(-1).all()
    torch.testing.assert_close(context[:, :, 0], value[:, :, 0])  # the first query has one key


def test_against_the_peer() -> None:
    """performer-pytorch adds 1e-4 to every feature; with its features transplanted the rest agrees."""
    peer = pytest.importorskip("performer_pytorch")
    attend = drawn(8, 3, 64)
    tensors = quiet(Shape(2, 3, 9, 7, 8))
    fast = peer.FastAttention(dim_heads=8, nb_features=64).double()
    for head in range(3):
        fast.projection_matrix.copy_(attend.directions[head])
        expected = fast(*(x[:, head : head + 1] for x in tensors.values()))
        found, _ = attend(**tensors, support=DenseSupport())
        torch.testing.assert_close(found[:, head : head + 1], expected, rtol=0.0, atol=5e-3)
    module = pytest.importorskip("performer_pytorch.performer_pytorch")
    query, key, value = (x[:, :1] for x in tensors.values())
    of_query = module.softmax_kernel(query, projection_matrix=attend.directions[0], is_query=True, eps=0.0)
    of_key = module.softmax_kernel(key, projection_matrix=attend.directions[0], is_query=False, eps=0.0)
    expected = module.linear_attention(of_query, of_key, value)
    torch.testing.assert_close(found[:, :1], expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("option", ["features", "redraw_every"])
def test_bad_options(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is to be a whole number of at least 1"):
        Performer(dim=4, heads=2, **{option: 0})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("loudness", [3.0, 30.0, 1000.0])
@pytest.mark.parametrize("is_loud_later", [False, True])
def test_later_keys_do_not_reach_back(
    dtype: torch.dtype, loudness: float, is_loud_later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the keys that come later are, in the same block or another: nothing before is rounded anew."""
    monkeypatch.setattr(kernel_attention, "_BLOCK", 16)
    attend, tensors = drawn(8, 2, 32).to(dtype), inputs(Shape(2, 2, 50, 50, 8), dtype)
    tensors["key"] *= 1.0 if is_loud_later else loudness
    mask = torch.rand(2, 50, generator=torch.Generator().manual_seed(0)) < 0.8
    for support in (DenseSupport(causal=True), DenseSupport.from_key_mask(mask, causal=True)):
        with record(attend, implied=True) as maps:
            before = attend(**tensors, support=support)[0]
        for start in (1, 20, 32, 49):
            later = {name: x.clone() for name, x in tensors.items()}
            later["key"][:, :, start:] *= loudness if is_loud_later else 1.0 / loudness
            with record(attend, implied=True) as others:
                after = attend(**later, support=support)[0]
            assert torch.equal(after[:, :, :start], before[:, :, :start])
            assert torch.equal(others[""].weights[:, :, :start], maps[""].weights[:, :, :start])
            assert after.isfinite().all()


@pytest.mark.parametrize("loudness", [1.0, 5.0])
def test_causal_rows_are_passes_over_their_own_keys(loudness: float) -> None:
    attend, tensors = drawn(8, 2, 32), inputs(Shape(1, 2, 150, 150, 8))
    tensors["key"] *= loudness
    whole = attend(**tensors, support=DenseSupport(causal=True))[0]
    for row in (0, 1, 127, 128, 149):
        one = attend(
            tensors["query"][:, :, row : row + 1],
            tensors["key"][:, :, : row + 1],
            tensors["value"][:, :, : row + 1],
            DenseSupport(),
        )[0]
        torch.testing.assert_close(whole[:, :, row : row + 1], one, rtol=1e-9, atol=1e-9)
