"""Attention over the edges of a graph: node classification."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data": ["GraphData", "graph_files", "planetoid", "planted_graph"],
        "module": ["NodeClassifier"],
        "net": ["GraphAttentionNet"],
    },
)
