"""The planted summaries: the sentences that matter and no others, and the gold says where their words are."""

from __future__ import annotations

import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.translation import planted_summaries
from zoo.tasks.translation.synthetic import NOUNS, VERBS, SyntheticPairs
from zoo.tasks.translation.synthetic_summaries import JOINING, MATTERS, OTHERS, plant_summaries


@pytest.fixture(scope="module")
def documents() -> SyntheticPairs:
    return plant_summaries(documents=500, held_out=50)


def sentences(document: str) -> list[list[str]]:
    """The sentences of a document, each with its first word."""
    found: list[list[str]] = []
    for word in document.split():
        if word in (*MATTERS, *OTHERS):
            found.append([])
        found[-1].append(word)
    return found


def said(sentence: list[str]) -> list[str]:
    """What a person would keep of a sentence: subject, verb and object."""
    verb = next(place for place, word in enumerate(sentence) if word in VERBS)
    subject = [word for word in sentence[:verb] if word in NOUNS]
    return [*subject, sentence[verb], next(word for word in sentence[verb:] if word in NOUNS)]


def test_a_summary_says_the_sentences_that_matter_and_no_others(documents: SyntheticPairs) -> None:
    for document, summary in zip(documents.sources, documents.targets, strict=True):
        kept = [" ".join(said(each)) for each in sentences(document) if each[0] in MATTERS]
        assert summary == f" {JOINING} ".join(kept)
        assert kept


def test_every_word_of_a_summary_is_linked_with_the_one_it_repeats(documents: SyntheticPairs) -> None:
    for document, summary, links in zip(documents.sources, documents.targets, documents.links, strict=True):
        words, written = document.split(), summary.split()
        assert all(words[origin] == written[word] for word, origin in links)
        assert [word for word, _ in links] == [place for place, word in enumerate(written) if word != JOINING]


def test_equal_arguments_give_equal_documents(documents: SyntheticPairs) -> None:
    same, other = plant_summaries(documents=500, held_out=50), plant_summaries(documents=500, held_out=50, seed=1)
    assert (documents.sources, documents.links) == (same.sources, same.links)
    assert documents.sources != other.sources
    assert [(documents.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [500, 50, 50]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": 1}, "sentences is to be a whole number of at least 2 and of at most 20"),
        ({"documents": 10_000_000}, "data.documents=10000000, held_out=400 and sentences=6 make 540,043,200 numbers"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        plant_summaries(**options)


def test_one_vocabulary_serves_documents_and_summaries() -> None:
    data = planted_summaries(documents=100, held_out=10, sentences=3, joint=True, max_epochs=1, batch_size=16)
    assert data.sizes()["source_words"] == data.sizes()["target_words"]
    batch = next(iter(data.loader("test")))
    rows, words, origins = batch.gold.nonzero(as_tuple=True)
    assert batch.targets.tokens[rows, words].tolist() == batch.source.tokens[rows, origins].tolist()
