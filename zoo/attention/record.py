"""Attention observed without being changed: a Tap at every site, `record` to open them, AttentionMaps to read."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.supports import Support

RowWeigher = Callable[[slice, Support], Tensor]


class Tap(nn.Module):
    """The place of a site where its weights come out while a recorder is open.

    `is_open` and `wants_gradient` are plain flags and `emit` is outside of compiled graphs: under `torch.compile` an
    open recorder costs one more graph, not one a call.
    """

    is_open: bool
    wants_gradient: bool
    wants_all: bool
    wants_rows: bool

    def __init__(self) -> None:
        super().__init__()
        self._sinks: list[_Sink] = []
        self._set_flags()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def emit(self, weights: Float[Tensor, "..."], support: Support) -> None:
        """Weights before dropout, and the support whose pairs they belong to."""
        for sink in self._sinks:
            sink.take(weights, support)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def emit_rows(self, weigh: RowWeigher, query: Tensor, key: Tensor, support: Support) -> None:
        """Weights that are never held whole: `weigh(rows, support of those rows)` gives those of some queries."""
        raise NotImplementedError

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def silent(self, reason: str) -> None:
        """A mechanism without weights says so; it never invents a map."""
        for sink in self._sinks:
            sink.recording.silent[sink.site] = reason

    def attach(self, sink: _Sink) -> None:
        self._sinks.append(sink)
        self._set_flags()

    def detach(self, sink: _Sink) -> None:
        self._sinks.remove(sink)
        self._set_flags()

    def _set_flags(self) -> None:
        self.is_open = bool(self._sinks)
        self.wants_all = self.is_open
        self.wants_rows = False
        self.wants_gradient = any(sink.recording.grad for sink in self._sinks)

    def __getstate__(self) -> dict[str, object]:
        closed = {"is_open": False, "wants_gradient": False, "wants_all": False, "wants_rows": False}
        return {**self.__dict__, "_sinks": [], **closed}


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one site.

    Args:
        site: Qualified name of the module that attends.
        weights: Before dropout.
        axes: The name of each axis of `weights`: batch, head, query, key; or edge, head; a leading `step` where a
            decoder called the site once per step.
        support: Which pairs exist: for edges also whose weight each row is. A list, one a step, with a step axis.
        heads: The number of each kept head.
    """

    site: str
    weights: Tensor
    axes: tuple[str, ...]
    support: Support | list[Support]
    heads: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.weights.numel() * self.weights.element_size()

    def mean_heads(self) -> AttentionMap:
        """The average of the heads, as one."""
        axis = self.axes.index("head")
        return replace(self, weights=self.weights.mean(axis, keepdim=True), heads=(-1,))

    def head(self, number: int) -> AttentionMap:
        axis = self.axes.index("head")
        if number not in self.heads:
            raise ValueError(f"{self.site} has heads {list(self.heads)}, not {number}")
        position = self.heads.index(number)
        return replace(self, weights=self.weights.narrow(axis, position, 1), heads=(number,))


@dataclass
class Recording(Mapping[str, AttentionMap]):
    """The maps of one `with record(...)`, by the qualified name of their site, in the order of the model."""

    grad: bool = False
    budget: int | None = None
    used: int = 0
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes that the budget did not allow, by site."""
    silent: dict[str, str] = field(default_factory=dict)
    """Why a site has no weights."""
    _sinks: dict[str, _Sink] = field(default_factory=dict)

    def __getitem__(self, site: str) -> AttentionMap:
        return self._sinks[site].read()

    def __iter__(self) -> Iterator[str]:
        return (site for site, sink in self._sinks.items() if sink.calls)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def affords(self, site: str, size: int) -> bool:
        if self.budget is not None and self.used + size > self.budget:
            self.cut[site] = self.cut.get(site, 0) + size
            return False
        self.used += size
        return True


@dataclass(eq=False)
class _Sink:
    """Where the weights of one site go for one recorder."""

    site: str
    recording: Recording
    heads: Sequence[int] | None
    calls: list[tuple[Tensor, Support, tuple[int, ...]]] = field(default_factory=list)

    def take(self, weights: Tensor, support: Support) -> None:
        axis = 1  # (b,h,q,k) and (e,h) alike
        count = weights.shape[axis]
        chosen = tuple(range(count)) if self.heads is None else tuple(self.heads)
        absent = [head for head in chosen if not 0 <= head < count]
        if absent:
            raise ValueError(f"{self.site} has heads 0 to {count - 1}, not {absent[0]}")
        size = weights.numel() // count * len(chosen) * weights.element_size()
        if not self.recording.affords(self.site, size):
            return
        if not self.recording.grad:
            weights = weights.detach()
        if self.heads is not None:
            weights = weights.index_select(axis, torch.tensor(chosen, device=weights.device))
        self.calls.append((weights, support, chosen))

    def read(self) -> AttentionMap:
        if not self.calls:
            raise KeyError(self.site)
        weights, support, heads = self.calls[0]
        axes = support.axes
        if len(self.calls) == 1:
            return AttentionMap(self.site, weights, axes, support, heads)
        steps = _stack([step for step, _, _ in self.calls])
        return AttentionMap(self.site, steps, ("step", *axes), [each for _, each, _ in self.calls], heads)


def _stack(steps: list[Tensor]) -> Tensor:
    """One more axis for the steps; a decoder's own keys grow with them, and what a step lacks weighs nothing."""
    longest = [max(sizes) for sizes in zip(*(step.shape for step in steps), strict=True)]
    return torch.stack([_padded(step, longest) for step in steps])


def _padded(x: Tensor, sizes: list[int]) -> Tensor:
    missing = [size - length for size, length in zip(sizes, x.shape, strict=True)]
    return nn.functional.pad(x, [amount for count in reversed(missing) for amount in (0, count)])


@contextmanager
def record(
    model: nn.Module,
    *,
    layers: Sequence[int | str] | None = None,
    heads: Sequence[int] | None = None,
    budget: int | None = None,
    grad: bool = False,
) -> Iterator[Recording]:
    """Collects the weights of every attention site of `model` that runs inside the `with`.

    Args:
        layers: Sites to observe: numbers in the order of the model (negative from the end), or patterns of names.
        heads: Heads to keep.
        budget: Bytes that the maps may take; what did not fit is warned of and listed in `Recording.cut`.
        grad: Keep the weights' gradient. Sites then take the written-out path instead of a fused kernel.
    """
    recording = Recording(grad=grad, budget=budget)
    taps = _chosen(sites(model), layers)
    for site, tap in taps.items():
        recording._sinks[site] = _Sink(site, recording, heads)
        tap.attach(recording._sinks[site])
    try:
        yield recording
    finally:
        for site, tap in taps.items():
            tap.detach(recording._sinks[site])
    if recording.cut:
        missing = ", ".join(f"{site} ({size:,} bytes)" for site, size in recording.cut.items())
        warnings.warn(f"the budget of {budget:,} bytes left out: {missing}", stacklevel=3)


def sites(model: nn.Module) -> dict[str, Tap]:
    """Every attention site of a model by its qualified name, without what wrappers add to names."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Tap):
            parts = [part for part in name.split(".")[:-1] if part not in ("_orig_mod", "module")]
            found[".".join(parts)] = module
    return found


def _chosen(taps: dict[str, Tap], layers: Sequence[int | str] | None) -> dict[str, Tap]:
    if layers is None:
        return taps
    names = list(taps)
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
    return {name: taps[name] for name in names if name in chosen}
