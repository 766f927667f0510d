"""Times graph attention against PyG and DGL: the same two layers on a graph of Cora's size, interleaved.

    python benchmarks/graph.py                      # random graph of Cora's size and sparsity
    python benchmarks/graph.py --data $ZOO_DATA     # Cora itself
    python benchmarks/graph.py --scale 10           # ten times as many nodes and edges

Every model has 8 heads x 8, ELU, one output head, dropout .6 on input and attention, Adam 5e-3, L2 5e-4 (GAT, section
3.3); ours also drops projected features, as the authors' code does. The output has medians and their ratios. Peak
memory is measured in an otherwise idle process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filing import command, file
from measuring import build_available
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import GAT, AttentionFactory, EdgeSupport, Softmax, record
from zoo.tasks.graph.graph import Graph
from zoo.tasks.graph.models import GraphAttentionNet
from zoo.tasks.graph.planetoid_files import read_planetoid
from zoo.tasks.graph.sparse_features import SparseFeatures
from zoo.training.environment import find_commit

CLASSES, TRAINED = 7, 140
PEERS = ("pyg", "dgl")
OURS = ("ours, sparse features", "ours, dense features")


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    graph = _graph(options)
    if options.peak:
        print(_peak(options.peak, graph))
        return
    models = build_available({name: partial(_model, name, graph) for name in (*PEERS, *OURS)})
    steps = {name: _training_step(*model) for name, model in models.items()}
    training = _interleaved(steps, options.repeats)
    inference = _interleaved({name: _inference(*model) for name, model in models.items()}, options.repeats)
    peaks = {name: _peak_of_process(name) for name in models}
    recorder = _recorder(*models[OURS[0]], repeats=options.repeats)
    result = {
        "graph": {"nodes": len(graph.ids), "edges": graph.edges.shape[1], "features": graph.features.shape[1]},
        "threads": options.threads,
        "torch": torch.__version__,
        "training_ms": training,
        "inference_ms": inference,
        "peak_mib": peaks,
        "recorder": recorder,
        "command": command(),
        "commit": find_commit(),
    }
    _show(result)
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with planetoid/Cora/raw; a random graph if not given")
    parser.add_argument("--scale", type=int, default=1, help="times Cora's nodes and edges (random graph)")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    return parser.parse_args()


def _graph(options: argparse.Namespace) -> Graph:
    if options.data is not None:
        return read_planetoid(options.data, "cora")
    generator = torch.Generator().manual_seed(0)
    nodes, edges, features, nonzeros = 2708 * options.scale, 10_556 * options.scale, 1433, 18
    column = torch.randint(0, features, (nodes, nonzeros), generator=generator)
    dense = torch.zeros(nodes, features).scatter_(1, column, 1.0 / nonzeros)
    return Graph(
        features=dense.to_sparse_csr(),
        feature_names=tuple(map(str, range(features))),
        edges=torch.randint(0, nodes, (2, edges), generator=generator),
        labels=torch.randint(0, CLASSES, (nodes,), generator=generator),
        label_names=tuple(map(str, range(CLASSES))),
        split=torch.zeros(nodes, dtype=torch.int64),
        ids=tuple(map(str, range(nodes))),
    )


Model = tuple[nn.Module, Callable[[], Tensor], Tensor]


def _model(name: str, graph: Graph) -> Model:
    torch.manual_seed(0)
    maker = {"pyg": _pyg, "dgl": _dgl, OURS[0]: partial(_ours, sparse=True), OURS[1]: partial(_ours, sparse=False)}
    return *maker[name](graph), graph.labels


def _ours(graph: Graph, *, sparse: bool) -> tuple[nn.Module, Callable[[], Tensor]]:
    attend = AttentionFactory(score=GAT, normalizer=Softmax, dropout=0.6)
    net = GraphAttentionNet(features=graph.features.shape[1], classes=CLASSES, attend=attend, dropout=0.6)
    x = SparseFeatures.from_csr(graph.features) if sparse else graph.features.to_dense()
    support = EdgeSupport.from_edges(graph.edges, len(graph.ids), self_loops=True)
    return net, lambda: net(x, support)


def _pyg(graph: Graph) -> tuple[nn.Module, Callable[[], Tensor]]:
    from torch_geometric.nn import GATConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GATConv(graph.features.shape[1], 8, 8, dropout=0.6)
            self.last = GATConv(64, CLASSES, 1, dropout=0.6)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            x = F.elu(self.first(F.dropout(x, 0.6, self.training), edges))
            return self.last(F.dropout(x, 0.6, self.training), edges)

    net, x = Net(), graph.features.to_dense()
    return net, lambda: net(x, graph.edges)


def _dgl(graph: Graph) -> tuple[nn.Module, Callable[[], Tensor]]:
    os.environ["DGLBACKEND"] = "pytorch"
    import dgl
    from dgl.nn import GATConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = GATConv(graph.features.shape[1], 8, 8, 0.6, 0.6, activation=F.elu)
            self.last = GATConv(64, CLASSES, 1, 0.6, 0.6)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(edges, self.first(edges, x).flatten(1)).mean(1)

    edges = dgl.add_self_loop(dgl.graph((graph.edges[0], graph.edges[1]), num_nodes=len(graph.ids)))
    net, x = Net(), graph.features.to_dense()
    return net, lambda: net(x)


def _training_step(net: nn.Module, forward: Callable[[], Tensor], labels: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=5e-4)

    def step() -> None:
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(forward()[:TRAINED], labels[:TRAINED]).backward()
        optimizer.step()

    return step


def _inference(net: nn.Module, forward: Callable[[], Tensor], _: Tensor) -> Callable[[], None]:
    def run() -> None:
        net.eval()
        with torch.inference_mode():
            forward()

    return run


def _interleaved(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Returns median milliseconds; the models take turns, so that other load on the machine affects them alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 3):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            if repeat >= 3:
                times[name].append((time.perf_counter() - started) * 1e3)
    return {name: round(statistics.median(each), 3) for name, each in times.items()}


def _recorder(net: nn.Module, forward: Callable[[], Tensor], labels: Tensor, *, repeats: int) -> dict[str, float]:
    """Measures the cost of an open recorder in a training step and in a pass; a closed one only reads a flag."""
    step, run = _training_step(net, forward, labels), _inference(net, forward, labels)

    def recorded(inner: Callable[[], None]) -> None:
        with record(net):
            inner()

    taken = _interleaved(
        {"step": step, "step, open": partial(recorded, step), "pass": run, "pass, open": partial(recorded, run)},
        repeats,
    )
    return {
        "open_step_ratio": round(taken["step, open"] / taken["step"], 3),
        "open_pass_ratio": round(taken["pass, open"] / taken["pass"], 3),
    }


def _peak_of_process(name: str) -> float:
    command = [sys.executable, *sys.argv, "--peak", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _peak(name: str, graph: Graph) -> float:
    """Returns the MiB that training adds to the memory of a process that already holds model and data."""
    step = _training_step(*_model(name, graph))
    Path("/proc/self/clear_refs").write_text("5")  # reset the recorded peak (Linux)
    before = _memory("VmRSS")
    for _ in range(5):
        step()
    return round((_memory("VmHWM") - before) / 1024, 1)


def _memory(what: str) -> int:
    """Returns a memory figure of this process in KiB, as reported by the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def _show(result: dict[str, Any]) -> None:
    print("{nodes:,} nodes, {edges:,} edges, {features:,} features".format(**result["graph"]))
    print(f"{'':24}{'training ms':>12}{'inference ms':>14}{'peak MiB':>10}")
    for name in result["training_ms"]:
        figures = (result[key][name] for key in ("training_ms", "inference_ms", "peak_mib"))
        print("{:24}{:>12.2f}{:>14.2f}{:>10.1f}".format(name, *figures))
    for ours in OURS:
        for peer in (each for each in PEERS if each in result["training_ms"]):
            trained, passed = (result[key][peer] / result[key][ours] for key in ("training_ms", "inference_ms"))
            print(f"{ours} against {peer}: training x{trained:.1f}, inference x{passed:.1f}")
    print(
        "an open recorder: training step x{open_step_ratio:.2f}, pass x{open_pass_ratio:.2f}".format(
            **result["recorder"]
        )
    )


if __name__ == "__main__":
    main()
