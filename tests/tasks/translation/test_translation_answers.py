"""The rows of `zoo predict`: translations, their number, alignments, and words that are not known."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from translation_cases import SOURCES, Knowing, Small, languages, pairs, translator

from zoo.attention import record
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.teacher_forcing import force_decode
from zoo.errors import ConfigError
from zoo.tasks.base import EXAMPLE
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.text_codec import END, UNKNOWN, TextCodec, WordSegmentation
from zoo.tasks.translation.predictions import known_words, to_pharaoh
from zoo.text import Characters, Subwords


def test_a_row_for_each_text() -> None:
    module, batch = translator().eval(), pairs()
    columns = module.predictor()(batch)
    assert list(columns) == [EXAMPLE, "id", "split", "text", "reference", "translation", "score", "probability"]
    assert columns["text"] == SOURCES
    best = [each[0] for each in module.write(batch)]
    assert columns["probability"] == [math.exp(each.log_probability) for each in best]
    assert columns["score"] == [each.score for each in best]


def test_the_n_best_have_ranks_and_fall() -> None:
    module, batch = translator().eval(), pairs()
    columns = module.predictor(n_best=3)(batch)
    for number in range(4):
        rows = [at for at, example in enumerate(columns[EXAMPLE]) if example == number]
        assert 2 <= len(rows) <= 3
        assert [columns["rank"][at] for at in rows] == [1, 2, 3][: len(rows)]
        scores = [columns["score"][at] for at in rows]
        assert scores == sorted(scores, reverse=True)
    assert module.predictor(beam=1)(batch)["translation"] == [
        languages().target.text(each.tokens) for [each] in module.write(batch, module.writing.greedy())
    ]


def test_samples_depend_on_the_seed_and_the_name_alone() -> None:
    module = translator().eval()
    first = module.predictor(sample=True, temperature=2.0, n_best=2, seed=3)(pairs())
    again = module.predictor(sample=True, temperature=2.0, n_best=2, seed=3)(pairs([2, 0]))
    assert again["translation"][:2] == first["translation"][4:6]
    other = module.predictor(sample=True, temperature=2.0, n_best=2, seed=4)(pairs())
    assert other["translation"] != first["translation"]
    greedy = module.predictor(sample=True, top_k=1)(pairs())
    assert greedy["translation"] == module.predictor(beam=1)(pairs())["translation"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beam": 2, "n_best": 3}, "best must be from 1 to width=2"),
        ({"n_best": 0}, "best is to be a whole number of at least 1"),
        ({"sample": True, "beam": 2}, "searched or drawn"),
        ({"temperature": 0.5}, "--temperature is for samples"),
        ({"seed": 0}, "--seed is for samples"),
        ({"sample": True, "top_p": 0.0}, "top_p is to be a number above 0 and of at most 1"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translator().predictor(**given)


def test_alignments_are_the_heaviest_weights_of_a_forced_pass() -> None:
    module, batch = translator(Knowing).eval(), pairs()
    said = ["a dog runs .", "two", "dog dog dog", "man"]
    module.net.texts = tuple(languages().target.encode(text)[1] for text in said)  # type: ignore[assignment]
    columns = module.predictor(alignments=True)(batch)
    assert columns["translation"] == ["a dog runs.", "two", "dog dog dog", "man"]
    for number in range(4):
        alone = pairs([number])
        tokens = (*languages().target.encode(said[number])[1], END)
        with record(module.net) as maps, torch.no_grad():
            force_decode(module.net, alone.source, begins(alone.source), [tokens])
        weights = torch.cat([step.dense()[:, 0] for step in maps["attend.attend"].steps()], 1)[0]
        expected = [f"{int(row.argmax())}-{place}" for place, row in enumerate(weights[:-1])]
        assert columns["alignment"][number] == " ".join(expected)


def test_an_unknown_word_becomes_the_word_that_it_attended_to() -> None:
    weights = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.2, 0.8]])
    source = WordSegmentation(["ein", "Dackel"], [0, 1, 1])
    hypothesis = Hypothesis((UNKNOWN, 5, UNKNOWN), 0.0, 0.0, True)
    found = known_words(hypothesis, weights, source)
    assert found == {0: "ein", 2: "Dackel"}
    of = languages().target
    assert of.text_with(hypothesis.tokens, found) == f"ein {of.text([5])} Dackel"
    module = translator(Knowing).eval()
    module.net.texts = ((UNKNOWN,),) * 4  # type: ignore[assignment]
    assert module.predictor()(pairs())["translation"] == ["<unk>"] * 4
    replaced = module.predictor(replace_unknown=True)(pairs())["translation"]
    assert all(word in text.split() for word, text in zip(replaced, SOURCES, strict=True))


@pytest.mark.parametrize("tokeniser", [Characters(), Subwords(size=300).fit(["ein hund läuft"] * 3)])
def test_any_tokeniser_takes_a_word_in_place_of_a_token(tokeniser: Any) -> None:
    names = tokeniser.encode("ein hund").names
    language = TextCodec.from_counts(tokeniser, Counter(names))
    numbers = language.vocabulary.encode(names)
    place = len(names) - 1
    assert "läuft" in language.text_with([*numbers[:place], UNKNOWN], {place: "läuft"})


def test_words_are_linked_once_each() -> None:
    assert to_pharaoh(torch.tensor([[0.2, 0.8], [0.0, 0.0], [0.6, 0.4]])) == "1-0 0-2"


def test_a_net_without_attention_has_no_alignments() -> None:
    class Blind(Small):
        align = None

    module = translator(Blind).eval()
    for option in ("alignments", "replace_unknown"):
        with pytest.raises(ConfigError, match="has no attention to its source"):
            module.predictor(**{option: True})
    with pytest.raises(ConfigError, match="has no map of its source"):
        module.explain(pairs())
    assert module.gold_attention(pairs()) == {}
