"""The answers of `zoo predict`: translations, their probability, and which word each word was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.predictions import PredictionTable
from zoo.tasks.seq2seq.text_codec import UNKNOWN, WordSegmentation
from zoo.tasks.seq2seq.word_alignment import heaviest_links, merge_by_word
from zoo.tasks.translation.batch import ReadableTranslationBatch
from zoo.tasks.translation.metrics import segment_source

if TYPE_CHECKING:
    from zoo.tasks.translation.task import Translator


def answers(
    module: Translator,
    batch: ReadableTranslationBatch,
    writing: DecodingConfig,
    *,
    alignments: bool = False,
    replace_unknown: bool = False,
) -> dict[str, list[Any]]:
    """id, split, text, reference, translation, score and probability; on request their rank, and alignments.

    Args:
        module: The translator.
        batch: The texts.
        writing: How translations are written.
        alignments: Whether a column says which word each word was made of: `0-0 1-2`, source before target.
        replace_unknown: Whether an unknown word becomes the source word that it attended to most.
    """
    about = {"text": [each.source for each in batch.written]}
    rows = PredictionTable(batch, module.write(batch, writing), writing)
    if not (alignments or replace_unknown):
        return rows.columns(module.text_noun, about=about)
    weights = rows.weights(module.net)
    if weights is None:
        raise ConfigError("--alignments, --replace-unknown: the attention of this model has no weights")
    language, sources = batch.language, [segment_source(batch, number) for number in rows.examples]
    written = list(zip(rows.written, weights, sources, strict=True))
    texts = [language.text_with(each.tokens, known_words(each, of, source)) for each, of, source in written]
    columns = rows.columns(module.text_noun, texts=texts if replace_unknown else None, about=about)
    if alignments:
        columns["alignment"] = [
            to_pharaoh(merge_by_word(of, language.segment(each.tokens).owners, source.owners))
            for each, of, source in written
        ]
    return columns


def known_words(written: Hypothesis, weights: Float[Tensor, "n k"], source: WordSegmentation) -> dict[int, str]:
    """Returns the source word that each unknown token attended to most, by the token's place."""
    unknown = [place for place, token in enumerate(written.tokens) if token == UNKNOWN]
    links = heaviest_links(merge_by_word(weights[unknown], range(len(unknown)), source.owners))
    return {unknown[to]: source.words[of] for to, of in links}


def to_pharaoh(weights: Float[Tensor, "words places"]) -> str:
    """Writes the heaviest link of each word as `source-target`, counted from 0."""
    return " ".join(f"{of}-{to}" for to, of in heaviest_links(weights))
