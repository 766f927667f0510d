"""Word vectors from the texts themselves: against the formula, and on texts whose words have known company."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.text import cooccurrence, corpus_vectors


def by_formula(texts: list[list[int]], words: int, dim: int, window: int) -> np.ndarray:
    """A word at a time, and a whole SVD: Levy & Goldberg 2014, eq. 5 and section 4, with smoothed contexts."""
    counts = np.zeros((words, words))
    for text in texts:
        for i, word in enumerate(text):
            for j, other in enumerate(text):
                if 0 < abs(i - j) <= window:
                    counts[word, other] += (window + 1 - abs(i - j)) / window
    contexts = counts.sum(0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(counts / (counts.sum(1, keepdims=True) * contexts / contexts.sum()))
    left, weights, _ = np.linalg.svd(np.where(counts > 0, np.maximum(information, 0.0), 0.0))
    vectors = left[:, :dim] * np.sqrt(weights[:dim])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("part", [1, 40, 1 << 20])
def test_vectors_are_their_formula(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many texts are counted at a time; angles alone, since an axis may point either way."""
    monkeypatch.setattr(cooccurrence, "_MIN_WORDS", part)
    random = np.random.default_rng(0)
    texts = [random.integers(0, 12, size).tolist() for size in (1, 30, 2, 25, 0, 40)]
    found, expected = corpus_vectors(iter(texts), words=12, dim=4, window=3), by_formula(texts, 12, 4, 3)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)


def test_words_in_similar_company_are_near() -> None:
    """Words 0 to 3 stand among 8 to 13, words 4 to 7 among 14 to 19, and never beside each other."""
    random = np.random.default_rng(0)
    texts = []
    for number in range(300):
        side = number % 2
        company = random.integers(8 + 6 * side, 14 + 6 * side, 6).tolist()
        texts.append([*company[:3], int(random.integers(4 * side, 4 * side + 4)), *company[3:]])
    vectors = corpus_vectors(texts, words=21, dim=4, window=3)
    alike = vectors[:8] @ vectors[:8].T
    same = np.arange(8)[:, None] // 4 == np.arange(8) // 4
    assert alike[same].min() > alike[~same].max() + 0.5
    assert not vectors[20].any()  # it stands in no text
    np.testing.assert_allclose(np.linalg.norm(vectors[:20], axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(vectors, corpus_vectors(texts, words=21, dim=4, window=3))


def test_texts_are_apart_and_no_text_is_nothing() -> None:
    assert not corpus_vectors([[0], [1], [2]], words=3, dim=2).any()
    assert not corpus_vectors([], words=3, dim=2).any()
    with pytest.raises(ValueError, match="dim must be from 1 to 2, the number of words less one, got 3"):
        corpus_vectors([[0, 1]], words=3, dim=3)
