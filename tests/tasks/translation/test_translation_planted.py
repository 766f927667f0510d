"""The planted translations: a dictionary and an order, and the gold alignment says which word became which."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.attention import Additive, AttentionFactory, Constant, Softmax, Uniform
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.nn import Bahdanau
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import force_decode_texts
from zoo.tasks.translation import PairData, RecurrentEncoder, RecurrentTranslator, planted_translation
from zoo.tasks.translation.batch import TranslationBatch
from zoo.tasks.translation.synthetic import (
    ADJECTIVES,
    ADVERBS,
    ARTICLES,
    CONJUNCTIONS,
    NOUNS,
    PARTICLES,
    PREPOSITIONS,
    SILENT,
    STEMS,
    VERBS,
    SyntheticPairs,
    plant,
)

CONTENT = {*NOUNS, *ADJECTIVES, *VERBS, *STEMS, *PARTICLES, *ADVERBS}


@pytest.fixture(scope="module")
def sentences() -> SyntheticPairs:
    return plant(pairs=2000, held_out=100)


def test_equal_arguments_give_equal_sentences_and_the_languages_are_always_the_same(sentences: SyntheticPairs) -> None:
    same, other = plant(pairs=2000, held_out=100), plant(pairs=2000, held_out=100, seed=1)
    assert (sentences.sources, sentences.targets, sentences.links) == (same.sources, same.targets, same.links)
    assert sentences.sources != other.sources
    assert dictionary(sentences) == dictionary(other)


def dictionary(sentences: SyntheticPairs) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Linked words of the source -> the words that they become."""
    found: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for source, target, links in zip(sentences.sources, sentences.targets, sentences.links, strict=True):
        sides = source.split(), target.split()
        by_target: dict[int, list[int]] = defaultdict(list)
        for word, origin in links:
            by_target[word].append(origin)
        by_origin: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for word, origins in by_target.items():
            by_origin[tuple(origins)].append(word)
        for origins, words in by_origin.items():
            found[tuple(sides[0][place] for place in origins)].add(tuple(sides[1][place] for place in words))
    return dict(found)


def test_sizes_and_splits(sentences: SyntheticPairs) -> None:
    assert [(sentences.splits == part).sum() for part in (TRAIN, VAL, TEST)] == [2000, 100, 100]
    lengths = Counter(len(source.split()) for source in sentences.sources)
    assert sorted(lengths) == list(range(4, 25))
    assert min(lengths.values()) > 60
    words = [{word for text in texts for word in text.split()} for texts in (sentences.sources, sentences.targets)]
    assert [200 <= len(each) <= 400 for each in words] == [True, True]
    assert not words[0] & words[1]


def test_a_word_becomes_the_same_words_wherever_it_stands(sentences: SyntheticPairs) -> None:
    found = dictionary(sentences)
    assert all(len(translations) == 1 for translations in found.values())
    written = Counter(words[-1] for translations in found.values() for words in translations)
    assert set(written.values()) == {1}, "and no two become the same"
    shared = Counter(words[0] for translations in found.values() for words in translations if len(words) == 2)
    assert len(shared) == 3, "the second word is told by the source alone"
    assert not set(shared) & set(written)
    assert min(shared.values()) >= 6
    assert Counter(map(len, found)) == {1: len(CONTENT) - len(STEMS) - len(PARTICLES), 2: len(STEMS) * len(PARTICLES)}
    assert {len(words) for translations in found.values() for words in translations} == {1, 2}


def test_content_words_have_an_origin_and_others_none(sentences: SyntheticPairs) -> None:
    functions = {*ARTICLES, *(word for text in sentences.targets for word in text.split())} - {
        word for translations in dictionary(sentences).values() for words in translations for word in words
    }
    assert len(functions) == len(ARTICLES) + len(PREPOSITIONS) + len(CONJUNCTIONS)
    for source, target, links in zip(sentences.sources, sentences.targets, sentences.links, strict=True):
        of_source, of_target = source.split(), target.split()
        assert {place for place, word in enumerate(of_target) if word not in functions} == {word for word, _ in links}
        assert {place for place, word in enumerate(of_source) if word in CONTENT} == {origin for _, origin in links}
        content = [word for word in of_source if word in CONTENT and word not in PARTICLES]
        assert len(set(content)) == len(content), "a word that is there twice has no clear place"


def test_articles_agree_with_the_noun_behind_them(sentences: SyntheticPairs) -> None:
    articles: dict[str, set[str]] = defaultdict(set)
    shared = {words[0] for translations in dictionary(sentences).values() for words in translations if len(words) == 2}
    for target in sentences.targets:
        words = target.split()
        for place, word in enumerate(words):
            if word in ARTICLES:
                articles[words[place + (2 if words[place + 1] in shared else 1)]].add(word)
    assert len(articles) == len(NOUNS)
    assert all(len(each) == 1 for each in articles.values())
    assert {article for each in articles.values() for article in each} == set(ARTICLES)


def test_words_are_reordered_and_some_are_silent(sentences: SyntheticPairs) -> None:
    crossing = total = silent = 0
    for source, links in zip(sentences.sources, sentences.links, strict=True):
        origins = [origin for _, origin in links]
        crossing += sum(after < before for before, after in pairwise(origins))
        total += len(origins) - 1
        silent += any(word in SILENT for word in source.split())
    assert 0.2 < crossing / total < 0.5
    assert silent > 500


def test_the_verb_ends_its_clause() -> None:
    found = plant(pairs=50, held_out=1, longest=5)
    for source, links in zip(found.sources, found.links, strict=True):
        verb = next(place for place, word in enumerate(source.split()) if word in {*VERBS, *STEMS})
        assert max(links)[1] == verb or (max(links)[1] == verb + 1 and source.split()[verb + 1] in PARTICLES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"longest": 3}, "longest is to be a whole number of at least 4 and of at most 30"),
        ({"longest": 31}, "longest is to be a whole number of at least 4 and of at most 30"),
        ({"pairs": 100_000_000}, "data.pairs=100000000, held_out=400 and longest=24 make 2,400,019,200 numbers"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        plant(**options)


def test_the_longest_sentences_that_can_be() -> None:
    found = plant(pairs=500, held_out=1, longest=30)
    assert max(len(source.split()) for source in found.sources) == 30
    np.testing.assert_array_equal(found.splits, [*[TRAIN] * 500, VAL, TEST])


def trained(data: PairData, attend: AttentionFactory, epochs: int) -> RecurrentTranslator:
    torch.default_generator.manual_seed(0)
    net = RecurrentTranslator(
        **data.sizes(),
        attend=attend,
        encoder=partial(RecurrentEncoder, dim=48, hidden=48),
        decoder=partial(Bahdanau, dim=48, hidden=48, compared=48, readout="tanh"),
    )
    optimizer = torch.optim.Adam(net.parameters(), 0.015)
    loader = data.train_dataloader()
    for _ in range(epochs):
        for batch in loader:
            is_real = batch.targets.is_real
            features = net.features(batch.source, batch.targets.read)
            optimizer.zero_grad()
            F.cross_entropy(net.head(features[is_real]), batch.targets.tokens[is_real]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    return net.eval()


def content_words(net: RecurrentTranslator, batch: TranslationBatch) -> tuple[float, float]:
    """How many of them are right, and how often the heaviest weight lies on their origin."""
    has_origin = batch.gold.any(2)
    with torch.no_grad():
        right = net.whole(batch.source, batch.targets.read).argmax(2) == batch.targets.tokens
    weights = force_decode_texts(net, batch.source, [[*text, END] for text in batch.targets.texts()]).weights
    pointed = batch.gold.gather(2, weights.argmax(2, keepdim=True)).squeeze(2)
    return right[has_origin].float().mean().item(), pointed[has_origin].float().mean().item()


# slow tier: trains until something is learned; planted baskets have such a test in the fast tier
@pytest.mark.slow
def test_attention_finds_the_origins_and_means_do_not() -> None:
    """Short sentences, so that it takes seconds."""
    data = planted_translation(pairs=1500, held_out=200, longest=6, max_epochs=1, batch_size=32, eval_batch_size=400)
    (test,) = data.loader("test")
    right, pointing = content_words(trained(data, AttentionFactory(score=Additive, normalizer=Softmax), epochs=4), test)
    control, _ = content_words(trained(data, AttentionFactory(score=Constant, normalizer=Uniform), epochs=4), test)
    assert right >= 0.8
    assert pointing >= 0.8
    assert control <= right - 0.3
