"""Attention over the edges of a graph: node classification."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "datamodule": ["GraphData", "graph_files", "planetoid", "planted_graph"],
        "task": ["NodeClassifier"],
        "models": ["GraphAttentionNet"],
    },
)
