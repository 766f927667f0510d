"""Checks of shapes and supports before anything is computed; none of them reads the values of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.supports.layouts import DenseSupport, EdgeSupport, Support

if TYPE_CHECKING:
    from zoo.attention.positions.relative import Position


def check_shapes(
    query: Float[Tensor, "..."], key: Float[Tensor, "..."], value: Float[Tensor, "..."], support: Support
) -> None:
    """Refuses queries, keys and values whose shapes do not fit each other or the support."""
    if isinstance(support, EdgeSupport):
        _check_nodes(query, key, value, support)
    elif support.axes[0] == "batch":
        _check_sequences(query, key, value)
        if isinstance(support, DenseSupport):
            _check_mask(query, key, support)


def check_widths(query: Float[Tensor, "..."], key: Float[Tensor, "..."]) -> None:
    """Refuses queries and keys of different widths, for scores that multiply or add them elementwise."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"queries have width d={query.shape[-1]} and keys d={key.shape[-1]}; they must be the same")


def check_serves(part: nn.Module | None, support: type, user: str) -> None:
    """Refuses, at start-up, a part whose `supports` do not include this one."""
    served = getattr(part, "supports", None)
    if served is not None and support not in served:
        names = " or ".join(kind.__name__ for kind in served)
        raise ValueError(f"{type(part).__name__} works on {names} alone; {user} attends over {support.__name__}")


def check_position(score: nn.Module, position: Position) -> None:
    """Refuses, at start-up, a rotary position if the score would then depend on absolute positions."""
    if position.turns and not getattr(score, "by_angle", False):
        raise ValueError(
            f"{type(position).__name__} turns queries and keys, and {type(score).__name__} goes by more than the angle "
            "between them: it would depend on where both stand, not on their distance. Take a position that adds to "
            "scores (ALiBi, T5Bias, Shaw, TransformerXL), none, or a score of products (dot, scaled dot, cosine)"
        )


def check_causal(mixer: nn.Module) -> None:
    """Refuses, at start-up, a mixer with a part that cannot be causal (`not_causal` gives the reason)."""
    for part in mixer.modules():
        reason = getattr(part, "not_causal", None)
        if reason is not None:
            raise ValueError(f"{type(part).__name__} {reason}")


def check_steps(site: nn.Module) -> None:
    """Refuses a mechanism of self-attention that cannot compute its positions step by step."""
    check_causal(site)
    for part in site.modules():
        reason = getattr(part, "not_by_steps", None)
        if reason is not None:
            raise ValueError(f"{type(part).__name__} {reason}")


def check_across(site: nn.Module, user: str) -> None:
    """Refuses, at start-up, a mechanism that cannot attend from one sequence to another."""
    for part in site.modules():
        reason = getattr(part, "not_across", None)
        if reason is not None:
            raise ValueError(f"{type(part).__name__} {reason}; {user} attends from one sequence to another")


def check_decodes(site: nn.Module, user: str) -> None:
    """Refuses, at start-up, a mechanism that cannot attend to a source step by step."""
    check_across(site, user)
    for part in site.modules():
        reason = getattr(part, "not_decoding", None)
        if reason is not None:
            raise ValueError(f"{type(part).__name__} {reason}: {user} needs another mechanism")


def _check_sequences(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, x, axes in (
        ("query", query, "(b, h, q, d)"),
        ("key", key, "(b, h, k, d)"),
        ("value", value, "(b, h, k, v)"),
    ):
        if x.dim() != 4:
            raise ValueError(f"{name} must have the axes {axes}, got shape {tuple(x.shape)}")
    if key.shape[2] != value.shape[2]:
        raise ValueError(
            f"there are k={key.shape[2]} keys and k={value.shape[2]} values; there must be one value a key"
        )
    for name, x in (("keys", key), ("values", value)):
        if x.shape[0] != query.shape[0]:
            raise ValueError(
                f"queries have b={query.shape[0]} examples and {name} b={x.shape[0]}; they must be the same"
            )
        if x.shape[1] == 0 or query.shape[1] % x.shape[1]:
            raise ValueError(f"the h={query.shape[1]} heads of queries are not divisible by the {x.shape[1]} of {name}")


def _check_mask(query: Tensor, key: Tensor, support: DenseSupport) -> None:
    if support.permitted is None:
        return
    sizes = (*query.shape[:3], key.shape[2])
    for axis, size, given in zip("bhqk", sizes, support.permitted.shape, strict=True):
        if given not in (1, size):
            raise ValueError(
                f"the mask has {axis}={given} where queries and keys have {axis}={size}; it must be that or 1"
            )


def _check_nodes(query: Tensor, key: Tensor, value: Tensor, support: EdgeSupport) -> None:
    for name, x, axes in (("query", query, "(q, h, d)"), ("key", key, "(k, h, d)"), ("value", value, "(k, h, v)")):
        if x.dim() != 3:
            raise ValueError(f"{name} must have the axes {axes} over edges, got shape {tuple(x.shape)}")
    queries, keys = support.pattern.shape
    for name, x, axis, size in (
        ("queries", query, "q", queries),
        ("keys", key, "k", keys),
        ("values", value, "k", keys),
    ):
        if x.shape[0] != size:
            raise ValueError(f"the edges are of {axis}={size} nodes, and there are {x.shape[0]} {name}")
