"""A graph whose nodes are classified, and operations that all sources of graphs need."""

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
"""The split of a node in no split, and the label of a node with unknown label."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and the edges along which messages flow.

    Attributes:
        features: Features of each node: dense, or `torch.sparse_csr` if most entries are zero.
        feature_names: Name of each feature.
        edges: Source and target of each edge. Messages flow from source to target. No self-loops are added.
        labels: Class of each node, or `NONE` if it is unknown. A node in a split has a label,
            unless it is of a trained model's input.
        label_names: Name of each class.
        split: Split of each node: a value of `SPLITS`, or `NONE`.
        ids: The user's name of each node.
        gold: True at edges that determine the label of their target. Default: unknown.
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
    """Divides each row by its sum, unless the sum is zero. A sparse matrix stays sparse."""
    if features.layout != torch.sparse_csr:
        total = features.sum(1, keepdim=True)
        return features / torch.where(total == 0, 1, total)
    crow, values = features.crow_indices(), features.values()
    row = torch.repeat_interleave(torch.arange(len(features)), crow.diff())
    total = torch.zeros(len(features), dtype=values.dtype).index_add(0, row, values)
    return _csr(crow, features.col_indices(), values / torch.where(total == 0, 1, total)[row], tuple(features.shape))


def sparse_features(matrix: sparse.csr_matrix) -> Float[Tensor, "n f"]:
    """Converts a SciPy matrix to torch, with sorted columns, repeated entries added, and no stored zeros."""
    matrix = sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    crow, column = (torch.from_numpy(index.astype(np.int64)) for index in (matrix.indptr, matrix.indices))
    return _csr(crow, column, torch.from_numpy(matrix.data), matrix.shape)


def make_undirected(edges: Int64[Tensor, "2 e"], nodes: int) -> Int64[Tensor, "2 d"]:
    """Returns both directions of every edge, without repetitions, ordered by target and then source."""
    source, target = torch.cat([edges, edges.flip(0)], dim=1)
    key = torch.unique(target * nodes + source)
    return torch.stack([key % nodes, key // nodes])


def _csr(crow: Tensor, column: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(crow, column, values, shape, check_invariants=False)
