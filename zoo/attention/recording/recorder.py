"""Recording of weights: every site has an `AttentionProbe`, `record` opens the probes, a `Recording` has the maps."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.recording.attention_map import AttentionMap
from zoo.attention.recording.reductions import Reduction, RowWeigher, apply_reduction
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support


class AttentionProbe(nn.Module):
    """The part of an attention site that passes its weights to open recorders.

    `is_open` and `wants_gradient` are plain flags, and `emit` runs outside of compiled graphs. Under `torch.compile` an
    open recorder therefore costs one additional graph, not one per call.
    """

    is_open: bool
    wants_gradient: bool
    wants_all: bool
    wants_rows: bool
    wants_implied: bool

    def __init__(self) -> None:
        super().__init__()
        self._sinks: list[_Collector] = []
        self._set_flags()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def emit(
        self,
        weights: Float[Tensor, "..."],
        support: Support | None,
        axes: tuple[str, ...] | None = None,
        *,
        implied: bool = False,
        **beside: Tensor,
    ) -> None:
        """Passes weights to the open recorders.

        Args:
            weights: Weights before dropout.
            support: Support whose pairs the weights belong to; None if they do not belong to pairs, as in a gate.
            axes: Names of the axes. Default: the axes of the support.
            implied: True if the mechanism has no weights and these are implied; only recorders with `implied=True` get
                them.
            beside: `probabilities` and `alignment` of an `AttentionMap`, laid out like the weights.
        """
        if axes is None:
            if support is None:
                raise ValueError("weights without a support need the names of their axes")
            axes = support.axes
        for sink in self._sinks:
            if implied and not sink.recording.implied:
                continue
            sink.implied = implied
            if sink.recording.view is None:
                sink.take(weights, support, axes, beside)
            else:
                sink.take_rows(lambda rows, _: weights[:, :, rows], tuple(weights.shape), support)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def emit_rows(
        self, weigh: RowWeigher, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support
    ) -> None:
        """Passes weights to recorders with a view, computed by `weigh` for a few queries at a time."""
        for sink in self._sinks:
            sink.take_rows(weigh, (*query.shape[:-1], key.shape[-2]), support)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def affords(self, size: int, heads: int) -> bool:
        """Returns True if a recorder of whole maps has room for weights that have not been computed.

        If none has, each notes what it lacks.

        Args:
            size: Bytes of the weights of all heads.
            heads: Number of heads.
        """
        sinks = [sink for sink in self._sinks if sink.recording.view is None]
        sizes = [size // max(1, heads) * len(sink.heads or range(heads)) for sink in sinks]
        pairs = list(zip(sinks, sizes, strict=True))
        if any(sink.recording.has_room(size) for sink, size in pairs):
            return True
        for sink, size in pairs:
            sink.recording.affords(sink.site, size)
        return False

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def silent(self, reason: str) -> None:
        """Records the reason why a mechanism has no weights."""
        for sink in self._sinks:
            sink.recording.silent[sink.site] = reason

    def attach(self, sink: _Collector) -> None:
        self._sinks.append(sink)
        self._set_flags()

    def detach(self, sink: _Collector) -> None:
        self._sinks.remove(sink)
        self._set_flags()

    def _set_flags(self) -> None:
        self.is_open = bool(self._sinks)
        self.wants_all = any(sink.recording.view is None for sink in self._sinks)
        self.wants_rows = any(sink.recording.view is not None for sink in self._sinks)
        self.wants_gradient = any(sink.recording.grad for sink in self._sinks)
        self.wants_implied = any(sink.recording.implied for sink in self._sinks)

    def __getstate__(self) -> dict[str, object]:
        flags = ("is_open", "wants_gradient", "wants_all", "wants_rows", "wants_implied")
        return {**self.__dict__, "_sinks": [], **dict.fromkeys(flags, False)}


@dataclass
class Recording(Mapping[str, AttentionMap]):
    """The maps of one `with record(...)` block by the qualified name of their site, in the order of the model."""

    grad: bool = False
    budget: int | None = None
    view: Reduction | None = None
    implied: bool = False
    used: int = 0
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes of the maps that the budget left out, by site."""
    silent: dict[str, str] = field(default_factory=dict)
    """Reason why a site has no weights, by site."""
    _sinks: dict[str, _Collector] = field(default_factory=dict)

    def __getitem__(self, site: str) -> AttentionMap:
        return self._sinks[site].read()

    def __iter__(self) -> Iterator[str]:
        return (site for site, sink in self._sinks.items() if sink.calls)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def has_room(self, size: int) -> bool:
        """Returns True if the budget has so many bytes left."""
        return self.budget is None or self.used + size <= self.budget

    def affords(self, site: str, size: int) -> bool:
        """Takes so many bytes from the budget; if there are fewer, notes the map as left out and returns False."""
        if not self.has_room(size):
            self.cut[site] = self.cut.get(site, 0) + size
            return False
        self.used += size
        return True


@dataclass(frozen=True, eq=False)
class _Capture:
    """The weights of a site in one call."""

    weights: Tensor
    axes: tuple[str, ...]
    support: Support | None
    heads: tuple[int, ...]
    beside: Mapping[str, Any]


@dataclass(eq=False)
class _Collector:
    """Collects the weights of one site for one recorder."""

    site: str
    recording: Recording
    heads: Sequence[int] | None
    calls: list[_Capture] = field(default_factory=list)
    implied: bool = False

    def take(
        self,
        weights: Tensor,
        support: Support | None,
        axes: tuple[str, ...],
        beside: Mapping[str, Tensor],
    ) -> None:
        chosen: tuple[int, ...] = ()
        tensors = {"weights": weights, **beside}
        size = sum(x.numel() * x.element_size() for x in tensors.values())
        if "head" in axes:
            axis = axes.index("head")
            count = weights.shape[axis]
            chosen = self._select(count)
            size = size // count * len(chosen)
        if not self.recording.affords(self.site, size):
            return
        if not self.recording.grad:
            tensors = {name: x.detach() for name, x in tensors.items()}
        if chosen and self.heads is not None:
            index = torch.tensor(chosen, device=weights.device)
            tensors = {name: x.index_select(axis, index) for name, x in tensors.items()}
        self.calls.append(_Capture(tensors.pop("weights"), axes, support, chosen, tensors))

    def take_rows(self, weigh: RowWeigher, shape: tuple[int, ...], support: Support | None) -> None:
        view = self.recording.view
        if view is None:
            return
        if not isinstance(support, DenseSupport):
            layout = "no pairs" if support is None else type(support).__name__
            raise ValueError(
                f"{type(view).__name__} reduces maps over DenseSupport; {self.site} has {layout}, whose weights are "
                "few: record it without a view"
            )
        batch, heads, queries, keys = shape
        reduced, support = apply_reduction(view, weigh, (batch, heads, queries, keys), support)
        self.take(reduced.weights, support, view.axes, {} if reduced.keys is None else {"keys": reduced.keys})

    def _select(self, count: int) -> tuple[int, ...]:
        chosen = tuple(range(count)) if self.heads is None else tuple(self.heads)
        absent = [head for head in chosen if not 0 <= head < count]
        if absent:
            raise ValueError(f"{self.site} has heads 0 to {count - 1}, not {absent[0]}")
        return chosen

    def read(self) -> AttentionMap:
        if not self.calls:
            raise KeyError(self.site)
        first, view = self.calls[0], self.recording.view
        if len(self.calls) == 1:
            description = (first.weights, first.axes, first.support, first.heads)
            return AttentionMap(self.site, *description, view=view, implied=self.implied, **first.beside)
        steps = [call.weights for call in self.calls]
        beside = {name: [call.beside[name] for call in self.calls] for name in first.beside}
        supports = [call.support for call in self.calls if call.support is not None]
        return AttentionMap(
            self.site,
            _stack(steps),
            ("step", *first.axes),
            supports or None,
            first.heads,
            lengths=dict(zip(first.axes, zip(*(step.shape for step in steps), strict=True), strict=True)),
            view=view,
            implied=self.implied,
            **{name: _stack(tensors, filled=-1 if name == "keys" else 0) for name, tensors in beside.items()},
        )


def _stack(steps: list[Tensor], filled: int = 0) -> Tensor:
    """Stacks steps along a new axis; a step with fewer keys than the longest is padded."""
    longest = [max(sizes) for sizes in zip(*(step.shape for step in steps), strict=True)]
    return torch.stack([_pad(step, longest, filled) for step in steps])


def _pad(x: Tensor, sizes: list[int], filled: int) -> Tensor:
    missing = [size - length for size, length in zip(sizes, x.shape, strict=True)]
    return nn.functional.pad(x, [amount for count in reversed(missing) for amount in (0, count)], value=filled)


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
    budget: int | None = None,
    grad: bool = False,
    view: Reduction | None = None,
    implied: bool = False,
) -> Iterator[Recording]:
    """Collects the weights of every attention site of `model` that runs inside the `with` block.

    Without `grad`, outputs and gradients of the model do not change in any bit.

    Args:
        model: Model to observe.
        layers: Sites to observe: numbers in the order of the model (negative from the end), or patterns of names.
            Default: all sites.
        heads: Heads to keep. Default: all heads.
        budget: Largest size of all maps in bytes. Maps that the budget leaves out are listed in `Recording.cut`, with a
            warning. Default: no limit.
        grad: If True, keeps the gradient of the weights. Sites then compute weights explicitly, without fused kernels.
        view: Reduction of each map: `Rows`, `Pooled`, `TopK` or `Entropy`. A fused site then never stores a whole map,
            and memory is O(n). Default: whole maps.
        implied: If True, also computes the maps that mechanisms without weights imply, with `AttentionMap.implied` set;
            this costs O(n^2) for every mechanism.
    """
    if grad and view is not None:
        raise ValueError("grad=True keeps whole maps with their gradient; give it or a view, not both")
    recording = Recording(grad=grad, budget=budget, view=view, implied=implied)
    probes = _select(sites(model), layers)
    for site, probe in probes.items():
        recording._sinks[site] = _Collector(site, recording, heads)
        probe.attach(recording._sinks[site])
    try:
        yield recording
    finally:
        for site, probe in probes.items():
            probe.detach(recording._sinks[site])
    if recording.cut:
        missing = ", ".join(f"{site} ({size:,} bytes)" for site, size in recording.cut.items())
        warnings.warn(f"the budget of {budget:,} bytes left out: {missing}", stacklevel=3)


def sites(model: nn.Module) -> dict[str, AttentionProbe]:
    """Returns every attention site of a model by its qualified name, without the prefixes of wrappers."""
    by_name = {}
    for name, module in model.named_modules():
        if isinstance(module, AttentionProbe):
            parts = [part for part in name.split(".")[:-1] if part not in ("_orig_mod", "module")]
            by_name[".".join(parts)] = module
    return by_name


def _select(probes: dict[str, AttentionProbe], layers: Sequence[int | str] | None) -> dict[str, AttentionProbe]:
    if layers is None:
        return probes
    names = list(probes)
    chosen: set[str] = set()
    for layer in layers:
        if isinstance(layer, int):
            if not -len(names) <= layer < len(names):
                raise ValueError(f"the model has {len(names)} attention sites, there is no number {layer}")
            chosen.add(names[layer])
        else:
            matching = fnmatch.filter(names, layer)
            if not matching:
                raise ValueError(f"no attention site is called {layer!r}; there are: {', '.join(names)}")
            chosen.update(matching)
    return {name: probes[name] for name in names if name in chosen}
