"""Sparse products over a fixed set of (row, column) entries, several heads at a time.

There are two pairs of operations, each the derivative of the other (`gather` and `collect`, `product` and `dot`), and
the softmax of each row. They are custom operators on plain index tensors because `torch.compile` refuses sparse
tensors. CSR products support only fp32 and fp64, so half precision is computed in fp32.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import upcast

# This many gathered numbers fit into the cache of a core: 2 to 3 times faster than gathering all at once.
_CACHED = 1 << 17
# The gradient of a SparsePattern: one None for each of its tensors.
_NONE = [None] * 6

with warnings.catch_warnings():  # torch warns once per process that CSR is in beta: trigger and silence it here
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), torch.tensor([]), (1, 1))


@dataclass(frozen=True, eq=False)
class SparsePattern:
    """The nonzero entries of a sparse matrix, sorted by row, and the same entries sorted by column.

    Args:
        rows: Row of each entry.
        columns: Column of each entry.
        row_starts: Index of the first entry of each row, and the number of entries.
        by_column: Index of each entry in the order of columns.
        rows_by_column: Row of each entry in the order of columns.
        column_starts: Like `row_starts`, for columns.
    """

    rows: Int[Tensor, " e"]
    columns: Int[Tensor, " e"]
    row_starts: Int[Tensor, " rows_and_one"]
    by_column: Int[Tensor, " e"]
    rows_by_column: Int[Tensor, " e"]
    column_starts: Int[Tensor, " columns_and_one"]

    @classmethod
    def from_entries(
        cls, rows: Int[Tensor, " e"], columns: Int[Tensor, " e"], shape: tuple[int, int]
    ) -> tuple[SparsePattern, Int[Tensor, " e"]]:
        """Sorts entries by row.

        Returns:
            The pattern, and the index that each of its entries had in `rows` and `columns`.
        """
        for name, index, size in (("row", rows, shape[0]), ("column", columns, shape[1])):
            if len(index) and (int(index.min()) < 0 or int(index.max()) >= size):
                raise ValueError(
                    f"{name} indices must lie in 0..{size - 1}, got {int(index.min())}..{int(index.max())}"
                )
        order = torch.argsort(rows, stable=True)
        rows, columns = rows[order], columns[order]
        by_column = torch.argsort(columns, stable=True)
        pattern = cls(
            rows=rows.int(),
            columns=columns.int(),
            row_starts=_starts(rows, shape[0]),
            by_column=by_column.int(),
            rows_by_column=rows[by_column].int(),
            column_starts=_starts(columns, shape[1]),
        )
        return pattern, order

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_starts) - 1, len(self.column_starts) - 1

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str, **options: Any) -> SparsePattern:
        return SparsePattern(**{f.name: getattr(self, f.name).to(device=device, **options) for f in fields(self)})

    def tensors(self) -> list[Int[Tensor, "..."]]:
        return [self.rows, self.columns, self.row_starts, self.by_column, self.rows_by_column, self.column_starts]


def _starts(sorted_or_not: Tensor, size: int) -> Tensor:
    counts = torch.bincount(sorted_or_not, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def gather_rows(x: Float[Tensor, "rows ..."], pattern: SparsePattern) -> Float[Tensor, "e ..."]:
    """Gathers x at the row of each entry."""
    return torch.ops.zoo_attention.gather(x, pattern.tensors(), False)  # type: ignore[no-any-return]


def gather_columns(x: Float[Tensor, "columns ..."], pattern: SparsePattern) -> Float[Tensor, "e ..."]:
    """Gathers x at the column of each entry."""
    return torch.ops.zoo_attention.gather(x, pattern.tensors(), True)  # type: ignore[no-any-return]


def product(
    weights: Float[Tensor, "e h"], value: Float[Tensor, "columns h d"], pattern: SparsePattern
) -> Float[Tensor, "rows h d"]:
    """Computes out[i] = sum of weights[i, j] * value[j] over the entries (i, j)."""
    return torch.ops.zoo_attention.product(weights, value, pattern.tensors(), False)  # type: ignore[no-any-return]


def dot(
    left: Float[Tensor, "rows h d"], right: Float[Tensor, "columns h d"], pattern: SparsePattern
) -> Float[Tensor, "e h"]:
    """Computes out[i, j] = left[i] · right[j] for every entry (i, j)."""
    return torch.ops.zoo_attention.dot(left, right, pattern.tensors())  # type: ignore[no-any-return]


def row_softmax(scores: Float[Tensor, "e h"], pattern: SparsePattern) -> Float[Tensor, "e h"]:
    """Computes the softmax over the entries of each row, in fp32 or wider."""
    return torch.ops.zoo_attention.row_softmax(upcast(scores), pattern.rows, pattern.row_starts)  # type: ignore[no-any-return]


def _computable(*tensors: Tensor) -> list[Tensor]:
    """Converts tensors to one dtype that CSR products support, fp32 or fp64."""
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32
    return [x.to(dtype) for x in tensors]


# Schemas are explicit because torch cannot infer them through the wrapper that checks shapes in tests.
_operator = partial(torch.library.custom_op, mutates_args=())


@_operator("zoo_attention::gather", schema="(Tensor x, Tensor[] pattern, bool columns) -> Tensor")
def _gather(x: Tensor, pattern: list[Tensor], columns: bool) -> Tensor:
    return x.index_select(0, pattern[1] if columns else pattern[0])


@_operator("zoo_attention::collect", schema="(Tensor x, Tensor[] pattern, bool columns) -> Tensor")
def _collect(x: Tensor, pattern: list[Tensor], columns: bool) -> Tensor:
    """Sums the entries of each row (or column); the derivative of gather."""
    starts = pattern[5] if columns else pattern[2]
    if not x.numel():
        return x.new_zeros(len(starts) - 1, *x.shape[1:])
    flat = _computable(x)[0].reshape(len(x), -1)
    order = pattern[3] if columns else torch.arange(len(x), dtype=torch.int32, device=x.device)
    summed = F.embedding_bag(order, flat, starts, mode="sum", include_last_offset=True)
    return summed.to(x.dtype).reshape(len(starts) - 1, *x.shape[1:])


@_operator(
    "zoo_attention::product", schema="(Tensor weights, Tensor value, Tensor[] pattern, bool transposed) -> Tensor"
)
def _product(weights: Tensor, value: Tensor, pattern: list[Tensor], transposed: bool) -> Tensor:
    starts, index, order = (pattern[5], pattern[4], pattern[3]) if transposed else (pattern[2], pattern[1], None)
    w, v = _computable(weights, value)
    rows, heads, width = len(starts) - 1, v.shape[1], v.shape[2]
    out = v.new_zeros(rows, heads, width)
    if not len(index) or not width:
        pass
    elif v.device.type != "cpu":
        source, target = (pattern[0], pattern[1]) if transposed else (pattern[1], pattern[0])
        out.index_add_(0, target, v.index_select(0, source) * w.unsqueeze(-1))
    elif heads == 1:  # one gathered pass; with several heads it would need a copy of the index for each
        (by_head,), v = _heads_first(w, order), v[:, 0].contiguous()
        bags = F.embedding_bag(index, v, starts, mode="sum", per_sample_weights=by_head, include_last_offset=True)
        out = bags.unsqueeze(1)
    else:
        by_head, v = _heads_first(w, order), v.contiguous()
        for head in range(heads):
            matrix = torch.sparse_csr_tensor(starts, index, by_head[head], (rows, len(v)), check_invariants=False)
            torch.addmm(out[:, head], matrix, v[:, head], beta=0, out=out[:, head])
    return out.to(value.dtype)


def _heads_first(weights: Tensor, order: Tensor | None) -> Tensor:
    """Transposes (e, h) to a contiguous (h, e), with the entries reordered if an order is given."""
    turned = weights.t()
    if order is None:
        return turned.contiguous()
    # the memory layout of the weights decides which of the two is cheaper
    return turned.index_select(1, order) if turned.is_contiguous() else weights.index_select(0, order).t().contiguous()


@_operator("zoo_attention::dot", schema="(Tensor left, Tensor right, Tensor[] pattern) -> Tensor")
def _dot(left: Tensor, right: Tensor, pattern: list[Tensor]) -> Tensor:
    rows, columns = pattern[:2]
    a, b = _computable(left, right)
    heads, width = a.shape[1:]
    out = a.new_empty(len(rows), heads)
    # On a CPU entries are processed in chunks that fit into the cache.
    step = max(1, _CACHED // max(1, heads * width)) if a.device.type == "cpu" else max(1, len(rows))
    for start in range(0, len(rows), step):
        entries = slice(start, start + step)
        pairs = a.index_select(0, rows[entries]).mul_(b.index_select(0, columns[entries]))
        torch.sum(pairs, -1, out=out[entries])
    return out.to(left.dtype)


@_operator("zoo_attention::row_softmax", schema="(Tensor scores, Tensor rows, Tensor row_starts) -> Tensor")
def _row_softmax(scores: Tensor, rows: Tensor, row_starts: Tensor) -> Tensor:
    if not len(rows):
        return torch.zeros_like(scores)
    highest = torch.segment_reduce(scores, "max", offsets=row_starts.long(), axis=0)
    highest = highest.masked_fill_(highest == -torch.inf, 0.0)  # rows that are -inf throughout become zeros
    weights = scores.sub(highest.index_select(0, rows)).exp_()
    total = _sum_of_rows(weights, row_starts)
    return weights.div_(total.masked_fill_(total == 0, 1.0).index_select(0, rows))


def _sum_of_rows(x: Tensor, row_starts: Tensor) -> Tensor:
    order = torch.arange(len(x), dtype=torch.int32, device=x.device)
    return F.embedding_bag(order, x, row_starts, mode="sum", include_last_offset=True)


@_operator(
    "zoo_attention::row_softmax_gradient",
    schema="(Tensor gradient, Tensor weights, Tensor rows, Tensor row_starts) -> Tensor",
)
def _row_softmax_gradient(gradient: Tensor, weights: Tensor, rows: Tensor, row_starts: Tensor) -> Tensor:
    weighted = gradient * weights
    if not len(rows):
        return weighted
    return weighted.addcmul_(weights, _sum_of_rows(weighted, row_starts).index_select(0, rows), value=-1)


# `shape[0]` stays symbolic; `len` would be a constant, and every graph size would be compiled again.
@_gather.register_fake
def _(x: Tensor, pattern: list[Tensor], columns: bool) -> Tensor:
    return x.new_empty(pattern[0].shape[0], *x.shape[1:])


@_collect.register_fake
def _(x: Tensor, pattern: list[Tensor], columns: bool) -> Tensor:
    return x.new_empty(pattern[5 if columns else 2].shape[0] - 1, *x.shape[1:])


@_product.register_fake
def _(weights: Tensor, value: Tensor, pattern: list[Tensor], transposed: bool) -> Tensor:
    return value.new_empty(pattern[5 if transposed else 2].shape[0] - 1, *value.shape[1:])


@_dot.register_fake
def _(left: Tensor, right: Tensor, pattern: list[Tensor]) -> Tensor:
    return left.new_empty(pattern[0].shape[0], left.shape[1])


@_row_softmax.register_fake
def _(scores: Tensor, rows: Tensor, row_starts: Tensor) -> Tensor:
    return torch.empty_like(scores)


@_row_softmax_gradient.register_fake
def _(gradient: Tensor, weights: Tensor, rows: Tensor, row_starts: Tensor) -> Tensor:
    return torch.empty_like(weights)


def _remember_pattern(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    ctx.pattern = next(x for x in inputs if isinstance(x, list))
    ctx.flag = next((x for x in inputs if isinstance(x, bool)), False)
    ctx.save_for_backward(*tensors)


def _gather_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return torch.ops.zoo_attention.collect(gradient, ctx.pattern, ctx.flag), _NONE, None


def _collect_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return torch.ops.zoo_attention.gather(gradient, ctx.pattern, ctx.flag), _NONE, None


def _product_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    weights, value = ctx.saved_tensors
    left, right = (value, gradient) if ctx.flag else (gradient, value)
    to_weights = torch.ops.zoo_attention.dot(left, right, ctx.pattern) if ctx.needs_input_grad[0] else None
    to_value = None
    if ctx.needs_input_grad[1]:
        to_value = torch.ops.zoo_attention.product(weights, gradient, ctx.pattern, not ctx.flag)
    return None if to_weights is None else to_weights.to(weights.dtype), to_value, _NONE, None


def _dot_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    left, right = ctx.saved_tensors
    to_left = torch.ops.zoo_attention.product(gradient, right, ctx.pattern, False) if ctx.needs_input_grad[0] else None
    to_right = torch.ops.zoo_attention.product(gradient, left, ctx.pattern, True) if ctx.needs_input_grad[1] else None
    return to_left, to_right, _NONE


def _remember_weights(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[1:])


def _row_softmax_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return torch.ops.zoo_attention.row_softmax_gradient(gradient, *ctx.saved_tensors), None, None


_gather.register_autograd(_gather_backward, setup_context=_remember_pattern)
_collect.register_autograd(_collect_backward, setup_context=_remember_pattern)
_product.register_autograd(_product_backward, setup_context=_remember_pattern)
_dot.register_autograd(_dot_backward, setup_context=_remember_pattern)
_row_softmax.register_autograd(_row_softmax_backward, setup_context=_remember_weights)
