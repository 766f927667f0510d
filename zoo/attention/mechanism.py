"""The parts of attention as types: `Score`, `Normalizer`, `Restriction` and `Position`, and what each of them can do.

A mechanism of one's own derives from one of these classes, overrides `forward`, and states as its `traits` whatever
differs from the default:

    class Distance(Score):
        traits = Traits(layouts=(DenseSupport,))

        def forward(self, query, key, support, state=None):
            return -(support.gather_queries(query) - support.gather_keys(key)).square().sum(-1)

A trait that does not exist, that belongs to another kind of part, or that lacks the method it promises is an error when
the class is defined. `check` refuses, before anything is computed, a mechanism that cannot serve a use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Flag, auto
from inspect import signature
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.attention_state import AttentionState, NormalizerOutput
from zoo.attention.supports.support import Support


class Use(Flag):
    """What a model asks of a mechanism."""

    CAUSAL = auto()
    """Self-attention in which no query sees a later key."""
    STEPWISE = auto()
    """Causal self-attention that goes on step by step."""
    PADDED = auto()
    """Sequences of several lengths side by side, whose results must not depend on each other."""
    CROSS = auto()
    """Attention from one sequence to another."""
    DECODING = auto()
    """Attention from a decoder to its source, step by step."""
    SIMULTANEOUS = auto()
    """All queries at once, none of which is computed from another."""
    MASKED_QUERIES = auto()
    """Queries that differ in what they may see."""


_CONSEQUENCES = {
    Use.CROSS: "; {user} attends from one sequence to another",
    Use.DECODING: ": {user} needs another mechanism",
    Use.SIMULTANEOUS: "; {user} reads all queries at once: choose another mechanism",
    Use.MASKED_QUERIES: ", and padded queries of {user} see none: choose another one",
}
"""How the reason why a mechanism cannot serve a use goes on."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a mechanism can do; the defaults are those of softmax over dot products.

    Of every part:

    Args:
        layouts: Kinds of support that it works on. Default: all.
        unsupported: Uses that it cannot serve, each with the reason, which follows the name of the class in a message.
            A subclass has the reasons of its base class too.
        stateful: Whether the weights of a query depend on those of the queries before it, through the state.
        parallel: Whether several queries can be computed at once all the same.
        content_based: Whether the result depends on the numbers in queries and keys. Without them there are no
            projections of queries and keys.

    Of scores:

    Args:
        rotation_invariant: Whether a score stays the same when query and key are turned by the same angle.

    Of normalizers:

    Args:
        hard: Whether each query reads one key, which `draw` chooses; `forward` returns the probabilities.
        streaming: Whether in evaluation a query reads no key behind the one at which it stops.
        needs_reward: Whether it learns from a reward alone.

    Of restrictions:

    Args:
        output_layout: Kind of the narrowed support.

    Of positions:

    Args:
        rotates: Whether queries and keys are turned, so that only rotation-invariant scores depend on offsets alone.
        needs_weights: Whether the context depends on the weights themselves, which fused kernels do not return.
    """

    layouts: tuple[type[Support], ...] | None = None
    unsupported: Mapping[Use, str] = field(default_factory=dict)
    stateful: bool = False
    parallel: bool = True
    content_based: bool = True
    rotation_invariant: bool = False
    hard: bool = False
    streaming: bool = False
    needs_reward: bool = False
    output_layout: type[Support] | None = None
    rotates: bool = False
    needs_weights: bool = False

    def __post_init__(self) -> None:
        if not self.parallel and not self.stateful:
            raise TypeError("parallel=False needs stateful=True: queries that do not depend on each other are parallel")
        if self.stateful:
            reason = "computes the weights of a query from those of the queries before it"
            object.__setattr__(self, "unsupported", {Use.SIMULTANEOUS: reason, **self.unsupported})


_TRAITS = {each.name: each for each in fields(Traits)}


class Mechanism(nn.Module, ABC):
    """The base of every part whose abilities differ: `traits` says what it can do."""

    traits: Traits = Traits()
    allowed_traits: ClassVar[frozenset[str]] = frozenset({"layouts", "unsupported"})
    """Names of the traits that parts of this kind may have."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """What `forward` is called with."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        traits = cls.traits
        if not isinstance(traits, Traits):
            raise TypeError(f"{cls.__name__}.traits must be Traits(...), not {type(traits).__name__}")
        if misplaced := _TRAITS.keys() & cls.__dict__.keys():
            (name, *_) = sorted(misplaced)
            raise TypeError(f"{cls.__name__}.{name} is a trait: write traits = Traits({name}=...)")
        base = next(parent for parent in cls.__mro__[1:] if issubclass(parent, Mechanism))
        for name, value in vars(traits).items():
            if name not in cls.allowed_traits and value != _TRAITS[name].default:
                raise TypeError(f"{cls.__name__} is a {base.__name__}, which has no trait {name}")
        cls.traits = replace(traits, unsupported={**base.traits.unsupported, **traits.unsupported})
        if not getattr(cls.forward, "__isabstractmethod__", False):
            cls.check_definition()

    @classmethod
    def check_definition(cls) -> None:
        """Refuses a class whose methods do not keep what its traits promise."""
        if not cls.arguments:
            return
        try:
            signature(cls.forward).bind(None, *cls.arguments)
        except TypeError as error:
            expected = ", ".join(cls.arguments)
            raise TypeError(f"{cls.__name__}.forward is called with ({expected}): {error}") from None

    def narrow(self, **traits: Any) -> None:
        """Changes traits of this object alone, where they depend on the arguments it is made with."""
        self.traits = replace(self.traits, **traits)


class PreparedKeys(NamedTuple):
    """Keys as `Score.prepare` returns them; a score that prepares its keys takes no others."""

    tensor: Float[Tensor, "..."]


class Score(Mechanism):
    """Computes s_ij, one number for every pair and head, from projected queries and keys."""

    allowed_traits = Mechanism.allowed_traits | {"stateful", "parallel", "rotation_invariant"}
    arguments = ("query", "key", "support", "state")
    prepares_keys: bool = False
    """Whether the score computes something of its keys alone: whether the class has a `prepare` of its own."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "..."], key: Any, support: Any, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        """Returns the score of every pair of the support.

        Args:
            key: What `prepare` returns.
        """

    def prepare(self, key: Float[Tensor, "..."]) -> Any:
        """Computes, once for a sequence, whatever depends on the keys alone: the keys, or `PreparedKeys`."""
        return key

    def scale(self, width: int) -> float:
        """Returns the factor of products of queries and keys of this width."""
        return 1.0

    def start(self, key: Float[Tensor, "..."]) -> Any:
        """Computes, before the first step of a decoder, what no step changes; steps find it in `state.of_score`.

        It is left out when later keys have come.
        """
        return None

    def sees_last_key(self, previous: Float[Tensor, "b h q k"], support: Any) -> Bool[Tensor, "b h q"] | None:
        """Returns True where a query after these weights sees the last permitted key; None: every query does."""
        return None

    def wrap(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."] | PreparedKeys:
        """Returns keys that were prepared, and may have been appended to since, as `forward` takes them."""
        return PreparedKeys(key) if self.prepares_keys else key

    def unwrap(self, key: Float[Tensor, "..."] | PreparedKeys) -> Float[Tensor, "..."]:
        """Returns the keys that `forward` was given, and refuses keys that have not been prepared."""
        if isinstance(key, PreparedKeys):
            return key.tensor
        if self.prepares_keys:
            name = type(self).__name__
            raise ValueError(f"{name} takes prepared keys: score(query, score.prepare(key), support)")
        return key

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.prepares_keys = cls.prepare is not Score.prepare


class Normalizer(Mechanism):
    """Computes the weights w_i of query i from its scores, over the keys that the support permits."""

    allowed_traits = Mechanism.allowed_traits | {
        *("stateful", "parallel", "content_based", "hard", "streaming", "needs_reward")
    }
    arguments = ("scores", "support", "state")

    @abstractmethod
    def forward(
        self, scores: Float[Tensor, "..."], support: Any, state: AttentionState | None = None
    ) -> Float[Tensor, "..."] | NormalizerOutput:
        """Returns the weight of every pair; a `NormalizerOutput` if the next step needs another alignment."""

    def start(self, nothing: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        """Returns the alignment before the first step of a decoder; `nothing` is zeros."""
        return nothing

    def draw(self, probabilities: Float[Tensor, "..."], support: Any) -> Float[Tensor, "..."]:
        """Returns the weights that hard attention draws with the probabilities of `forward`."""
        raise NotImplementedError

    lookback: int = 0
    """Keys before the one at which a query stops that a streaming mechanism reads too."""

    def is_waiting(self, alignment: Float[Tensor, "b h q k"]) -> Bool[Tensor, "b h q"]:
        """Returns True where a query of a streaming mechanism has passed all keys without a stop."""
        raise NotImplementedError

    def skip(self, state: AttentionState) -> AttentionState:
        """Returns the state in which queries that passed all keys start at the last one, if they are asked again."""
        raise NotImplementedError

    @classmethod
    def check_definition(cls) -> None:
        super().check_definition()
        for trait, has_trait, method, has_method in (
            ("hard", cls.traits.hard, "draw", cls.draw is not Normalizer.draw),
            ("streaming", cls.traits.streaming, "is_waiting", cls.is_waiting is not Normalizer.is_waiting),
            ("streaming", cls.traits.streaming, "skip", cls.skip is not Normalizer.skip),
        ):
            if has_trait != has_method:
                lacks = f"the method {method}" if has_trait else f"traits = Traits({trait}=True)"
                raise TypeError(f"{cls.__name__} lacks {lacks}: {trait} weights and {method} go together")


class Restriction(Mechanism):
    """Narrows the support of a site, and chooses the layout of its pairs."""

    allowed_traits = Mechanism.allowed_traits | {"content_based", "output_layout"}
    arguments = ("query", "key", "support")

    @abstractmethod
    def forward(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Any) -> Support:
        """Returns the narrowed support."""

    @classmethod
    def check_definition(cls) -> None:
        super().check_definition()
        if cls.traits.output_layout is None:
            raise TypeError(f"{cls.__name__} does not say which support it returns: Traits(output_layout=...)")


class Position(Mechanism):
    """Base class of relative positions. Each method leaves attention unchanged unless a subclass overrides it.

    Positions count from zero. The last query stands at the last key, so a decoder's new query stands after all earlier
    positions.
    """

    allowed_traits = Mechanism.allowed_traits | {"rotates", "needs_weights"}
    traits = Traits(
        unsupported={
            Use.CROSS: "depends on the distance between query and key, which exists only within one sequence",
        }
    )

    def turn(self, key: Float[Tensor, "..."], start: int = 0) -> Float[Tensor, "..."]:
        """Returns the keys as changed by their positions `start`, `start + 1`, ..."""
        return key

    def turn_query(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support
    ) -> Float[Tensor, "..."]:
        """Returns the queries as changed by their positions."""
        return query

    def bias(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support, scale: float
    ) -> Float[Tensor, "..."] | None:
        """Returns the bias that is added to the score of each pair, or None.

        Args:
            query: Queries returned by `turn_query`.
            key: Keys, of which only the number is read; they may have fewer heads than the queries.
            scale: Factor by which the score multiplies products of queries and keys.
        """
        return None

    def add_context(
        self,
        context: Float[Tensor, "..."],
        weights: Float[Tensor, "..."],
        query: Float[Tensor, "..."],
        key: Float[Tensor, "..."],
        support: Support,
    ) -> Float[Tensor, "..."]:
        """Returns the context of each query with the contribution of positions added."""
        return context


def check(part: nn.Module, use: Use, user: str = "the model") -> None:
    """Refuses a mechanism, or a module of several, with a part that cannot serve all of these uses.

    Args:
        user: Who uses it, for the message.
    """
    parts = [mechanism for mechanism in part.modules() if isinstance(mechanism, Mechanism)]
    for one in use:
        for mechanism in parts:
            reason = mechanism.traits.unsupported.get(one)
            if reason is not None:
                consequence = _CONSEQUENCES.get(one, "").format(user=user)
                raise ValueError(f"{type(mechanism).__name__} {reason}{consequence}")


def check_layout(part: Mechanism, layout: type, user: str) -> None:
    """Refuses a part that does not work on this kind of support."""
    layouts = part.traits.layouts
    if layouts is not None and layout not in layouts:
        names = " or ".join(layout.__name__ for layout in layouts)
        raise ValueError(f"{type(part).__name__} works on {names} only; {user} attends over {layout.__name__}")


def check_widths(query: Float[Tensor, "..."], key: Float[Tensor, "..."]) -> None:
    """Refuses queries and keys of different widths, for scores that multiply or add them elementwise."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"queries have width d={query.shape[-1]} and keys d={key.shape[-1]}; they must be the same")
