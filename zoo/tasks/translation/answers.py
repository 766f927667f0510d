"""The answers of `zoo predict`: translations, their probability, and which word each word was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.tasks.contract import EXAMPLE
from zoo.tasks.generation.alignment import by_word, heaviest_links, read_again
from zoo.tasks.generation.language import END, UNKNOWN, Spelled
from zoo.tasks.generation.writing import Writing
from zoo.tasks.translation.batch import Pairs
from zoo.tasks.translation.figures import spelled_source

if TYPE_CHECKING:
    from zoo.tasks.translation.translator import Translator


def answers(
    module: Translator, batch: Pairs, writing: Writing, *, alignments: bool = False, replace_unknown: bool = False
) -> dict[str, list[Any]]:
    """id, text, translation, score and probability; on request the rank among several, and alignments.

    Args:
        module: The translator.
        batch: The texts.
        writing: How translations are written.
        alignments: Whether a column says which word each word was made of: `0-0 1-2`, source before target.
        replace_unknown: Whether an unknown word becomes the source word that it attended to most.
    """
    assert batch.languages is not None
    assert batch.written is not None
    found = module.translations(batch, writing)
    examples = [number for number, texts in enumerate(found) for _ in texts]
    written = [each for texts in found for each in texts]
    columns: dict[str, list[Any]] = {EXAMPLE: examples, "id": [batch.ids[number] for number in examples]}
    columns["text"] = [batch.written[number].source for number in examples]
    if writing.count > 1:
        columns["rank"] = [rank for texts in found for rank, _ in enumerate(texts, start=1)]
    language = batch.languages.target
    sources = [spelled_source(batch, number) for number in examples]
    weights: Any = [None] * len(written)
    if alignments or replace_unknown:
        weights = weights_of(module, batch, examples, written)
    columns["translation"] = [
        language.text_with(each.tokens, known_words(each, of, source) if replace_unknown else {})
        for each, of, source in zip(written, weights, sources, strict=True)
    ]
    columns["score"] = [each.score for each in written]
    columns["probability"] = [each.probability for each in written]
    if alignments:
        columns["alignment"] = [
            pharaoh(by_word(of, language.spelled(each.tokens).owners, source.owners))
            for each, of, source in zip(written, weights, sources, strict=True)
        ]
    return columns


def weights_of(
    module: Translator, batch: Pairs, examples: Sequence[int], written: Sequence[Hypothesis]
) -> Float[Tensor, "r n k"]:
    """Returns the weights with which translations attended to their sources, from a forced pass."""
    source = batch.source.some(torch.tensor(examples, device=batch.source.lengths.device))
    found = read_again(module.net, source, [each.target(END) for each in written]).weights
    if found is None:
        raise ConfigError("--alignments, --replace-unknown: the attention of this model has no weights")
    return found


def known_words(written: Hypothesis, weights: Float[Tensor, "n k"], source: Spelled) -> dict[int, str]:
    """Returns the source word that each unknown token attended to most, by the token's place."""
    unknown = [place for place, token in enumerate(written.tokens) if token == UNKNOWN]
    links = heaviest_links(by_word(weights[unknown], range(len(unknown)), source.owners))
    return {unknown[to]: source.words[of] for to, of in links}


def pharaoh(weights: Float[Tensor, "words places"]) -> str:
    """Writes the heaviest link of each word as `source-target`, counted from 0."""
    return " ".join(f"{of}-{to}" for to, of in heaviest_links(weights))
