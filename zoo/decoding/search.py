"""The loop of beam search, greedy search and sampling, which differ only in how they choose candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.attention.attention_state import select_beams
from zoo.decoding.constraints import Constraints
from zoo.decoding.decoder import Decoder, get_coverage, next_scores
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.ranking import Ranking


class Candidates(NamedTuple):
    """Hypotheses with one more token, best first."""

    log_probability: Float[Tensor, "b c"]
    """Log-probability of each candidate; minus infinity if there is none."""
    origin: Int[Tensor, "b c"]
    """Index of the hypothesis that each candidate extends."""
    token: Int[Tensor, "b c"]


class Choose(Protocol):
    """Chooses candidates for each sentence.

    Args:
        total: Log-probabilities of the hypotheses; minus infinity if a sentence has fewer hypotheses than others.
        following: Log-probabilities of the next tokens, minus infinity at forbidden ones.
        sentences: Indices of the sentences that are left.
    """

    def __call__(
        self,
        total: Float[Tensor, "b w"],
        following: Float[Tensor, "b w v"],
        sentences: Int[Tensor, " b"],
    ) -> Candidates: ...


@torch.inference_mode()
def search(
    decoder: Decoder[Any, Any],
    state: Any,
    begin: Int[Tensor, " b"],
    choose: Choose,
    *,
    end: int,
    longest: int | Sequence[int] | Int[Tensor, " b"],
    width: int,
    best: int,
    ranking: Ranking,
    constraints: Constraints,
) -> list[list[Hypothesis]]:
    """Extends the hypotheses of every sentence until none of them can change its result; see `BeamSearch`."""
    limits = torch.as_tensor(longest, device=begin.device).expand(len(begin))
    if len(limits) and int(limits.min()) < 1:
        raise ValueError(f"longest must be 1 or more, got {int(limits.min())}")
    finished = FinishedHypotheses(len(begin), best, ranking, decoder)
    sentences = torch.arange(len(begin), device=begin.device)
    numbers, places = torch.arange(width, device=begin.device), torch.full_like(begin.unsqueeze(1), width)
    tokens, history = begin.unsqueeze(1), begin.new_empty(len(begin), 1, 0)
    total = torch.zeros(len(begin), 1, dtype=torch.float64, device=begin.device)
    length = 0
    while len(sentences):
        length += 1
        logits, new_state = decoder.step(tokens, state)
        following = next_scores(decoder, logits, new_state, end)
        candidates = choose(total, constraints.apply(following, history, end), sentences)
        if candidates.log_probability.isnan().any():
            raise ValueError(f"the decoder's logits have no probabilities at step {length}: they are NaN or infinite")
        # a hypothesis that ends keeps its place in the beam; the others go on
        exists = (numbers[: candidates.token.shape[1]] < places) & (candidates.log_probability > -torch.inf)
        is_end = candidates.token == end
        ends, lives = exists & is_end, exists & ~is_end
        places = places - ends.sum(1, keepdim=True)
        finished.add(candidates, ends, history, sentences, new_state, length, ended=True)
        is_last, is_stuck = limits == length, ~lives.any(1)
        done = is_last | is_stuck
        if finished.has_best:
            # the best that a sentence can still reach
            reach = candidates.log_probability.masked_fill(~lives, -torch.inf).amax(1)
            done = done | (ranking.upper_bound(reach, limits) <= finished.lowest_score(sentences))
        if done.any():
            is_empty = finished.is_empty(sentences)
            unfinished = lives & (is_last & is_empty).unsqueeze(1)
            finished.add(candidates, unfinished, history, sentences, new_state, length, ended=False)
            stuck = (total > -torch.inf) & (is_stuck & is_empty).unsqueeze(1)
            stuck_candidates = Candidates(total, _make_indices(total), tokens)
            finished.add(stuck_candidates, stuck, history[..., :-1], sentences, state, length - 1, ended=False)
            remaining = (~done).nonzero().squeeze(1)
            candidates = Candidates(*(field[remaining] for field in candidates))
            sentences, places, limits, lives, history = (
                x[remaining] for x in (sentences, places, limits, lives, history)
            )
            if len(remaining):
                new_state = decoder.select(new_state, remaining)
        if len(sentences):
            candidates, is_same = _keep_alive(candidates, lives, total.shape[1])
            state = new_state if is_same else decoder.reorder(new_state, candidates.origin)
            total, tokens = candidates.log_probability, candidates.token
            history = history if is_same else select_beams(history, candidates.origin)
            history = torch.cat([history, tokens.unsqueeze(2)], 2)
    return [finished.best_hypotheses(number) for number in range(len(begin))]


class FinishedHypotheses:
    """The hypotheses that have been found for each sentence, and the score that further ones must exceed."""

    def __init__(self, sentences: int, best: int, ranking: Ranking, decoder: Decoder[Any, Any]) -> None:
        self.best, self.ranking, self.decoder = best, ranking, decoder
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._least = [-torch.inf] * sentences
        self.has_best = False
        """True if `best` hypotheses of a sentence have been found, which others must exceed."""

    def add(
        self,
        candidates: Candidates,
        mask: Bool[Tensor, "b c"],
        history: Int[Tensor, "b w t"],
        sentences: Int[Tensor, " b"],
        state: Any,
        length: int,
        *,
        ended: bool,
    ) -> None:
        """Adds some of the candidates.

        Args:
            candidates: Candidates of each sentence.
            mask: Mask of the candidates to add.
            history: Tokens of the hypotheses that candidates extend.
            sentences: Index of each row's sentence.
            state: State of the decoder after the step that made the candidates; its hypotheses are those of `history`.
            length: Number of tokens of a candidate.
            ended: True if the last token of the candidates is the end.
        """
        rows, columns = mask.nonzero(as_tuple=True)
        if not len(rows):
            return
        origin, log_probability = candidates.origin[rows, columns], candidates.log_probability[rows, columns]
        weights = get_coverage(self.decoder, state)[rows, origin] if self.ranking.coverage else None
        scores = self.ranking.score(log_probability, length, weights)
        tokens = history[rows, origin]
        if not ended and length:
            tokens = torch.cat([tokens, candidates.token[rows, columns].unsqueeze(1)], 1)
        entries = zip(sentences[rows].tolist(), tokens.tolist(), scores.tolist(), log_probability.tolist(), strict=True)
        for sentence, text, score, log_p in entries:
            self.hypotheses[sentence].append(Hypothesis(tuple(text), score, log_p, ended))
            if len(self.hypotheses[sentence]) >= self.best:
                self._least[sentence], self.has_best = self.best_hypotheses(sentence)[-1].score, True

    def best_hypotheses(self, sentence: int) -> list[Hypothesis]:
        """Returns the best hypotheses of a sentence, best first; if scores are equal, in the order they were found."""
        return sorted(self.hypotheses[sentence], key=lambda hypothesis: -hypothesis.score)[: self.best]

    def lowest_score(self, sentences: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Returns the lowest score among the `best` of each sentence; minus infinity if it has fewer."""
        scores = [self._least[number] for number in sentences.tolist()]
        return torch.tensor(scores, dtype=torch.float64, device=sentences.device)

    def is_empty(self, sentences: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Returns a mask of the sentences for which nothing has been found."""
        empty = [not self.hypotheses[number] for number in sentences.tolist()]
        return torch.tensor(empty, dtype=torch.bool, device=sentences.device)


def _keep_alive(candidates: Candidates, lives: Bool[Tensor, "b c"], hypotheses: int) -> tuple[Candidates, bool]:
    """Keeps the candidates that go on, in as many columns as the sentence with the most of them needs.

    Returns:
        The candidates, and True if they extend the same hypotheses as before in the same order.
    """
    if not lives.all():
        order = (~lives).to(torch.uint8).argsort(stable=True, dim=1)[:, : int(lives.sum(1).max())]
        lives = lives.gather(1, order)
        log_probability, origin, token = (field.gather(1, order) for field in candidates)
        candidates = Candidates(log_probability.masked_fill(~lives, -torch.inf), torch.where(lives, origin, 0), token)
    origin = candidates.origin
    is_same = origin.shape[1] == hypotheses and (hypotheses == 1 or bool((origin == _make_indices(origin)).all()))
    return candidates, is_same


def _make_indices(x: Tensor) -> Int[Tensor, "b w"]:
    return torch.arange(x.shape[1], device=x.device).expand(x.shape)
