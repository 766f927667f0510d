"""How probable a text is as the beginning of what a CTC branch has heard: a decoder without a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.attention_state import select_beams


class CTCOutput(NamedTuple):
    """What a CTC branch has heard of a batch of recordings."""

    log_probability: Float[Tensor, "b t v"]
    """Of each symbol at each place."""
    lengths: Int[Tensor, " b"]
    """Number of places of each recording."""


@dataclass(frozen=True, eq=False)
class PrefixState:
    """The forward variables of the text of each hypothesis, in fp64: log-probabilities of all paths of a place.

    Args:
        log_probability, lengths: See `CTCOutput`.
        symbol: Paths that end with the last token of the text, before the first place and after each place.
        blank: The same of paths that end with a blank.
        last: The last token; -1 before the first.
        so_far: Log-probability that a text begins in this way.
        begun: False before the first step, which reads no token of the text.
    """

    log_probability: Float[Tensor, "b t v"]
    lengths: Int[Tensor, " b"]
    symbol: Float[Tensor, "b w t1"]
    blank: Float[Tensor, "b w t1"]
    last: Int[Tensor, "b w"]
    so_far: Float[Tensor, "b w"]
    begun: bool = False


class CTCPrefixes:
    """log p(g·c... | X) - log p(g... | X), with p summed over all paths of CTC (Watanabe et al. 2017, algorithm 2).

    A `Decoder` whose scores are log-probabilities of the next token: those of all tokens and of the end sum to one, and
    the scores of a whole text sum to its log-probability under CTC. The recursions of the paper over places are
    computed at once, as cumulative sums: with S_t = sum_{s<=t} log p_s, the solution of
    x_t = p_t (x_{t-1} + y_t) is log x_t = S_t + logcumsumexp_t(log y_t + log p_t - S_t).

    Args:
        blank: Number of the blank, which is never written.
        end: Number of the token that ends a text.
    """

    is_scored = True

    def __init__(self, *, blank: int, end: int) -> None:
        self.blank, self.end = blank, end

    def start(self, source: CTCOutput) -> PrefixState:
        wide = source.log_probability.double()
        blank = F.pad(wide[..., self.blank].cumsum(1), (1, 0)).unsqueeze(1)
        last = source.lengths.new_full((len(wide), 1), -1)
        return PrefixState(
            log_probability=wide,
            lengths=source.lengths,
            symbol=torch.full_like(blank, -torch.inf),
            blank=blank,
            last=last,
            so_far=wide.new_zeros(last.shape),
        )

    def step(self, tokens: Int[Tensor, "b w"], state: PrefixState) -> tuple[Float[Tensor, "b w v"], PrefixState]:
        state = self._append(tokens, state) if state.begun else replace(state, begun=True)
        found = self._score_next(state) - state.so_far.unsqueeze(-1)
        # what cannot be goes on to be impossible, and not to be undefined
        found = found.masked_fill((state.so_far == -torch.inf).unsqueeze(-1), -torch.inf)
        return found.clamp(max=0.0), state  # rounding aside, none is above 0

    def reorder(self, state: PrefixState, beams: Int[Tensor, "b w2"]) -> PrefixState:
        parts: dict[str, Any] = {
            name: select_beams(getattr(state, name), beams) for name in ("symbol", "blank", "last", "so_far")
        }
        return replace(state, **parts)

    def select(self, state: PrefixState, sentences: Int[Tensor, " s"]) -> PrefixState:
        names = ("log_probability", "lengths", "symbol", "blank", "last", "so_far")
        parts: dict[str, Any] = {name: getattr(state, name).index_select(0, sentences) for name in names}
        return replace(state, **parts)

    def _score_next(self, state: PrefixState) -> Float[Tensor, "b w v"]:
        """Returns log p(g·c... | X) of each token c, log p(g | X) at the end, and minus infinity at the blank."""
        probability = state.log_probability.exp().masked_fill(self._beyond(state).unsqueeze(-1), 0.0)
        either, after_blank = self._sum_entries(state)
        found = _log_product(either, probability)
        # the last token again needs a blank between
        own = state.last.clamp(min=0).unsqueeze(1)
        again = _log_product(after_blank, probability.gather(2, own.expand(-1, probability.shape[1], -1)), paired=True)
        repeated = torch.where(state.last < 0, found.gather(2, own.mT).squeeze(2), again)  # nothing is before the first
        found = found.scatter(2, own.mT, repeated.unsqueeze(2))
        at = state.lengths.view(-1, 1, 1).expand(-1, state.last.shape[1], 1)
        found[..., self.end] = torch.logaddexp(state.symbol, state.blank).gather(2, at).squeeze(2)
        found[..., self.blank] = -torch.inf
        return found

    def _append(self, tokens: Int[Tensor, "b w"], state: PrefixState) -> PrefixState:
        """Returns the state of the hypotheses with one more token each."""
        either, after_blank = self._sum_entries(state)
        entered = torch.where((tokens == state.last).unsqueeze(2), after_blank, either)
        spoken = state.log_probability.mT  # (b,v,t)
        own = spoken.gather(1, tokens.unsqueeze(2).expand(-1, -1, spoken.shape[2]))
        # gamma^n_t(h) = p_t(c) (gamma^n_{t-1}(h) + phi_t)
        symbol = F.pad(_recursion(own, entered), (1, 0), value=-torch.inf)
        # gamma^b_t(h) = p_t(blank) (gamma^b_{t-1}(h) + gamma^n_{t-1}(h))
        silent = spoken[:, self.blank].unsqueeze(1).expand_as(own)
        blank = F.pad(_recursion(silent, symbol[..., :-1]), (1, 0), value=-torch.inf)
        # psi(h) = sum_t phi_t p_t(c)
        so_far = (entered + own).masked_fill(self._beyond(state).unsqueeze(1), -torch.inf).logsumexp(2)
        return replace(state, symbol=symbol, blank=blank, last=tokens, so_far=so_far)

    def _sum_entries(self, state: PrefixState) -> tuple[Float[Tensor, "b w t"], Float[Tensor, "b w t"]]:
        """Returns log phi_t: the paths up to the place before, from which the next token may begin at place t.

        Returns:
            Those for a token that differs from the last one, and those for the last one again.
        """
        return torch.logaddexp(state.symbol, state.blank)[..., :-1], state.blank[..., :-1]

    def _beyond(self, state: PrefixState) -> Tensor:
        """Returns the mask (b,t) of the places behind the end of each recording."""
        places = torch.arange(state.log_probability.shape[1], device=state.lengths.device)
        return places >= state.lengths.unsqueeze(1)


def _recursion(own: Float[Tensor, "b w t"], entered: Float[Tensor, "b w t"]) -> Float[Tensor, "b w t"]:
    """Returns log x of x_t = p_t (x_{t-1} + y_t), x_0 = 0, for log p and log y."""
    passed = own.cumsum(-1)
    return passed + (entered + own - passed).logcumsumexp(-1)


def _log_product(
    log_left: Float[Tensor, "b w t"], right: Float[Tensor, "b t v"], *, paired: bool = False
) -> Float[Tensor, "b w *v"]:
    """Returns log sum_t exp(left_wt) right_tv; if `paired`, of hypothesis w with column w alone."""
    largest = log_left.amax(-1, keepdim=True).nan_to_num(neginf=0.0)
    left = (log_left - largest).exp()
    if paired:
        return (left * right.mT).sum(-1).log() + largest.squeeze(-1)
    return (left @ right).log() + largest
