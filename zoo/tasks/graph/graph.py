"""One graph whose nodes are to be classified, and the few operations that every source of graphs needs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from scipy import sparse
from torch import Tensor

SPLITS = {"train": 0, "val": 1, "test": 2}
TRAIN, VAL, TEST = SPLITS.values()
NONE = -1
"""The split of a node that is in none, and the label of a node whose label is not known."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and the edges along which messages flow.

    Attributes:
        features: dense, or `torch.sparse_csr` where most entries are zero.
        feature_names: one for each column.
        edges: source and target of each edge. Messages flow from source to target. No self-loops are added.
        labels: -1 where unknown. A node that is in a split has a label.
        label_names: one for each class.
        split: `SPLITS`, or `NONE`.
        ids: the user's own name of each node.
        gold: the edges that decide the label of their target, where the data was made so that this is known.
    """

    features: Float[Tensor, "n f"]
    feature_names: tuple[str, ...]
    edges: Int64[Tensor, "2 e"]
    labels: Int64[Tensor, " n"]
    label_names: tuple[str, ...]
    split: Int64[Tensor, " n"]
    ids: tuple[str, ...]
    gold: Bool[Tensor, " e"] | None = None


def row_normalised(features: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
    """Each row divided by its sum; a row that sums to zero stays as it is, and a sparse matrix stays sparse."""
    if features.layout != torch.sparse_csr:
        total = features.sum(1, keepdim=True)
        return features / torch.where(total == 0, 1, total)
    crow, values = features.crow_indices(), features.values()
    row = torch.repeat_interleave(torch.arange(len(features)), crow.diff())
    total = torch.zeros(len(features), dtype=values.dtype).index_add(0, row, values)
    return _csr(crow, features.col_indices(), values / torch.where(total == 0, 1, total)[row], tuple(features.shape))


def sparse_features(matrix: sparse.csr_matrix) -> Float[Tensor, "n f"]:
    """A SciPy matrix as a torch one: columns ascending in each row, no entry twice, no stored zeros."""
    matrix = sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    crow, column = (torch.from_numpy(index.astype(np.int64)) for index in (matrix.indptr, matrix.indices))
    return _csr(crow, column, torch.from_numpy(matrix.data), matrix.shape)


def undirected(edges: Int64[Tensor, "2 e"], nodes: int) -> Int64[Tensor, "2 d"]:
    """Both directions of every edge, each once however often it was given, ordered by target and then source."""
    source, target = torch.cat([edges, edges.flip(0)], dim=1)
    key = torch.unique(target * nodes + source)
    return torch.stack([key % nodes, key // nodes])


def _csr(crow: Tensor, column: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(crow, column, values, shape, check_invariants=False)
