"""A document without some of its words: as a text that never had them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from document_cases import CLASSES, NETS, WORDS, made
from document_run_cases import checkpoint
from torch import Tensor, nn

from zoo.tasks.documents.batch import Document, Documents
from zoo.tasks.documents.labels import LabelSet
from zoo.tasks.documents.maps import occlusion
from zoo.tasks.documents.maps.occlusion import OccludableDocument
from zoo.tasks.documents.module import DocumentClassifier

TEXT = [[4, 7, 1], [9], [2, 4, 4, 12], [20, 3]]


def document(sentences: list[list[int]], targets: Any) -> Documents:
    labels = LabelSet(("a", "b", "c"), targets, (1, 1, 1), 3)
    label: Any = [True, False, True] if targets == "multi" else 1
    return Documents.of([Document(sentences, label=label, id="text", split="test")], labels)


def module(name: str = "HAN") -> DocumentClassifier:
    found = DocumentClassifier(
        net=lambda words, classes: made(name),
        optimisation=None,  # type: ignore[arg-type]
        words=WORDS,
        classes=CLASSES,
    )
    return found.double().eval()


@pytest.mark.parametrize(("name", "targets"), [*((name, "single") for name in NETS), ("HAN", "multi")])
def test_words_left_out(name: str, targets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occlusion, "_WORDS", 30)  # three variants at a time
    ours, batch = module(name), document(TEXT, targets)
    found = OccludableDocument(ours, batch)
    torch.testing.assert_close(found.attention, ours.explain(batch).weights[:, 0])
    keep = torch.rand(7, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    keep[0] = True
    keep[1] = torch.arange(10) == 3  # a sentence of one word, and nothing else
    answer = ours(batch)[0].argmax()
    for row, score in zip(keep.tolist(), found.score(keep), strict=True):
        left = iter(row)
        sentences = [[word for word in sentence if next(left)] for sentence in TEXT]
        logits = ours(document([each for each in sentences if each], targets))[0].detach()
        expected = logits.sigmoid() if targets == "multi" else logits.softmax(-1)
        torch.testing.assert_close(score, expected[answer], rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="at least one word"):
        found.score(torch.zeros(1, 10, dtype=torch.bool))


@pytest.mark.parametrize("name", ["HAN", "FlatAttention, average", "LongDocument"])
def test_the_gradient_is_that_of_scaled_words(name: str) -> None:
    ours, batch = module(name), document(TEXT, "single")
    found = OccludableDocument(ours, batch)
    gradient = found.gradient()

    def passed(word: int, scale: float) -> float:
        def scaled(table: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
            return out * torch.ones(len(out), 1, dtype=out.dtype).index_fill(0, torch.tensor([word]), scale)

        table: Any = ours.net.vectors.table  # type: ignore[union-attr]
        handle = table.register_forward_hook(scaled)
        value = ours(batch)[0].log_softmax(-1)[found.answer].item()
        handle.remove()
        return value

    for word in range(10):
        slope = (passed(word, 1 + 1e-5) - passed(word, 1 - 1e-5)) / 2e-5
        assert gradient[word].item() == pytest.approx(abs(slope), rel=1e-3, abs=1e-8)


@pytest.mark.parametrize("model", ["han", "long_document"])
def test_documents_by_the_command(cli: Any, model: str) -> None:
    done = cli("maps", checkpoint(model), "--out", "maps", "--pictures", 0, "--faithfulness", 2)
    assert done.code == 0, done.err
    assert "faithfulness over 2 documents (mean ± standard error)" in done.out
    rows = pd.read_csv("maps/faithfulness.csv", keep_default_na=False)
    assert set(rows.ranking) == {"map", "gradient", "random", ""}
    assert rows.id.nunique() == 2
