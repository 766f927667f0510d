"""Under torch.compile a closed probe costs nothing and an open one compiles once, not once a call.

The checks run in a process of their own: the wrappers with which the other tests check shapes break graphs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import all_slow_but
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

import zoo
from zoo.attention import (
    GAT,
    Additive,
    Attention,
    AttentionFactory,
    DenseSupport,
    EdgeSupport,
    GATv2,
    MultiheadAttention,
    Recording,
    ScaledDot,
    Softmax,
    record,
)
from zoo.tasks.graph.models import GraphAttentionNet

CHECKS: dict[str, Callable[[], None]] = {}
FAST = ("fused_attention", "attention_over_edges", "a_decoders_steps_share_a_graph")
"""One of each kind; the others are slow, as each compiles for seconds."""


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


class Transformer(nn.Module):
    def __init__(self, score: Any = ScaledDot) -> None:
        super().__init__()
        torch.manual_seed(0)
        factory = AttentionFactory(score=score, normalizer=Softmax)
        self.layers = nn.ModuleList(MultiheadAttention(dim=8, heads=2, attend=factory) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, None, DenseSupport.from_key_mask(mask, causal=True))[0]
        return x


class Graph(nn.Module):
    def __init__(self, score: Any, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Attention(score(dim=4, heads=2), Softmax(), dropout=dropout) for _ in range(2))

    def forward(self, x: Tensor, support: EdgeSupport) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, x, x, support)[0]
        return x


def results(compiled: nn.Module, x: Tensor, extra: Any, recorder: Any) -> tuple[list[Tensor], Recording | None]:
    compiled.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(3)
    with recorder as maps:
        output = compiled(x, extra)
    output.square().sum().backward()
    return [output.detach(), x.grad, *gradients(compiled)], maps


def gradients(model: nn.Module) -> list[Tensor]:
    """Compiled code gives zeros where eager code gives None."""
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


def check_model(model: nn.Module, draw: Callable[[], tuple[Tensor, Any]], *, backend: str = "eager") -> None:
    """Values, names and the number of compiled graphs, over calls with and without a recorder."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter)
    results(compiled, *draw(), nullcontext())
    assert counter.frame_count == 1, f"{counter.frame_count} graphs while no recorder is open"
    graphs = []
    for _ in range(3):
        x, extra = draw()
        observed, maps = results(compiled, x, extra, record(compiled))
        plain, _ = results(compiled, x, extra, nullcontext())
        assert torch.equal(observed[0], plain[0])
        for one, other in zip(observed, plain, strict=True):
            if backend == "eager":
                assert torch.equal(one, other)
            else:  # where a tensor is used three times, aot_autograd adds its gradients in an order of its own
                torch.testing.assert_close(one, other)
        assert maps is not None
        assert list(maps) in (["layers.0.attend", "layers.1.attend"], ["layers.0", "layers.1"])
        if not any(module.dropout.p for module in model.modules() if isinstance(module, Attention)):
            with record(model) as eager:
                torch.testing.assert_close(model(x, extra), observed[0])
            for name in eager:
                torch.testing.assert_close(maps[name].weights, eager[name].weights)
        graphs.append(counter.frame_count)
    with record(compiled) as maps:
        for _ in range(4):
            x, extra = draw()
            compiled(x.requires_grad_(), extra)
    assert next(iter(maps.values())).weights.shape[0] == 4
    graphs.append(counter.frame_count)
    assert len(set(graphs)) == 1, f"graphs after each call: {graphs}"
    assert not torch._dynamo.utils.counters["recompile_limit"]


def sentences() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 5, 8), torch.rand(2, 5) < 0.7


def graph() -> tuple[Tensor, EdgeSupport]:
    return torch.randn(5, 2, 4), EdgeSupport.from_edges(torch.randint(0, 5, (2, 9)), 5)


@check
def fused_attention() -> None:
    check_model(Transformer(), sentences)


@check
def written_out_attention() -> None:
    check_model(Transformer(Additive), sentences)


@check
def attention_over_edges() -> None:
    check_model(Graph(GAT), graph)


@check
def attention_over_edges_with_dropout() -> None:
    check_model(Graph(GATv2, dropout=0.3), graph, backend="aot_eager")


@check
def graphs_of_any_size_share_one_compilation() -> None:
    """A backward pass too; a network made for graphs would otherwise be compiled at every batch."""
    for score in (GAT, GATv2):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        model = GraphAttentionNet(features=3, classes=2, attend=AttentionFactory(score=score, normalizer=Softmax))
        compiled, graphs = torch.compile(model, backend=counter, dynamic=True), []
        for nodes, edges in ((5, 9), (7, 20), (11, 40), (50, 300)):
            x, support = torch.randn(nodes, 3), EdgeSupport.from_edges(torch.randint(0, nodes, (2, edges)), nodes)
            found, expected = compiled(x, support), model(x, support)
            torch.testing.assert_close(found, expected)
            of_each = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (found, expected)]
            torch.testing.assert_close(*of_each)
            graphs.append(counter.frame_count)
        assert graphs == [2, 2, 2, 2], f"graphs after each call, forward and backward: {graphs}"


@check
def a_closed_tap_breaks_no_graph() -> None:
    for model, draw in ((Transformer(), sentences), (Graph(GATv2), graph)):
        x, extra = draw()
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, extra), model(x, extra))


@check
def gradients_flow_from_weights_recorded_in_a_compiled_model() -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    model = Transformer()
    compiled = torch.compile(model, backend=counter)
    x, mask = sentences()
    mask[:, 0] = True
    graphs = []
    for _ in range(3):
        found = []
        for each in (compiled, model):
            model.zero_grad()
            with record(each, grad=True) as maps:
                each(x, mask)
            sum(m.weights.square().sum() for m in maps.values()).backward()
            found.append(gradients(model))
        assert found[0][0].any()
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)
        graphs.append(counter.frame_count)
    assert len(set(graphs)) == 1, f"graphs after each call: {graphs}"


@check
def a_decoders_steps_share_a_graph() -> None:
    """State in, state out: no graph for each step."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    attend = Attention(Additive(dim=4, heads=2), Softmax())
    step = torch.compile(attend.read, backend=counter)
    query, source = torch.randn(3, 2, 1, 4), torch.randn(3, 2, 6, 4)
    memory = attend.prepare(source, source, DenseSupport())
    state = attend.start(query, source, DenseSupport())
    graphs = []
    for _ in range(4):
        _, state = step(query, memory, None, state)
        graphs.append(counter.frame_count)
    assert graphs == [1, 2, 2, 2]  # the first step's state has no gradient
    torch.testing.assert_close(state.total, 4 * state.weights)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, str]:
    items = [each for each in request.session.items if each.path == request.path]
    names = [each.callspec.params["name"] for each in items]  # type: ignore[attr-defined]
    paths = [str(Path(zoo.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *names], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", all_slow_but(FAST, CHECKS))
def test_compiled(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "", outcomes[name]


def outcome(function: Callable[[], None]) -> str:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({name: outcome(CHECKS[name]) for name in sys.argv[1:]}))
