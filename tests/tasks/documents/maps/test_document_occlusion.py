"""A document without some of its words: as a text that never had them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from document_cases import CLASSES, NETS, WORDS, made
from document_run_cases import checkpoint
from torch import Tensor, nn

import zoo.maps
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.explanation import DocumentExplainer
from zoo.tasks.documents.label_set import LabelSet
from zoo.tasks.documents.maps import perturbation
from zoo.tasks.documents.maps.perturbation import PerturbableDocument
from zoo.tasks.documents.task import DocumentClassifier

TEXT = [[4, 7, 1], [9], [2, 4, 4, 12], [20, 3]]


def document(sentences: list[list[int]], targets: Any) -> DocumentBatch:
    labels = LabelSet(("a", "b", "c"), targets, (1, 1, 1), 3)
    label: Any = [True, False, True] if targets == "multi" else 1
    return DocumentBatch.collate([Document(sentences, label=label, id="text", split="test")], labels)


def module(name: str = "HAN") -> DocumentClassifier:
    found = DocumentClassifier(
        net=lambda words, classes: made(name),
        optimization=None,  # type: ignore[arg-type]
        words=WORDS,
        classes=CLASSES,
    )
    return found.double().eval()


@pytest.mark.parametrize(("name", "targets"), [*((name, "single") for name in NETS), ("HAN", "multi")])
def test_words_left_out(name: str, targets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "_WORDS", 30)  # three variants at a time
    ours, batch = module(name), document(TEXT, targets)
    found = PerturbableDocument(ours, batch)
    torch.testing.assert_close(found.attention, ours.explain(batch).weights[:, 0])
    keep = torch.rand(7, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    keep[0] = True
    keep[1] = torch.arange(10) == 3  # a sentence of one word, and nothing else
    whole = ours(batch)[0].detach()
    for row, score in zip(keep.tolist(), found.score(keep), strict=True):
        left = iter(row)
        sentences = [[word for word in sentence if next(left)] for sentence in TEXT]
        logits = ours(document([each for each in sentences if each], targets))[0].detach()
        if targets == "multi":  # all decisions together
            expected = torch.where(whole > 0, logits.sigmoid(), 1 - logits.sigmoid()).prod()
        else:
            expected = logits.softmax(-1)[whole.argmax()]
        torch.testing.assert_close(score, expected, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="at least one word"):
        found.score(torch.zeros(1, 10, dtype=torch.bool))


@pytest.mark.parametrize("name", ["HAN", "FlatAttention", "LongDocument"])
def test_sentences_left_out(name: str) -> None:
    """A sentence is all of its words: the sum of their weights, of their gradients, and none of them is left."""
    ours, batch = module(name), document(TEXT, "single")
    words, found = PerturbableDocument(ours, batch), PerturbableDocument(ours, batch, "sentence")
    starts = [0, 3, 4, 8, 10]
    by_loop = [float(words.attention[a:b].sum()) for a, b in pairwise(starts)]
    assert found.attention.tolist() == pytest.approx(by_loop, abs=1e-9)
    keep = torch.tensor([[True, True, True, True], [False, True, False, True], [True, False, False, False]])
    whole = ours(batch)[0].argmax()
    for row, score in zip(keep.tolist(), found.score(keep), strict=True):
        left = [sentence for sentence, kept in zip(TEXT, row, strict=True) if kept]
        expected = ours(document(left, "single"))[0].softmax(-1)[whole].detach()
        torch.testing.assert_close(score, expected, rtol=0, atol=1e-9)
    by_step = [slope_of_scaled(ours, batch, range(a, b), found.answer) for a, b in pairwise(starts)]
    assert found.gradient().tolist() == pytest.approx(by_step, rel=1e-3, abs=1e-8)
    with pytest.raises(ValueError, match="at least one sentence"):
        found.score(torch.zeros(1, 4, dtype=torch.bool))


def slope_of_scaled(ours: DocumentClassifier, batch: DocumentBatch, words: Sequence[int], answer: Any) -> float:
    """The change of log m if the vectors of some words are scaled, by central differences."""

    def passed(scale: float) -> float:
        def scaled(table: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
            return out * torch.ones(len(out), 1, dtype=out.dtype).index_fill(0, torch.tensor(words), scale)

        table: Any = ours.net.vectors.table  # type: ignore[union-attr]
        handle = table.register_forward_hook(scaled)
        value = ours(batch)[0].log_softmax(-1)[answer].item()
        handle.remove()
        return value

    return abs(passed(1 + 1e-5) - passed(1 - 1e-5)) / 2e-5


@pytest.mark.parametrize("name", ["HAN", "FlatAttention, average", "LongDocument"])
def test_the_gradient_is_that_of_scaled_words(name: str) -> None:
    ours, batch = module(name), document(TEXT, "single")
    found = PerturbableDocument(ours, batch)
    gradient = found.gradient()
    for word in range(10):
        slope = slope_of_scaled(ours, batch, [word], found.answer)
        assert gradient[word].item() == pytest.approx(slope, rel=1e-3, abs=1e-8)


@pytest.mark.parametrize("model", ["han", "long_document"])
def test_documents_by_the_command(cli: Any, model: str) -> None:
    done = cli("maps", checkpoint(model), "--out", "maps", "--pictures", 0, "--faithfulness", 2)
    assert done.code == 0, done.err
    assert "faithfulness over 2 documents (mean ± standard error)" in done.out
    rows = pd.read_csv("maps/faithfulness.csv", keep_default_na=False)
    assert set(rows.ranking) == {"map", "gradient", "random", ""}
    assert rows.id.nunique() == 2
    assert set(rows.left_out) == {"word", "sentence", ""}
    of_no_input = {"probability", "fall_with_uniform_weights", "change_with_permuted_weights"}
    assert set(rows[rows.left_out == ""].measure) == of_no_input
    assert (rows.groupby(["id", "left_out"]).inputs.first().unstack().eval("sentence < word")).all()
    means = zoo.maps.load("maps").scores["faithfulness"]
    assert {each["left_out"] for each in means} == {"word", "sentence", ""}
    for said in ("leaving out words:", "leaving out sentences:", "the gradient at constant weights"):
        assert said in done.out


def test_nothing_else_is_computed_unless_it_is_asked_for(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all documents of a published set takes longer than the measure of some."""
    asked: list[str] = []
    tables = DocumentExplainer.tables

    def noted(self: DocumentExplainer) -> Any:
        asked.append(self.split)
        return tables(self)

    monkeypatch.setattr(DocumentExplainer, "tables", noted)
    measure = ["maps", checkpoint(), "--overwrite", "--faithfulness=2", "--out", "maps"]
    done = cli(*measure, "--pictures=0")
    assert (done.code, asked) == (0, []), done.err
    assert done.out.startswith("faithfulness over 2 documents")
    assert sorted(each.name for each in Path("maps").iterdir() if each.suffix == ".csv") == ["faithfulness.csv"]
    alone = Path("maps/faithfulness.csv").read_bytes()
    done = cli(*measure, "--pictures=1")
    assert (done.code, asked) == (0, ["test"]), done.err
    assert Path("maps/faithfulness.csv").read_bytes() == alone
    assert len(pd.read_csv("maps/documents.csv")) == 12
    assert "truth/sentence_pointing" in done.out


def test_measured_documents_are_spread_over_the_split(cli: Any) -> None:
    """The first ones of a published set are of one label and of few subjects."""
    rows = []
    for count in (3, 12, 100):
        done = cli("maps", checkpoint(), "--out", "maps", "--pictures", 0, "--faithfulness", count, "--overwrite")
        assert done.code == 0, done.err
        rows.append(list(dict.fromkeys(pd.read_csv("maps/faithfulness.csv").id)))
    few, all_of_them, no_more = rows
    assert len(all_of_them) == 12
    assert cli("maps", checkpoint(), "--out", "maps", "--pictures", 0, "--overwrite").code == 0
    assert no_more == all_of_them == list(pd.read_csv("maps/documents.csv").id)
    assert few == all_of_them[::4]
