"""How much of the gradient of a written token reaches each place of the source, by the distance that it has to go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.maps import plots
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.tasks.seq2seq.decoding_config import begins

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class GradientByDistance(NamedTuple):
    """Mean norms of gradients at one distance."""

    distance: int
    pairs: int
    gradient: float
    """Over all pairs of a token and a place of its source."""
    origins: int
    gradient_of_origin: float | None
    """Over the pairs that are gold: a token and the place that it was made of."""


class GradientDistanceTally:
    """Mean norms of the gradient of the logit of y_t with respect to the input x_j, by distance.

    The distance is the number of steps from reading x_j to writing y_t along the source and the text, k - j + t: the
    way through a recurrent network that does not attend.
    """

    def __init__(self) -> None:
        self._sums: dict[int, list[float]] = {}

    def add(self, norms: Float[Tensor, "n k"], gold: Tensor | None = None) -> None:
        """Adds a text: norms of its tokens' gradients, and a mask of the pairs that are gold."""
        places = norms.shape[1]
        for step, row in enumerate(norms.tolist()):
            for place, norm in enumerate(row):
                is_origin = gold is not None and bool(gold[step, place])
                sums = self._sums.setdefault(places - place + step, [0.0] * 4)
                sums[0] += 1
                sums[1] += norm
                sums[2] += is_origin
                sums[3] += norm * is_origin

    def rows(self) -> list[GradientByDistance]:
        return [
            GradientByDistance(
                distance, int(count), total / count, int(origins), of_origin / origins if origins else None
            )
            for distance, (count, total, origins, of_origin) in sorted(self._sums.items())
        ]


def gradient_norms(net: Seq2SeqModel, source: Any, tokens: Sequence[int]) -> Float[Tensor, "n k"]:
    """Returns the norm of the gradient of each token's logit at each place of the source.

    The logit is that above the mean of all tokens: where a model is sure, the gradient of the probability is zero.

    Args:
        net: The net, in evaluation mode.
        source: A batch of one example, with `some`.
        tokens: A text, with its end.
    """
    count = len(tokens)
    copies = source.select(torch.zeros(count, dtype=torch.long, device=source.lengths.device))
    targets = torch.tensor(tokens, device=source.lengths.device)
    read = torch.cat([begins(source), targets[:-1]]).expand(count, -1)
    with torch.enable_grad(), inputs_of(net) as found:
        steps = torch.arange(count, device=targets.device)
        logits = net.head(net.features(copies, read)[steps, steps])  # copy t is asked for token t alone
        above = logits.gather(1, targets.unsqueeze(1)).squeeze(1) - logits.mean(1)
        (gradient,) = torch.autograd.grad(above.sum(), found)
    norms: Tensor = gradient.norm(dim=-1).view(count, -1)
    return norms


@contextmanager
def inputs_of(net: Seq2SeqModel) -> Iterator[list[Tensor]]:
    """A context in which the inputs of a net begin a graph; each pass adds its own to the list."""
    found: list[Tensor] = []

    def begin_here(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        found.append(out.detach().requires_grad_())
        return found[-1]

    handle = net.inputs.register_forward_hook(begin_here)
    try:
        yield found
    finally:
        handle.remove()


def reach_figure(rows: Sequence[GradientByDistance], *, title: str) -> Figure:
    """Draws the mean norms over the distance, on a logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    every = [row for row in rows if row.gradient > 0]
    axes.plot([row.distance for row in every], [row.gradient for row in every], color="#3f78b5", label="all pairs")
    known = [(row.distance, row.gradient_of_origin) for row in rows if row.gradient_of_origin]
    if known:
        axes.plot(*zip(*known, strict=True), color=plots.GOLD, label="pairs of a word and its origin (gold)")
    axes.set_yscale("log")
    axes.set_xlabel("steps from reading to writing", color=plots.QUIET, fontsize=9)
    axes.set_ylabel("mean norm of the gradient", color=plots.QUIET, fontsize=9)
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=plots.INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11, color=plots.INK, parse_math=False)
    return figure
