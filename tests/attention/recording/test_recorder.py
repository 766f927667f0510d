"""The recorder: which sites, heads and bytes it takes, how it names them, and that it leaves nothing open."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import pytest
import torch
from largest import Largest
from torch import Tensor, nn

from zoo.attention import (
    GAT,
    Attention,
    AttentionFactory,
    AttentionProbe,
    DenseSupport,
    EdgeSupport,
    LocalM,
    MultiheadAttention,
    Rows,
    ScaledDot,
    SlidingWindow,
    Softmax,
    Uniform,
    record,
    sites,
)


class Layer(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        factory = AttentionFactory(score=ScaledDot, normalizer=Softmax)
        self.attention = MultiheadAttention(dim=8, heads=heads, attend=factory)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x)[0]


class Net(nn.Module):
    def __init__(self, layers: int = 3, heads: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(heads) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


NAMES = [f"layers.{i}.attention.attend" for i in range(3)]
BYTES = 4 * 3 * 2 * 5 * 5  # one site's weights


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 5, 8)


def probes(model: nn.Module) -> list[AttentionProbe]:
    return [module for module in model.modules() if isinstance(module, AttentionProbe)]


def assert_closed(model: nn.Module) -> None:
    assert not any(probe.is_open or probe.wants_gradient or probe._sinks for probe in probes(model))


def test_maps_have_the_names_of_their_modules(net: Net, x: Tensor) -> None:
    with record(net) as maps:
        net(x)
    assert list(maps) == NAMES
    assert len(maps) == 3
    for name, each in maps.items():
        assert each.site == name
        assert each.axes == ("batch", "head", "query", "key")
        assert each.heads == (0, 1)
        assert each.weights.shape == (3, 2, 5, 5)
        assert each.nbytes == BYTES
        assert isinstance(each.support, DenseSupport)
    assert maps.used == 3 * BYTES
    assert not maps.cut


@pytest.mark.parametrize(
    "wrap",
    [
        lambda net: torch.compile(net, backend="eager"),
        nn.DataParallel,
        lambda n: nn.DataParallel(torch.compile(n, backend="eager")),
    ],
)
def test_names_are_without_what_wrappers_add(net: Net, wrap: Any) -> None:
    assert list(sites(wrap(net))) == NAMES


def test_a_site_alone_has_no_name() -> None:
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 1, 2, 3)
    with record(attend) as maps:
        attend(x, x, x, DenseSupport())
    assert list(maps) == [""]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([0], [0]),
        ([-1], [2]),
        ([2, 0, -2], [0, 1, 2]),  # in the order of the model
        ([2, 0], [0, 2]),
        (["layers.1.*"], [1]),
        (["*attend"], [0, 1, 2]),
        (["layers.[02].*", 0], [0, 2]),
        ([], []),
    ],
)
def test_chosen_layers(net: Net, x: Tensor, layers: list[int | str], expected: list[int]) -> None:
    with record(net, layers=layers) as maps:
        net(x)
    assert list(maps) == [NAMES[i] for i in expected]


@pytest.mark.parametrize("layer", [3, -4, "decoder.*"])
def test_a_layer_that_is_not_there_is_refused(net: Net, layer: int | str) -> None:
    message = r"no number|no attention site is called 'decoder.\*'; there are: layers.0"
    with pytest.raises(ValueError, match=message), record(net, layers=[layer]):
        pass
    assert_closed(net)


def test_chosen_heads(net: Net, x: Tensor) -> None:
    with record(net) as every, record(net, heads=[1]) as one:
        net(x)
    for name in NAMES:
        assert one[name].heads == (1,)
        assert torch.equal(one[name].weights, every[name].weights[:, 1:])
        assert torch.equal(every[name].head(1).weights, one[name].weights)
        assert every[name].head(1).heads == (1,)
        mean = every[name].mean_heads()
        assert mean.heads == (-1,)
        torch.testing.assert_close(mean.weights[:, 0], every[name].weights.mean(1))
    with pytest.raises(ValueError, match=r"has heads \[1\], not 0"):
        one[NAMES[0]].head(0)


def test_a_head_that_is_not_there_is_refused(net: Net, x: Tensor) -> None:
    with pytest.raises(ValueError, match="has heads 0 to 1, not 2"), record(net, heads=[0, 2]):
        net(x)
    assert_closed(net)


def test_the_budget_is_kept_and_what_it_cut_is_said(net: Net, x: Tensor) -> None:
    message = rf"budget of {2 * BYTES:,} bytes left out: {NAMES[2]} \({BYTES:,} bytes\)"
    with pytest.warns(UserWarning, match=message), record(net, budget=2 * BYTES) as maps:
        net(x)
    assert list(maps) == NAMES[:2]
    assert maps.used == 2 * BYTES
    assert maps.cut == {NAMES[2]: BYTES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(net, budget=3 * BYTES, heads=[0]) as maps:
            net(x)
            net(x)
    assert maps.used == 3 * BYTES


def test_a_map_for_which_there_is_no_room_is_not_computed() -> None:
    """A fused site has its weights for recorders alone: n x n numbers that the budget leaves out are never there."""
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 2, 300, 8)
    size = 2 * 300 * 300 * 4
    alone = attend(x, x, x, DenseSupport())[0]
    said = pytest.warns(UserWarning, match=rf"left out:  \({size:,} bytes\)")
    with said, Largest() as largest, record(attend, budget=size - 1) as maps, record(attend, view=Rows(0, 1)) as seen:
        context = attend(x, x, x, DenseSupport())[0]
    assert not len(maps)
    assert largest.elements < 300 * 300
    assert torch.equal(context, alone)
    with record(attend, budget=size) as whole:
        attend(x, x, x, DenseSupport())
    torch.testing.assert_close(seen[""].row(0), whole[""].row(0))
    with record(attend, budget=size // 2, heads=[1]) as one:
        attend(x, x, x, DenseSupport())
    assert torch.equal(one[""].weights, whole[""].weights[:, 1:])


@pytest.mark.parametrize("restrict", [None, SlidingWindow(radius=2, global_tokens=1), LocalM(radius=2)])
def test_a_row_is_that_of_the_matrix(restrict: nn.Module | None) -> None:
    attend, x = Attention(ScaledDot(), Softmax(), restrict=restrict), torch.randn(2, 2, 9, 4)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    with record(attend) as maps:
        attend(x, x, x, DenseSupport.from_key_mask(mask))
    for query in (0, 4, 8):
        assert torch.equal(maps[""].row(query), maps[""].dense()[:, :, query])


@pytest.mark.parametrize("score", [ScaledDot(), GAT(dim=4, heads=2)])
@pytest.mark.parametrize("grad", [False, True])
def test_weights_are_those_before_dropout(score: nn.Module, grad: bool) -> None:
    """This holds for the fused path, the written-out path and edges."""
    attend = Attention(score, Softmax(), dropout=0.5)
    dense, nodes = torch.randn(3, 2, 5, 4), torch.randn(5, 2, 4)
    edges = torch.cartesian_prod(torch.arange(5), torch.arange(5)).T
    for x, support in ((dense, DenseSupport()), (nodes, EdgeSupport.from_edges(edges, 5))):
        with record(attend, grad=grad) as maps:
            attend(x, x, x, support)
        assert torch.equal(maps[""].weights, attend.weights(x, x, support))
        assert (maps[""].weights > 0).all()


def test_a_site_called_once_a_step_gives_one_map_with_a_step_axis() -> None:
    """A decoder's own keys grow from step to step; a key that was not yet there weighs nothing."""
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(2, 3, 4, 6)
    whole = attend.weights(x, x, DenseSupport(causal=True))
    with record(attend) as maps:
        for step in range(4):
            seen = x[:, :, : step + 1]
            attend(x[:, :, step : step + 1], seen, seen, DenseSupport())
    each = maps[""]
    assert each.axes == ("step", "batch", "head", "query", "key")
    assert each.weights.shape == (4, 2, 3, 1, 4)
    assert isinstance(each.support, list)
    assert len(each.support) == 4
    torch.testing.assert_close(each.weights.squeeze(3).permute(1, 2, 0, 3), whole)
    assert each.head(2).weights.shape == (4, 2, 1, 1, 4)
    assert each.mean_heads().weights.shape == (4, 2, 1, 1, 4)


def test_steps_of_different_lengths_are_padded() -> None:
    """A prompt at once, then one token at a time."""
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(1, 1, 4, 6)
    with record(attend) as maps:
        attend(x[:, :, :3], x[:, :, :3], x[:, :, :3], DenseSupport(causal=True))
        attend(x[:, :, 3:], x, x, DenseSupport(causal=True))
    assert maps[""].weights.shape == (2, 1, 1, 3, 4)
    assert not maps[""].weights[1, :, :, 1:].any()
    torch.testing.assert_close(maps[""].weights.sum(-1).flatten(), torch.tensor([1.0, 1, 1, 1, 0, 0]))


def test_edges_come_with_their_own_edges() -> None:
    attend, x = Attention(GAT(dim=4, heads=2), Softmax()), torch.randn(3, 2, 4)
    first = EdgeSupport.from_edges(torch.tensor([[0, 1, 2], [1, 1, 0]]), 3)
    second = EdgeSupport.from_edges(torch.tensor([[2], [2]]), 3, self_loops=True)
    with record(attend) as maps:
        attend(x, x, x, first)
    each = maps[""]
    assert each.axes == ("edge", "head")
    assert each.support is first
    assert each.weights.shape == (3, 2)
    with record(attend) as maps:
        attend(x, x, x, first)
        attend(x, x, x, second)
    assert maps[""].axes == ("step", "edge", "head")
    assert maps[""].support == [first, second]


def test_a_site_that_did_not_run_has_no_map(net: Net, x: Tensor) -> None:
    with record(net) as maps:
        net.layers[1](x)
    assert list(maps) == NAMES[1:2]
    assert NAMES[0] not in maps
    with pytest.raises(KeyError):
        maps[NAMES[0]]


def test_recorders_may_be_nested(net: Net, x: Tensor) -> None:
    with record(net) as outer:
        net(x)
        with record(net, layers=[0], grad=True) as inner:
            assert [probe.wants_gradient for probe in probes(net)] == [True, False, False]
            net(x)
        assert not any(probe.wants_gradient for probe in probes(net))
        assert all(probe.is_open for probe in probes(net))
        net(x)
    assert list(inner) == NAMES[:1]
    assert inner[NAMES[0]].weights.requires_grad
    assert not outer[NAMES[0]].weights.requires_grad
    assert outer[NAMES[0]].weights.shape == (3, 3, 2, 5, 5)
    assert_closed(net)


def test_maps_stay_when_the_recorder_is_closed_and_take_nothing_more(net: Net, x: Tensor) -> None:
    with record(net) as maps:
        net(x)
    net(x)
    assert maps[NAMES[0]].axes[0] == "batch"
    assert_closed(net)


def test_taps_are_closed_after_an_exception(net: Net, x: Tensor) -> None:
    # a wrong width: where shapes are checked they are what is wrong, else it is the product
    with pytest.raises((RuntimeError, TypeError), match=r"cannot be multiplied|linear"), record(net, grad=True):
        net(x[..., :3])
    assert_closed(net)


def test_a_mechanism_without_weights_says_so() -> None:
    class Summary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.probe = AttentionProbe()

        def forward(self, x: Tensor) -> Tensor:
            if self.probe.is_open:
                self.probe.silent("a sum has no weights")
            return x.sum()

    model = nn.Sequential(Summary())
    with record(model) as maps:
        model(torch.ones(2))
    assert list(maps) == []
    assert maps.silent == {"0": "a sum has no weights"}


def test_a_model_is_copied_and_stored_without_its_recorder(net: Net, x: Tensor) -> None:
    with record(net) as maps:
        copied = copy.deepcopy(net)
        restored = pickle.loads(pickle.dumps(net))
        torch.save(net, buffer := io.BytesIO())
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        for other in (copied, restored, loaded):
            assert_closed(other)
            assert torch.equal(other(x), net(x))
    assert maps[NAMES[0]].weights.shape[0] == 3  # the three calls of `net`, none of the others
    assert all(not name.endswith("probe") for name in net.state_dict())


def test_recording_needs_no_gradient_and_no_training(net: Net, x: Tensor) -> None:
    net.eval()
    with torch.inference_mode(), record(net) as maps:
        net(x)
    assert maps[NAMES[0]].weights.shape == (3, 2, 5, 5)


def test_recorded_weights_do_not_change_afterwards() -> None:
    attend = Attention(ScaledDot(), Uniform())
    query = torch.randn(1, 1, 2, 3)
    with record(attend) as maps:
        attend(query, query, query, DenseSupport())
    query.zero_()
    assert maps[""].weights.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]]]


def test_a_map_with_steps_knows_how_long_each_was() -> None:
    attend, x = Attention(ScaledDot(), Softmax()), torch.randn(2, 3, 4, 6)
    with record(attend) as maps:
        attend(x[:, :, :2], x[:, :, :2], x[:, :, :2], DenseSupport())
        assert maps[""].lengths == {}
        attend(x[:, :, 2:3], x[:, :, :3], x[:, :, :3], DenseSupport())
        attend(x[:, :, 3:], x, x, DenseSupport())
    assert maps[""].lengths["query"] == (2, 1, 1)
    assert maps[""].lengths["key"] == (2, 3, 4)
    assert maps[""].mean_heads().lengths["key"] == (2, 3, 4)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.probe = AttentionProbe()

    def forward(self, x: Tensor) -> Tensor:
        gates = x.sigmoid()
        if self.probe.is_open:
            self.probe.emit(gates, None, ("batch", "channel"))
        return x * gates


def test_weights_that_are_not_of_pairs_have_axes_of_their_own() -> None:
    """Heads are chosen where there are any; a gate has none, and is kept whole."""
    model, x = nn.Sequential(Gate(), Gate()), torch.randn(2, 3)
    with record(model, heads=[1], layers=[0]) as maps:
        model(x)
        once = maps["0"]
        model(x)
    assert once.axes == ("batch", "channel")
    assert once.support is None
    assert once.heads == ()
    assert torch.equal(once.weights, x.sigmoid())
    assert maps["0"].axes == ("step", "batch", "channel")
    assert maps["0"].weights.shape == (2, 2, 3)
    assert maps["0"].support is None
    for read in (once.mean_heads, lambda: once.head(0)):
        with pytest.raises(ValueError, match="0 has no heads; its axes are batch, channel"):
            read()


def test_axes_are_given_or_the_support_s() -> None:
    probe = AttentionProbe()
    with pytest.raises(ValueError, match="need the names of their axes"), record(probe):
        probe.emit(torch.ones(2, 3), None)
    with record(nn.Sequential(probe)) as maps:
        probe.emit(torch.ones(2, 4, 3), DenseSupport(), ("batch", "head", "chunk"))
    assert maps[""].axes == ("batch", "head", "chunk")
    assert maps[""].heads == (0, 1, 2, 3)
