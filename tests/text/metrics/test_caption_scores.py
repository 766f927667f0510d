"""Scores of captions: those of pycocoevalcap, and of the formulas, without Java."""

from __future__ import annotations

import csv
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from zoo.text import BLEU, CaptionROUGE, CIDEr, Frequencies, Score, add_sums

WORDS = ["a", "the", "dog", "cat", "red", "ball", "is", "running", "on", "grass", "with", "in", "two", "men"]
SIGMA = 6.0


def made(count: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Returns texts and references of many lengths, some of which share whole phrases."""
    draw = random.Random(seed)
    texts, references = [], []
    for _ in range(count):
        core = draw.choices(WORDS, k=draw.randint(1, 12))
        references.append([" ".join(_changed(core, draw)) for _ in range(draw.randint(1, 5))])
        texts.append(" ".join(_changed(core, draw)))
    return texts, references


def _changed(words: Sequence[str], draw: random.Random) -> list[str]:
    found = [draw.choice(WORDS) if draw.random() < 0.2 else word for word in words]
    return found[: draw.randint(1, len(found))] + draw.choices(WORDS, k=draw.randint(0, 3))


def figure(score: Score, name: str, texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    return score.compute(score.statistics(texts, references))[name]


def peers(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns the figures of pycocoevalcap."""
    cider = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    rouge = pytest.importorskip("pycocoevalcap.rouge.rouge").Rouge()
    bleu = pytest.importorskip("pycocoevalcap.bleu.bleu").Bleu(4)
    given = {number: list(each) for number, each in enumerate(references)}
    found = {number: [each] for number, each in enumerate(texts)}
    orders = bleu.compute_score(given, found, verbose=0)[0]
    return {
        "cider": float(cider.compute_score(given, found)[0]),
        "rouge_l": float(rouge.compute_score(given, found)[0]),
        **{f"bleu_{order}": 100.0 * value for order, value in enumerate(orders, start=1)},
    }


def ours(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    bleu = BLEU(tokenize="none")
    overlaps = bleu.compute(bleu.statistics(texts, references))
    return {
        "cider": figure(CIDEr(Frequencies.from_corpus(references)), "cider", texts, references),
        "rouge_l": figure(CaptionROUGE(), "rouge_l", texts, references),
        **{f"bleu_{order}": overlaps[f"bleu_{order}"] for order in (1, 2, 3)},
        "bleu_4": overlaps["bleu"],
    }


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_pycocoevalcap(seed: int) -> None:
    texts, references = made(60, seed)
    assert ours(texts, references) == pytest.approx(peers(texts, references), rel=1e-6)


def test_each_text_has_the_score_of_pycocoevalcap() -> None:
    cider = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    texts, references = made(40, seed=9)
    given = dict(enumerate(references))
    expected = cider.compute_score(given, {number: [each] for number, each in enumerate(texts)})[1]
    found = CIDEr(Frequencies.from_corpus(references)).each(texts, references)
    assert found == pytest.approx(expected.tolist(), rel=1e-9)


@pytest.mark.real
def test_scores_of_flickr8k_are_those_of_pycocoevalcap() -> None:
    """The first caption of a picture against the four others: how well people do."""
    path = Path(os.environ.get("ZOO_DATA", "data")) / "flickr8k" / "text" / "Flickr8k.token.txt"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    captions: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for name, caption in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            captions[name.split("#")[0]].append(" ".join(filter(str.isalnum, caption.lower().split())))
    some = list(captions.values())[:1000]
    texts, references = [each[0] for each in some], [each[1:] for each in some]
    found = ours(texts, references)
    assert found == pytest.approx(peers(texts, references), rel=1e-6)
    assert 0.7 < found["cider"] < 1.2


def test_cider_by_the_formulas_of_its_paper() -> None:
    """Equations 1 to 3 with the clipping and the penalty of CIDEr-D, one n-gram after another."""
    texts, references = made(12, seed=3)

    def grams(text: str, order: int) -> Counter[tuple[str, ...]]:
        words = text.split()
        return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))

    def vector(text: str, order: int) -> dict[tuple[str, ...], float]:
        found = {}
        for gram, count in grams(text, order).items():
            documents = sum(any(gram in grams(each, order) for each in all) for all in references)
            found[gram] = count * math.log(len(references) / max(1, documents))
        return found

    def norm(weights: dict[tuple[str, ...], float]) -> float:
        return math.sqrt(sum(weight * weight for weight in weights.values()))

    for text, all, found in zip(
        texts, references, CIDEr(Frequencies.from_corpus(references)).each(texts, references), strict=True
    ):
        total = 0.0
        for order in (1, 2, 3, 4):
            for reference in all:
                mine, theirs = vector(text, order), vector(reference, order)
                if norm(mine) and norm(theirs):
                    shared = sum(min(mine[gram], theirs.get(gram, 0.0)) * theirs.get(gram, 0.0) for gram in mine)
                    delta = len(text.split()) - len(reference.split())
                    penalty = math.exp(-(delta**2) / (2 * SIGMA**2))
                    total += penalty * shared / (norm(mine) * norm(theirs)) / len(all) / 4
        assert found == pytest.approx(10.0 * total, rel=1e-9)


def test_cider_of_parts_has_the_frequencies_of_the_whole() -> None:
    """Two processes that know the document frequencies of the split have, together, the score of one."""
    texts, references = made(30, seed=5)
    score = CIDEr(Frequencies.from_corpus(references))
    whole = score.statistics(texts, references)
    assert add_sums(
        score.statistics(texts[:7], references[:7]), score.statistics(texts[7:], references[7:])
    ) == pytest.approx(whole)
    alone = CIDEr(Frequencies.from_corpus(references[:7]))
    assert alone.statistics(texts[:7], references[:7]) != pytest.approx(score.statistics(texts[:7], references[:7]))


def test_a_text_that_is_its_reference_scores_ten() -> None:
    references = [["a red ball on the grass"], ["two men with a cat"], ["the dog is running"]]
    score = CIDEr(Frequencies.from_corpus(references))
    assert score.each([each[0] for each in references], references) == pytest.approx([10.0] * 3)
    assert score.each([""], [["a red ball"]]) == [0.0]
    assert CIDEr(Frequencies.from_corpus([["a dog"]])).each(["a dog"], [["a dog"]]) == [0.0]


def test_only_what_stands_in_several_documents_is_kept() -> None:
    found = Frequencies.from_corpus([["a dog", "a dog"], ["a cat"], ["the cat sat"]])
    assert found.documents == 3
    assert found.counts == {("a",): 2, ("cat",): 2}
    assert found.weight(("dog",)) == found.weight(("never",)) == math.log(3)
    assert found.weight(("cat",)) == pytest.approx(math.log(3 / 2))


def test_rouge_of_captions_by_hand() -> None:
    """Precision 3/3 from the first reference, recall 2/2 from the second one, so that both are 1."""
    score = CaptionROUGE()
    assert figure(score, "rouge_l", ["a red ball"], [["a big red ball lies", "red ball"]]) == 1.0
    precision, recall = 2 / 3, 2 / 4
    expected = (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision)
    assert figure(score, "rouge_l", ["a red ball"], [["the ball a red"]]) == pytest.approx(expected)
    assert figure(score, "rouge_l", ["a"], [["b", ""]]) == 0.0
    assert figure(score, "rouge_l", [""], [["b"]]) == 0.0
