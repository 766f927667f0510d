"""Attention-free layers: the weights of positions differ by channel and do not depend on the query."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mixers.sequence import Mixer, MixerState, Sequences, sequences
from zoo.attention.mixers.state_space import carry_on
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges

_ROWS = 32
_REASON = "its weights differ by channel and do not depend on the query, which only gates the result"


@validate_ranges
class AttentionFree(Mixer):
    """y_t = sigmoid(q_t) sum_s exp(k_s + w_ts) v_s / sum_s exp(k_s + w_ts), per channel (Zhai et al. 2021, eq. 2).

    Without a window this is AFT-full. With one it is AFT-local: w_ts = 0 if |t - s| >= `window`, and s still counts.
    w_ts = a_t · b_s is learned for absolute positions, which count from the start of the padded sequence. The sums are
    over exp(x - max x), which is exact while the biases and keys of a channel differ by less than 80.

    Cost: O(n^2 d) time, O(n^2 + n d) memory; causal training O(n^2 d) memory; a step O(n d).
    Weights: none; the query gates channels.

    Args:
        dim: Width of the input and of the output.
        length: Number of positions that have a bias, the length of the longest sequence.
        window: Distance from which the bias is zero. Default: no limit.
        rank: Width of a_t and b_s.
    """

    def __init__(
        self, *, dim: PositiveInt, length: PositiveInt, window: PositiveInt | None = None, rank: PositiveInt = 128
    ) -> None:
        super().__init__()
        self.window = window
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.at_query = nn.Parameter(torch.randn(length, rank) * 0.01)
        self.at_key = nn.Parameter(torch.randn(length, rank) * 0.01)

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        key, value = _keys(self.key, self.value, x, of)
        return self._gate(x, key, value, of), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        of = sequences(self, support, x, step=True)
        key, value = _keys(self.key, self.value, x, of)
        if state is not None:
            key, value = torch.cat([state.parts[0], key], 1), torch.cat([state.parts[1], value], 1)
        return self._gate(x, key, value, of), MixerState((key, value))

    def _gate(
        self, x: Float[Tensor, "b q d"], key: Float[Tensor, "b k d"], value: Float[Tensor, "b k d"], of: Sequences
    ) -> Float[Tensor, "b q d"]:
        if self.probe.is_open:
            self.probe.silent(_REASON)
        if not x.numel():
            return x
        with torch.autocast(x.device.type, enabled=False):
            mean = _weighted_means(key, value, self._biases(x.shape[1], key.shape[1]).to(key.dtype), of.causal)
        return of.zero_masked(self.out(self.query(of.zero_masked(x)).sigmoid() * mean.to(x.dtype)))

    def _biases(self, queries: int, keys: int) -> Float[Tensor, "q k"]:
        if keys > len(self.at_key):
            raise ValueError(f"AttentionFree has biases for {len(self.at_key)} positions, not for {keys}")
        biases = upcast(self.at_query[keys - queries : keys]) @ upcast(self.at_key[:keys]).T
        if self.window is None:
            return biases
        at = torch.arange(keys, device=biases.device)
        return biases.masked_fill((at[keys - queries :, None] - at).abs() >= self.window, 0.0)


@validate_ranges
class AttentionFreeSimple(Mixer):
    """y_t = sigmoid(q_t) sum_s exp(k_s) v_s / sum_s exp(k_s), per channel (Zhai et al. 2021, eq. 5: AFT-simple).

    Cost: O(n d) time and memory, causal O(n log n d); a step O(d).
    Weights: none; the query gates channels.

    Args:
        dim: Width of the input and of the output.
    """

    def __init__(self, *, dim: PositiveInt) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(
        self, x: Float[Tensor, "b n d"], support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], None]:
        of = sequences(self, support, x)
        if of.causal:
            return self._causal(x, of, None)[0], None
        key, value = _keys(self.key, self.value, x, of)
        with torch.autocast(x.device.type, enabled=False):
            mean = (key.softmax(1) * value).sum(1, keepdim=True)
        return self._gate(x, mean, of), None

    def step(
        self, x: Float[Tensor, "b n d"], state: MixerState | None = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        return self._causal(x, sequences(self, support, x, step=True), state)

    def _causal(
        self, x: Float[Tensor, "b n d"], of: Sequences, state: MixerState | None
    ) -> tuple[Float[Tensor, "b n d"], MixerState]:
        """Computes both sums as recurrences, which are rescaled whenever the highest key so far rises."""
        key, value = _keys(self.key, self.value, x, of)
        if state is None:
            lowest = value.new_full((len(x), value.shape[2]), _lowest(value))
            state = MixerState((lowest, value.new_zeros(len(x), 2 * value.shape[2])))
        top, sums = state.parts
        if not x.shape[1]:
            return x, state
        with torch.autocast(x.device.type, enabled=False):
            tops = torch.cat([top.unsqueeze(1), key.detach()], 1).cummax(1).values
            decay = (tops[:, :-1] - tops[:, 1:]).exp()
            new = (key - tops[:, 1:]).exp()
            sums = carry_on(decay.repeat(1, 1, 2), torch.cat([new * value, new], -1), sums)
            total, count = sums.chunk(2, -1)
            mean = total / count
        return self._gate(x, mean, of), MixerState((tops[:, -1], sums[:, -1]))

    def _gate(self, x: Float[Tensor, "b n d"], mean: Float[Tensor, "b #n d"], of: Sequences) -> Float[Tensor, "b n d"]:
        if self.probe.is_open:
            self.probe.silent(_REASON)
        return of.zero_masked(self.out(self.query(of.zero_masked(x)).sigmoid() * mean.to(x.dtype)))


def _keys(
    to_key: nn.Linear, to_value: nn.Linear, x: Float[Tensor, "b n d"], of: Sequences
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n d"]]:
    """Projects keys and values; padding gets the lowest key and a zero value, so that it adds nothing to the sums."""
    x = of.zero_masked(x)
    key, value = upcast(to_key(x)), of.zero_masked(upcast(to_value(x)))
    return key if of.real is None else key.masked_fill(~of.real, _lowest(key)), value


def _lowest(x: Tensor) -> float:
    """Returns half of the lowest number, so that sums and differences with biases stay finite."""
    return torch.finfo(x.dtype).min / 2


def _weighted_means(
    key: Float[Tensor, "b k d"], value: Float[Tensor, "b k d"], biases: Float[Tensor, "q k"], causal: bool
) -> Float[Tensor, "b q d"]:
    """Computes the weighted mean of the values for each query.

    Causal queries are computed in blocks: keys before the block are summed by matrix products, the keys inside it
    pair by pair.
    """
    if not causal:
        return _sums_of_all(key, value, biases).mean()
    before = len(key[0]) - len(biases)
    means = []
    for start in range(0, len(biases), _ROWS):
        rows = biases[start : start + _ROWS]
        begin, end = before + start, before + start + len(rows)
        sums = _sums_of_past(key[:, begin:end], value[:, begin:end], rows[:, begin:end])
        if begin:
            sums = sums.plus(_sums_of_all(key[:, :begin], value[:, :begin], rows[:, :begin]))
        means.append(sums.mean())
    return torch.cat(means, 1)


class _Sums(NamedTuple):
    """The sums over s of exp(k_s + w_ts - top) v_s (`total`) and exp(k_s + w_ts - top) (`mass`)."""

    top: Float[Tensor, "b q d"]
    total: Float[Tensor, "b q d"]
    mass: Float[Tensor, "b q d"]

    def plus(self, other: _Sums) -> _Sums:
        top = torch.maximum(self.top, other.top)
        own_scale, other_scale = (self.top - top).exp(), (other.top - top).exp()
        return _Sums(
            top, own_scale * self.total + other_scale * other.total, own_scale * self.mass + other_scale * other.mass
        )

    def mean(self) -> Float[Tensor, "b q d"]:
        return self.total / self.mass.clamp(min=torch.finfo(self.mass.dtype).tiny)


def _sums_of_all(key: Float[Tensor, "b k d"], value: Float[Tensor, "b k d"], biases: Float[Tensor, "q k"]) -> _Sums:
    top_key, top_bias = key.detach().amax(1, keepdim=True), biases.detach().amax(1, keepdim=True)
    of_key, of_bias = (key - top_key).exp(), (biases - top_bias).exp()
    return _Sums(top_key + top_bias, of_bias @ (of_key * value), of_bias @ of_key)


def _sums_of_past(key: Float[Tensor, "b q d"], value: Float[Tensor, "b q d"], biases: Float[Tensor, "q q"]) -> _Sums:
    """Computes the sums of queries over their own positions: each query sees the keys up to its own."""
    later = torch.ones_like(biases, dtype=torch.bool).triu(1).unsqueeze(-1)
    scores = (key.unsqueeze(1) + biases.unsqueeze(-1)).masked_fill(later, torch.finfo(key.dtype).min)
    top = scores.detach().amax(2)
    weights = (scores - top.unsqueeze(2)).exp().masked_fill(later, 0.0)
    return _Sums(top, (weights * value.unsqueeze(1)).sum(2), weights.sum(2))
