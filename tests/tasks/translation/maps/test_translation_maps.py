"""The folder that `zoo maps` writes of translations, gradients by distance, and texts without some of their words."""

from __future__ import annotations

import csv
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from translation_cases import SOURCES, Small, languages, pairs, translator

import zoo.maps
from zoo.decoding.teacher_forcing import force_decode
from zoo.maps.explainer import MapOptions
from zoo.maps.export import export
from zoo.optim import OptimizerConfig
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.gradients import GradientDistanceTally, gradient_norms, reach_figure
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.text_codec import BEGIN, END
from zoo.tasks.seq2seq.word_alignment import force_decode_texts
from zoo.tasks.translation import PairData, Translator, planted_translation
from zoo.tasks.translation.explanation import PerturbableText

DATA = planted_translation(pairs=20, held_out=6, longest=8, max_epochs=1, batch_size=4)


def module_of(data: PairData, net: Any = Small) -> Translator:
    torch.default_generator.manual_seed(0)
    found = Translator(net=net, optimization=OptimizerConfig(optimizer=torch.optim.Adam), **data.sizes()).eval()
    found.about = {"model": "small", "path": "small.ckpt", "config": {"names": {"data": "planted", "attention": "a"}}}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("maps") / "out"
    export(module_of(DATA), DATA, out, MapOptions(pictures=2, faithfulness=2))
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tables_of_all_texts_and_of_those_that_are_drawn(folder: Path) -> None:
    texts = rows(folder / "translations.csv")
    assert len(texts) == 6
    columns = ["id", "split", "text", "translation", "score", "probability", "ended", "source_words", "words"]
    assert list(texts[0]) == [*columns, "reference", "loss", "reordered", "least_covered"]
    content = DATA.content.corpus
    assert {row["text"] for row in texts} == {content.sources[number] for number in content.numbers("test")}
    links = rows(folder / "alignments.csv")
    assert {row["of"] for row in links} == {"translation", "reference"}
    assert len({row["id"] for row in links}) == 2
    for row in links:
        assert (row["of"] == "reference") or not row["gold"]
        text = next(each["text"] for each in texts if each["id"] == row["id"])
        assert text.split()[int(row["source_place"])] == row["source_word"]
    assert sum(int(row["pairs"]) for row in rows(folder / "bleu_by_length.csv")) == 6
    assert rows(folder / "gradients.csv")[0]["distance"] == "1"
    assert rows(folder / "faithfulness.csv")


def test_maps_of_words_belong_to_the_forced_pass(folder: Path) -> None:
    found = zoo.maps.load(folder)
    module = module_of(DATA)
    assert len(found) == 2
    for id_, made in found.items():
        assert set(made) == {"attend.attend", "alignment", "alignment of the reference"}
        reference = made["alignment of the reference"]
        assert reference.gold is not None
        position = list(DATA.content.corpus.ids).index(id_)
        examples = DATA.examples("all")
        batch = examples.collate([examples.entries[position]])
        weights = module.force_references(batch).weights
        assert weights is not None
        torch.testing.assert_close(reference.head(), weights[0, :-1], rtol=0.0, atol=1e-6)
        assert list(reference.labels["key"]) == batch.written[0].source.split()
        best = module.write(batch)[0][0]
        of_best = force_decode_texts(module.net, batch.source, [best.target(END)]).weights
        assert of_best is not None
        torch.testing.assert_close(made["alignment"].head(), of_best[0, : len(best.tokens)], rtol=0.0, atol=1e-6)


def test_truth_is_that_of_the_test(folder: Path) -> None:
    module = module_of(DATA)
    logged: dict[str, Any] = {}
    module.log_dict = lambda metrics, **_: logged.update(metrics)  # type: ignore[method-assign, assignment]
    module.on_test_epoch_start()
    for number, batch in enumerate(DATA.loader("test")):
        module.test_step(batch, number)
    module.on_test_epoch_end()
    expected = {name: float(metric.compute()) for name, metric in logged.items() if name.startswith("truth/")}
    scores = json.loads((folder / "scores.json").read_text())
    assert {f"truth/{name}": value for name, value in scores["truth"].items()} == pytest.approx(expected)


def test_pictures_are_drawn(folder: Path) -> None:
    names = {path.name for path in (folder / "pictures").iterdir()}
    assert {"gradients.png", "bleu_by_length.png"} < names
    assert sum(name.endswith("_reference.png") for name in names) == 2


def test_texts_without_translations_have_maps_and_no_truth(tmp_path: Path) -> None:
    state = DATA.state()
    data = DATA.from_texts(["dog sees cat", "old king"], state)
    export(module_of(DATA), data, tmp_path / "out", MapOptions())
    assert [row["id"] for row in rows(tmp_path / "out" / "translations.csv")] == ["text 1", "text 2"]
    assert not (tmp_path / "out" / "gradients.csv").exists()
    assert "truth" not in (tmp_path / "out" / "words.txt").read_text()


class Blind(Small):
    align = None


def test_a_net_without_attention_has_tables(tmp_path: Path) -> None:
    export(module_of(DATA, Blind), DATA, tmp_path / "out", MapOptions(pictures=1))
    assert "reordered" not in rows(tmp_path / "out" / "translations.csv")[0]
    assert rows(tmp_path / "out" / "gradients.csv")
    assert not (tmp_path / "out" / "alignments.csv").exists()
    assert "no map" in (tmp_path / "out" / "words.txt").read_text()


def test_gradients_of_each_token_alone() -> None:
    module, batch = translator().eval(), pairs([1])
    tokens = [7, 8, 4, END]
    found = gradient_norms(module.net, batch.source, tokens)
    net: Any = module.net
    for step in range(len(tokens)):
        logits = net.whole(batch.source, torch.tensor([[BEGIN, *tokens[:-1]]]))[0, step]
        (gradient,) = torch.autograd.grad(logits[tokens[step]] - logits.mean(), net.encoder.weight)
        expected = gradient[batch.source.tokens[0]].norm(dim=-1)  # every token of the source is there once
        torch.testing.assert_close(found[step], expected, rtol=0.0, atol=1e-12)


def test_distances_go_along_the_source_and_the_text() -> None:
    reached = GradientDistanceTally()
    gold = torch.tensor([[False, True], [False, False]])
    reached.add(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), gold)
    assert [tuple(row) for row in reached.rows()] == [
        (1, 1, 2.0, 1, 2.0),
        (2, 2, 4.5, 0, None),
        (3, 1, 4.0, 0, None),
    ]
    axes = reach_figure(reached.rows(), title="small").axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [2.0, 4.5, 4.0])
    assert axes.get_yscale() == "log"


def test_a_text_without_words_is_the_text_that_lacks_them() -> None:
    module, batch = translator().eval(), pairs([1])
    found = PerturbableText(module, batch)
    keep = torch.tensor([[True] * 5, [True, False, True, False, True], [False, False, False, False, True]])
    scores = found.score(keep)
    words = SOURCES[1].split()
    language = languages().source
    for row, score in zip(keep.tolist(), scores.tolist(), strict=True):
        text = " ".join(word for word, kept in zip(words, row, strict=True) if kept)
        source = Source.pad([language.encode(text)[1]])
        chances = force_decode(module.net, source, begins(source), [found.answer])[0]
        assert score == pytest.approx(math.exp(chances.mean().item()), abs=1e-12)
    net: Any = module.net
    chances = force_decode(net, batch.source, begins(batch.source), [found.answer]).mean()
    (gradient,) = torch.autograd.grad(chances, net.encoder.weight)
    at = batch.source.tokens[0]
    expected = (gradient[at] * net.encoder.weight[at]).sum(-1).abs()
    torch.testing.assert_close(found.gradient(), expected, rtol=0.0, atol=1e-12)
    with pytest.raises(ValueError, match="at least one word"):
        found.score(torch.zeros(1, 5, dtype=torch.bool))


def test_words_are_left_out_with_all_of_their_tokens() -> None:
    data = planted_translation(
        pairs=30, held_out=4, longest=6, max_epochs=1, batch_size=4, tokeniser="subwords", subwords=300
    )
    module = module_of(data, partial(Small, dim=4))
    examples = data.examples("test")
    batch = examples.collate([examples.entries[0]])
    words = batch.written[0].source.split()
    found = PerturbableText(module, batch)
    assert len(found.attention) == len(words) < len(found.owners)
    assert found.gradient().shape == (len(words),)
    keep = torch.ones(1, len(words), dtype=torch.bool)
    keep[0, 1] = False
    tokens = found.mask(keep).tokens[0].tolist()
    assert data.content.languages.source.text(tokens) == " ".join([words[0], *words[2:]])


def test_the_reference_is_not_needed_for_looks() -> None:
    source = module_of(DATA).maps(DATA, MapOptions(ids=(DATA.content.corpus.ids[0],)))
    (said,) = source.describe_chosen()
    assert " < " in said
