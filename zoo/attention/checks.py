"""Checks of shapes and supports before anything is computed; none of them reads the values of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from zoo.attention.positions.relative import Position


def check_widths(query: Float[Tensor, "..."], key: Float[Tensor, "..."]) -> None:
    """Refuses queries and keys of different widths, for scores that multiply or add them elementwise."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"queries have width d={query.shape[-1]} and keys d={key.shape[-1]}; they must be the same")


def check_serves(part: nn.Module | None, support: type, user: str) -> None:
    """Refuses, at start-up, a part whose `supports` do not include this one."""
    served = getattr(part, "supports", None)
    if served is not None and support not in served:
        names = " or ".join(kind.__name__ for kind in served)
        raise ValueError(f"{type(part).__name__} works on {names} only; {user} attends over {support.__name__}")


def check_position(score: nn.Module, position: Position) -> None:
    """Refuses, at start-up, a rotary position if the score would then depend on absolute positions."""
    if position.turns and not getattr(score, "by_angle", False):
        raise ValueError(
            f"{type(position).__name__} rotates queries and keys, and {type(score).__name__} depends on more than the "
            "angle between them: it would depend on absolute positions. Use a position that adds to scores (ALiBi, "
            "T5Bias, Shaw, TransformerXL), none, or a score of products (dot, scaled dot, cosine)"
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


def check_padding(mixer: nn.Module) -> None:
    """Refuses, at start-up, a mixer whose result for a sequence depends on the length of its batch."""
    for part in mixer.modules():
        reason = getattr(part, "not_padded", None)
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


def check_at_once(site: nn.Module, user: str, *, by_query: bool = True) -> None:
    """Refuses, at start-up, a mechanism that cannot read all queries of one sequence from another in one step.

    Args:
        by_query: True if padded queries are kept from all keys, so that queries differ in what they may see.
    """
    check_across(site, user)
    if getattr(site, "remembers", False):
        raise ValueError(
            f"{user} reads all queries at once, and with this mechanism the weights of a query depend on those of the "
            "queries before it: choose another mechanism"
        )
    for part in site.modules():
        reason = getattr(part, "not_by_query", None)
        if by_query and reason is not None:
            raise ValueError(
                f"{type(part).__name__} {reason}, and padded queries of {user} see none: choose another one"
            )
