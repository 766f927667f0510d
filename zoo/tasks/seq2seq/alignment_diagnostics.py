"""Whether an alignment has collapsed: measured in every validation, logged by name, and explained once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo import distributed

_PREFIX = "val/alignment_"
_SHORT = 4
"""Texts of fewer steps may well attend to one place."""
_PATIENCE = 3
"""Validations in a row; attention without training is spread out, too."""
_LIMITS = {"nothing": 0.9, "one_place": 0.9, "everywhere": 0.99}
_REASONS = {
    "nothing": (
        "the steps of a text have hardly any weight: monotonic attention passes the last place without a stop, and the "
        "text is written without its source. A larger attention.normalizer.offset lets it stop earlier (its sigmoid "
        "should be about the number of tokens for each place), a larger noise makes stops certain, "
        "attention.normalizer.inference=expected reads as training does"
    ),
    "one_place": (
        "all steps of a text attend to the same place. Guide the alignment at the beginning (penalty.locality, or "
        "penalty.guidance_cross_entropy where the data knows it), train with model.ctc, or lower the learning rate"
    ),
    "everywhere": (
        "every step attends to all places alike, and the text is written of their mean. Guide the alignment at the "
        "beginning (penalty.locality, or penalty.guidance_cross_entropy where the data knows it), or begin with "
        "shorter examples"
    ),
}


class AlignmentCollapseMonitor(nn.Module):
    """Three measures of an alignment, each from 0 to 1, where 1 is a collapse.

    `nothing` is the share of the weight that the steps lack, `one_place` the largest share of one place in all weight
    of a text, and `everywhere` the entropy of a step as a share of the largest.

    Args:
        site: Name of the site that aligns.
        compares: False for attention that does not depend on its source, whose weights are spread on purpose.
    """

    def __init__(self, site: str, *, compares: bool) -> None:
        super().__init__()
        self.site = site
        names = [name for name in _LIMITS if compares or name != "everywhere"]
        self.measures = nn.ModuleDict({name: distributed.GlobalMean() for name in names})
        self._in_a_row = dict.fromkeys(names, 0)

    def update(self, weights: Float[Tensor, "b n k"], steps: Bool[Tensor, "b n"], places: Bool[Tensor, "b k"]) -> None:
        values = measure(weights, steps, places)
        for name, metric in self.to_log().items():
            metric.update(values[name.removeprefix(_PREFIX)])

    def to_log(self) -> Mapping[str, Any]:
        """Returns the measures as they are logged."""
        return {f"{_PREFIX}{name}": metric for name, metric in self.measures.items()}

    def verdicts(self, metrics: Mapping[str, Any]) -> list[str]:
        """Returns a sentence for each kind of collapse in the metrics of a validation."""
        return [
            f"The alignment of {self.site} is not learned ({name}={metrics[name]:.2f}): "
            f"{_REASONS[name.removeprefix(_PREFIX)]}."
            for name in self.to_log()
            if metrics.get(name, 0.0) > _LIMITS[name.removeprefix(_PREFIX)]
        ]

    def notice(self) -> None:
        """Warns, once for each kind, of a collapse in several validations in a row."""
        for logged, measure in self.to_log().items():
            name, value = logged.removeprefix(_PREFIX), float(measure.compute())
            self._in_a_row[name] = self._in_a_row[name] + 1 if value > _LIMITS[name] else 0
            if self._in_a_row[name] == _PATIENCE:
                warnings.warn(
                    f"the alignment of {self.site} has collapsed ({logged}={value:.2f} in {_PATIENCE} "
                    f"validations): {_REASONS[name]}",
                    UserWarning,
                    stacklevel=2,
                )
                self._in_a_row[name] = -(10**9)


def measure(
    weights: Float[Tensor, "b n k"], steps: Bool[Tensor, "b n"], places: Bool[Tensor, "b k"]
) -> dict[str, Float[Tensor, " _"]]:
    """Returns the measures: `nothing` and `everywhere` of each step, `one_place` of each text."""
    weights = weights.double() * (steps.unsqueeze(2) & places.unsqueeze(1))
    total = weights.sum(2)
    shares = weights / total.clamp(min=1e-12).unsqueeze(2)
    entropy = -torch.xlogy(shares, shares).sum(2) / places.sum(1, keepdim=True).clamp(min=2).log()
    by_place = weights.sum(1)
    largest = by_place.amax(1) / by_place.sum(1).clamp(min=1e-12)
    return {
        "nothing": 1.0 - total[steps],
        "one_place": largest * (steps.sum(1) >= _SHORT) * (places.sum(1) > 1),
        "everywhere": entropy[steps],
    }
