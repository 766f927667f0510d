"""SASRec, compared with loops as in the authors' code, torch's layers and single users; causality; every mechanism."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import ALiBi, AttentionFactory, Learned, Rotary, ScaledDot, Shaw, Sinusoidal, Softmax, T5Bias, record
from zoo.config import plugins
from zoo.nn import packing
from zoo.nn.packing import Packing
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.models.sasrec import SASRec

ATTENTION = list(plugins.find_choices("attention").values())
SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
ITEMS, LENGTH = 11, 12
LENGTHS = [3, 12, 1, 7, 5]
EXACT = {"rtol": 0.0, "atol": 1e-12}
REFUSED = {
    "degree": "Degree works on EdgeSupport only; MultiheadAttention attends over DenseSupport",
    "linformer": "Linformer mixes all positions before a query sees them, and so cannot be causal",
    "none": "MultiheadAttention has nothing but attention to read with",
    "local_p": "LocalP predicts a position in the whole source, whose length is unknown in causal attention",
}


@pytest.fixture(autouse=True)
def _several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """These short histories are in more than one group."""
    monkeypatch.setattr(packing, "CALL_COST", 150)


def sasrec(**options: Any) -> SASRec:
    """Returns a net in float64, with norms and biases that are not trivial."""
    torch.manual_seed(1)
    given = {"attend": SOFTMAX, "dim": 8, "heads": 2, "layers": 2, "hidden": 6, "items": ITEMS, "length": LENGTH}
    net = SASRec(**(given | options)).double().eval()
    for name, parameter in net.named_parameters():
        if name.endswith("bias") or ".mixed." in name or ".fed." in name or name.startswith("norm."):
            nn.init.normal_(parameter, mean=0.5)
    return net


def histories(lengths: list[int] = LENGTHS, *, seed: int = 0, timed: bool = False) -> SequenceBatch:
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(0, ITEMS, (sum(lengths),), generator=generator)
    steps = torch.randint(0, 500, (sum(lengths),), generator=generator)
    return batch_of(items, lengths, torch.cat([each.cumsum(0) for each in steps.split(lengths)]) if timed else None)


def batch_of(items: Tensor, lengths: list[int], times: Tensor | None = None) -> SequenceBatch:
    users, none = len(lengths), torch.full((len(lengths),), -1)
    return SequenceBatch(
        items=items,
        lengths=torch.tensor(lengths),
        targets=items.roll(-1),
        held_out=none,
        seen=items[:0],
        seen_lengths=torch.zeros(users, dtype=torch.long),
        ids=tuple(str(user) for user in range(users)),
        splits=("",) * users,
        catalogue=Catalogue([str(item) for item in range(ITEMS)], None, torch.ones(ITEMS, dtype=torch.long)),
        times=times,
    )


def alone(batch: SequenceBatch) -> list[SequenceBatch]:
    lengths = batch.lengths.tolist()
    times = [None] * len(lengths) if batch.times is None else batch.times.split(lengths)
    return [batch_of(items, [len(items)], of) for items, of in zip(batch.items.split(lengths), times, strict=True)]


def by_loops(net: SASRec, items: list[int]) -> Tensor:
    """Computes one user as in the authors' code: a window that is padded at the start, and masks."""
    weights, dim, heads = dict(net.named_parameters()), net.items.embedding_dim, 2
    pad = LENGTH - len(items)
    rows = [torch.zeros(dim).double()] * pad
    rows += [weights["items.weight"][item] * math.sqrt(dim) for item in items]
    rows = [row + weights["position.vectors"][at] if at >= pad else row for at, row in enumerate(rows)]

    def norm(row: Tensor, name: str) -> Tensor:
        mean = row.sum() / dim
        variance = ((row - mean) ** 2).sum() / dim
        return weights[f"{name}.weight"] * (row - mean) / (variance + 1e-8) ** 0.5 + weights[f"{name}.bias"]

    def linear(row: Tensor, name: str) -> Tensor:
        return weights[f"{name}.weight"] @ row + weights[f"{name}.bias"]

    for number in range(len(net.layers)):
        layer = f"layers.{number}"
        queries = [norm(row, f"{layer}.mixed") for row in rows]
        after = list(rows)
        for t in range(pad, LENGTH):
            q, parts = linear(queries[t], f"{layer}.mixer.query"), []
            for head in torch.arange(dim).chunk(heads):
                seen = range(pad, t + 1)
                scores = [q[head] @ linear(rows[s], f"{layer}.mixer.key")[head] / len(head) ** 0.5 for s in seen]
                shares = torch.exp(torch.stack(scores))
                values = torch.stack([linear(rows[s], f"{layer}.mixer.value")[head] for s in seen])
                parts.append((shares / shares.sum()) @ values)
            fed = norm(torch.cat(parts) + queries[t], f"{layer}.fed")
            hidden = linear(fed, f"{layer}.feed_forward.expand").clamp(min=0.0)
            after[t] = linear(hidden, f"{layer}.feed_forward.contract") + fed
        rows = after
    return torch.stack([norm(row, "norm") for row in rows[pad:]])


def gradients(net: nn.Module, output: Tensor) -> dict[str, Tensor]:
    named = dict(net.named_parameters())
    weights = torch.linspace(-1.0, 1.0, output.numel(), dtype=output.dtype).view_as(output)
    found = torch.autograd.grad((output * weights).sum(), list(named.values()))
    return dict(zip(named, found, strict=True))


def test_loops_of_the_authors_code() -> None:
    net, batch = sasrec(), histories([3, 12, 1, 5])
    expected = torch.cat([by_loops(net, each.items.tolist()) for each in alone(batch)])
    output = net(batch)
    torch.testing.assert_close(output, expected, **EXACT)
    wanted = gradients(net, expected)
    for name, gradient in gradients(net, output).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
    torch.testing.assert_close(net.scores(output[:2]), output[:2] @ net.items.weight.T, **EXACT)
    some = torch.tensor([4, 4, 0])
    torch.testing.assert_close(net.scores(output[:2], some), output[:2] @ net.items.weight[some].T, **EXACT)


def padded(net: SASRec, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
    """Returns inputs (b, length, dim) with padding at the end, and the mask of real positions."""
    real = torch.arange(LENGTH) < batch.lengths[:, None]
    items = torch.zeros_like(real, dtype=torch.long).masked_scatter(real, batch.items)
    at = (LENGTH - batch.lengths[:, None] + torch.arange(LENGTH)).clamp(max=LENGTH - 1)
    return F.embedding(items, net.items.weight) * 8**0.5 + net.position.vectors[at], real


def test_the_paper_s_form_of_torch_s_layers() -> None:
    """nn.MultiheadAttention and convolutions of width one, as the PyTorch ports have them, without their W_O."""
    net, batch = sasrec(), histories()
    x, real = padded(net, batch)
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    for layer in net.layers:
        heads = nn.MultiheadAttention(8, 2, batch_first=True).double().eval()
        names = ("query", "key", "value")
        heads.in_proj_weight.data = torch.cat([layer.mixer.get_submodule(name).weight for name in names])
        heads.in_proj_bias.data = torch.cat([layer.mixer.get_submodule(name).bias for name in names])
        heads.out_proj.weight.data, heads.out_proj.bias.data = torch.eye(8).double(), torch.zeros(8).double()
        query = F.layer_norm(x, (8,), layer.mixed.weight, layer.mixed.bias, 1e-8)
        x = query + heads(query, x, x, attn_mask=later, need_weights=False)[0]
        x = F.layer_norm(x, (8,), layer.fed.weight, layer.fed.bias, 1e-8)
        expand, contract = layer.feed_forward.expand, layer.feed_forward.contract
        hidden = F.conv1d(x.mT, expand.weight.unsqueeze(-1), expand.bias).relu()
        x = x + F.conv1d(hidden, contract.weight.unsqueeze(-1), contract.bias).mT
    expected = F.layer_norm(x, (8,), net.norm.weight, net.norm.bias, 1e-8)[real]
    torch.testing.assert_close(net(batch), expected, **EXACT)


def test_the_usual_pre_norm_block_is_torch_s() -> None:
    net, batch = sasrec(norm="pre"), histories()
    x, real = padded(net, batch)
    for layer in net.layers:
        peer = nn.TransformerEncoderLayer(8, 2, 6, 0.0, layer_norm_eps=1e-8, batch_first=True, norm_first=True)
        mixer, forward = layer.mixer, layer.feed_forward
        names = ("query", "key", "value")
        peer.double().load_state_dict(
            {
                "self_attn.in_proj_weight": torch.cat([mixer.get_submodule(name).weight for name in names]),
                "self_attn.in_proj_bias": torch.cat([mixer.get_submodule(name).bias for name in names]),
                **{f"self_attn.out_proj.{name}": each for name, each in mixer.out.named_parameters()},
                **{f"linear1.{name}": each for name, each in forward.expand.named_parameters()},
                **{f"linear2.{name}": each for name, each in forward.contract.named_parameters()},
                **{f"norm1.{name}": each for name, each in layer.mixed.named_parameters()},
                **{f"norm2.{name}": each for name, each in layer.fed.named_parameters()},
            }
        )
        x = peer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(LENGTH).double(), is_causal=True)
    expected = F.layer_norm(x, (8,), net.norm.weight, net.norm.bias, 1e-8)[real]
    torch.testing.assert_close(net(batch), expected, **EXACT)


def mechanism(path: Path) -> Any:
    return instantiate(OmegaConf.load(path), _convert_="all")


@pytest.mark.parametrize("path", ATTENTION, ids=lambda path: path.stem)
def test_every_mechanism(path: Path) -> None:
    """A batch equals its single users, later items have no effect, and `last` is the last row; or it is refused."""
    if path.stem in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[path.stem]):
            sasrec(attend=mechanism(path))
        return
    net, batch = sasrec(attend=mechanism(path), layers=1), histories()
    assert [len(group.sequences) for group in Packing(batch.lengths, causal=True).groups] == [1, 2, 2]
    output = net(batch)
    assert all(gradient.isfinite().all() for gradient in gradients_or_zeros(net, output))
    torch.testing.assert_close(output, torch.cat([net(each) for each in alone(batch)]), **EXACT)
    torch.testing.assert_close(net.last(batch), output[batch.last], **EXACT)
    other = batch.items.clone()
    other[batch.last] = (other[batch.last] + 3) % ITEMS
    after = net(batch_of(other, LENGTHS))
    before = torch.ones(len(other), dtype=torch.bool).index_fill(0, batch.last, False)
    torch.testing.assert_close(after[before], output[before], **EXACT)
    assert not torch.allclose(after[~before], output[~before])
    with record(net) as maps:
        assert torch.equal(net(batch), output)
    site = "mixer" if "mixer" in mechanism(path).__dict__ else "mixer.attend"
    assert {*maps, *maps.silent} == {f"layers.0.{site}"}


def gradients_or_zeros(net: nn.Module, output: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(output.square().sum(), list(net.parameters()), allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.parametrize("relative", [Rotary, ALiBi, partial(T5Bias, causal=True, buckets=6, distance=9), Shaw])
@pytest.mark.parametrize("norm", ["paper", "pre"])
def test_relative_positions(relative: Any, norm: str) -> None:
    """Positions in the batch and later items have no effect; distances between items have one."""
    net, batch = sasrec(position=None, relative=relative, norm=norm), histories()
    output = net(batch)
    torch.testing.assert_close(net.last(batch), output[batch.last], **EXACT)
    shorter = batch.items.split(LENGTHS)[1][:9]
    torch.testing.assert_close(net(batch_of(shorter, [9])), output[3:12], **EXACT)
    swapped = shorter[[1, 0, *range(2, 9)]]
    assert not torch.allclose(net(batch_of(swapped, [9]))[8], output[11])


@pytest.mark.parametrize("position", [Learned, Sinusoidal])
def test_the_last_item_has_the_last_position(position: Any) -> None:
    net, batch = sasrec(position=position, layers=1), histories([4])
    x = net.items(batch.items) * 8**0.5
    at_end = net.position(torch.zeros(1, LENGTH, 8).double())[0, -4:]
    found = []
    net.layers[0].register_forward_hook(lambda _, given, __: found.append(given[0]))
    net(batch)
    torch.testing.assert_close(found[0], x + at_end, **EXACT)


def test_times_are_buckets_of_doubling_gaps() -> None:
    net = sasrec(time_buckets=5, position=None, layers=1)
    found = []
    net.layers[0].register_forward_hook(lambda _, given, __: found.append(given[0]))
    times = torch.tensor([100, 100, 101, 104, 110, 1110, 7, 8, 5])
    batch = batch_of(torch.zeros(9, dtype=torch.long), [6, 3], times)
    net(batch)
    expected = torch.tensor([0, 1, 2, 3, 3, 4, 0, 2, 1])  # 0, 1, 3, 6 and 1,000 seconds; 1 second, and back in time
    torch.testing.assert_close(found[0], net.items.weight[0] * 8**0.5 + net.gaps.weight[expected], **EXACT)
    timed = sasrec(time_buckets=5)
    batch = histories(timed=True)
    torch.testing.assert_close(timed(batch), torch.cat([timed(each) for each in alone(batch)]), **EXACT)
    with pytest.raises(ValueError, match="time_buckets needs the times of items, and there are none: leave it at 0"):
        net(histories())


def test_maps_of_one_user_and_of_a_group() -> None:
    net, batch = sasrec(), histories()
    with record(net) as maps:
        net(alone(batch)[1])
    assert [tuple(each.weights.shape) for each in maps.values()] == [(1, 2, 12, 12)] * 2
    group = Packing(batch.lengths, causal=True).groups[1]
    assert len(group.sequences) == 2
    users = [alone(batch)[user] for user in group.sequences]
    together = batch_of(torch.cat([user.items for user in users]), [len(user.items) for user in users])
    with record(net) as of_group:
        net(together)
    for row, user in enumerate(users):
        with record(net) as of_user:
            net(user)
        for site, each in of_user.items():
            size = len(user.items)
            torch.testing.assert_close(of_group[site].weights[row, :, :size, :size], each.weights[0], **EXACT)


def test_the_last_block_computes_what_is_read() -> None:
    net, batch, shapes = sasrec(), histories(), []
    for layer in net.layers:
        layer.feed_forward.register_forward_hook(lambda _, given, __: shapes.append(len(given[0])))
    with record(net) as maps:
        net.last(batch)
    assert shapes == [28, 5]
    assert maps["layers.0.mixer.attend"].weights.shape[-2:] == (12, 12)
    assert maps["layers.1.mixer.attend"].weights.shape[-2:] == (1, 12)


def test_initialised_as_the_authors_do() -> None:
    net = SASRec(items=300, length=40, attend=SOFTMAX, dim=50, time_buckets=4)
    for name, parameter in net.named_parameters():
        if parameter.dim() == 2:
            bound = math.sqrt(6.0 / sum(parameter.shape))
            assert 0.9 * bound < parameter.abs().max() <= bound, name
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float("bias" not in name))), name
    assert not any(name.startswith("layers.0.mixer.out") for name, _ in net.named_parameters())
    assert sum(each.numel() for each in net.parameters()) == 50 * 344 + 2 * (5 * 2550 + 200) + 100


def test_a_mixer_keeps_its_own_initialisation() -> None:
    made = sasrec(attend=mechanism(plugins.find_choices("attention")["recurrent"]), dim=64, heads=1)
    assert made.layers[0].mixer.out_ahead.weight.abs().max() <= 1 / 8  # torch's, where Glorot's bound is larger


def test_dropout_is_of_training() -> None:
    net, batch = sasrec(dropout=0.5), histories()
    assert torch.equal(net(batch), sasrec()(batch))
    net.train()
    torch.manual_seed(0)
    first = net(batch)
    assert not torch.allclose(first, net(batch))
    torch.manual_seed(0)
    assert torch.equal(first, net(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "post"}, "norm is 'paper' or 'pre', got 'post'"),
        ({"layers": 0}, "layers is to be a whole number of at least 1"),
        ({"time_buckets": 1}, "time_buckets must be 0 or at least 2"),
        ({"heads": 3}, "dim=8 is not divisible by heads=3"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sasrec(**options)


def test_a_history_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="a history of 13 items, and the model sees 12 at most"):
        sasrec()(histories([3, 13]))
