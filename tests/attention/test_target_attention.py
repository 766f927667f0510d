"""Target attention: DIN's activation unit, its weights that are not normalised, and Dice."""

from __future__ import annotations

import pytest
import torch
from attention_cases import DTYPES, Shape, assert_same, complete, inputs, masked, run
from torch import Tensor, nn

from zoo.attention import (
    ActivationUnit,
    Attention,
    AttentionFactory,
    DenseSupport,
    Dice,
    Softmax,
    TargetAttention,
    Unnormalized,
    record,
)

ACTIVATIONS = {"prelu": nn.PReLU, "dice": Dice}
every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
SHAPE = Shape()


def site(activation: str = "prelu") -> Attention:
    torch.default_generator.manual_seed(0)
    unit = ActivationUnit(dim=6, hidden=(5, 3), activation=ACTIVATIONS[activation])
    for layer in unit.modules():
        if isinstance(layer, Dice):
            nn.init.normal_(layer.alpha)
            nn.init.uniform_(layer.norm.running_var)
            nn.init.normal_(layer.norm.running_mean)
    return Attention(unit, Unnormalized()).double().eval()


def activation_unit(unit: ActivationUnit, q: Tensor, k: Tensor) -> Tensor:
    """The network on one pair, its input written out."""
    x = unit.first(torch.cat([q, k, q - k, q * k]))
    for layer in unit.rest:
        if isinstance(layer, nn.Linear):
            x = layer.weight @ x + layer.bias
        elif isinstance(layer, nn.PReLU):
            x = torch.where(x > 0, x, layer.weight * x)
        else:
            p = 1 / (1 + torch.exp(-(x - layer.norm.running_mean) / (layer.norm.running_var + 1e-8).sqrt()))
            x = p * x + (1 - p) * layer.alpha * x
    return x[0]


def reference(attend: Attention, tensors: dict[str, Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Zhou et al. 2018, eq. 3: sum_j a(e_j, v) e_j."""
    weights = torch.zeros(allowed.shape, dtype=torch.float64)
    weights = torch.stack(
        [
            activation_unit(attend.score, tensors["query"][b, h, i], tensors["key"][b, h, j]) * allowed[b, h, i, j]
            for b, h, i, j in torch.cartesian_prod(*(torch.arange(size) for size in allowed.shape)).tolist()
        ]
    ).view(allowed.shape)
    return torch.einsum("bhqk,bhkv->bhqv", weights, tensors["value"]), weights


@every_activation
@pytest.mark.parametrize("kind", ["none", "key", "causal+any"])
def test_formula(activation: str, kind: str) -> None:
    attend, tensors = site(activation), inputs(SHAPE)
    support, allowed = masked(kind, SHAPE)
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    expected, weights = reference(attend, leaves, allowed)
    named = {**leaves, **dict(attend.named_parameters())}
    gradients = torch.autograd.grad((expected + 0.5 * expected.square()).sum(), list(named.values()))
    with record(attend) as maps:
        found = run(attend, tensors, support)
    torch.testing.assert_close(found.context, expected.detach(), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(maps[""].weights, weights.detach(), rtol=0.0, atol=1e-12)
    for name, gradient in zip(named, gradients, strict=True):
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-11, atol=1e-11)
    single = run(attend.float(), {name: x.float() for name, x in tensors.items()}, support)
    torch.testing.assert_close(single.context.double(), expected.detach(), rtol=1e-5, atol=1e-5)


@every_activation
@pytest.mark.parametrize("kind", ["key", "causal+any"])
def test_empty_rows_and_padding(activation: str, kind: str) -> None:
    support, allowed = masked(kind, SHAPE)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    for dtype in DTYPES:
        attend, tensors = site(activation).to(dtype), inputs(SHAPE, dtype)
        before = run(attend, tensors, support)
        assert not before.context[~allowed.any(-1)].any()
        assert all(gradient.isfinite().all() for gradient in before.gradients.values())
        junk = {name: torch.where(unseen, torch.nan, tensors[name]) for name in ("key", "value")}
        assert_same(before, run(attend, {**tensors, **junk}, support))


def test_weights_need_not_sum_to_one() -> None:
    """Twice the history, twice the interest; a softmax would forget how long it was."""
    attend, tensors = site(), inputs(SHAPE)
    twice = {name: x if name == "query" else torch.cat([x, x], 2) for name, x in tensors.items()}
    once, doubled = (attend(**each, support=DenseSupport())[0] for each in (tensors, twice))
    torch.testing.assert_close(doubled, 2.0 * once)


def test_over_edges() -> None:
    attend, tensors = site(), inputs(SHAPE._replace(batch=1))
    dense, _ = attend(**tensors, support=DenseSupport())
    support = complete(SHAPE.queries, SHAPE.keys)
    over, _ = attend(**{name: x[0].transpose(0, 1) for name, x in tensors.items()}, support=support)
    torch.testing.assert_close(over.transpose(0, 1).unsqueeze(0), dense)


def test_dice() -> None:
    """The batch's statistics in training, their running averages in evaluation."""
    torch.manual_seed(0)
    dice = Dice(3).double()
    nn.init.normal_(dice.alpha)
    x = torch.randn(50, 3, dtype=torch.float64) * 2.0 + 1.0
    standard = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-8).sqrt()
    p = torch.sigmoid(standard)
    torch.testing.assert_close(dice(x), p * x + (1.0 - p) * dice.alpha * x, rtol=0.0, atol=1e-12)
    for _ in range(200):
        dice(x)
    torch.testing.assert_close(dice.eval()(x), dice.train()(x), rtol=0.05, atol=0.05)
    with torch.no_grad():
        dice.alpha.fill_(1.0)
    torch.testing.assert_close(dice(x), x)


def test_candidates_and_history() -> None:
    """Many candidates at once are each as if alone."""
    torch.manual_seed(0)
    net = TargetAttention(dim=6, hidden=(5,)).double()
    candidates, history = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
    support = DenseSupport.from_key_mask(torch.tensor([[True, True, False, False], [False] * 4]))
    together = net(candidates, history, support)
    for number in range(3):
        torch.testing.assert_close(net(candidates[:, number : number + 1], history, support)[:, 0], together[:, number])
    expected = sum(activation_unit(net.attend.score, candidates[0, 0], history[0, j]) * history[0, j] for j in range(2))
    torch.testing.assert_close(together[0, 0], expected)
    assert not together[1].any()
    assert net(candidates, history[:, :0]).shape == (2, 3, 6)
    assert not net(candidates, history[:, :0]).any()
    normalised = TargetAttention(dim=6, normalizer=Softmax)
    with record(normalised) as maps:
        normalised(candidates.float(), history.float())
    torch.testing.assert_close(maps["attend"].weights.sum(-1), torch.ones(2, 1, 3))


def test_from_a_factory_and_bad_options() -> None:
    attend = AttentionFactory(score=ActivationUnit, normalizer=Unnormalized)(6, 3)
    assert attend(**inputs(SHAPE, torch.float32), support=DenseSupport())[0].shape == (2, 3, 5, 7)
    with pytest.raises(ValueError, match="hidden needs the width of at least one layer"):
        ActivationUnit(dim=4, hidden=())
