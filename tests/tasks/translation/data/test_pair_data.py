"""Pairs as batches: every token once, gold that follows its words under every tokeniser, budgets that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.tasks.translation import PairData, planted_translation, text_pairs
from zoo.tasks.translation.batch import Pairs

SMALL = {"pairs": 60, "held_out": 10, "longest": 9, "max_epochs": 1, "batch_size": 16}
TOKENISERS: list[dict[str, Any]] = [
    {"tokeniser": kind, "joint": joint, "subwords": 300}
    for kind in ("words", "characters", "subwords")
    for joint in (False, True)
]


def planted(**options: Any) -> PairData:
    return planted_translation(**(SMALL | options))


@pytest.mark.parametrize("options", TOKENISERS)
def test_texts_are_restored_from_their_tokens(options: dict[str, Any]) -> None:
    data = planted(**options, pairs=2000)  # so many that no word is unknown
    for split in ("val", "test"):
        for batch in data.loader(split):
            for row, written in enumerate(batch.written):
                source = batch.source.tokens[row, : batch.source.lengths[row]].tolist()
                assert batch.languages.source.text(source) == written.source
                assert [batch.languages.target.text(batch.targets.tokens[row].tolist())] == written.references
                assert len(written.pieces) == len(written.words) == len(source)


@pytest.mark.parametrize("options", TOKENISERS)
def test_gold_links_the_tokens_of_linked_words_and_no_others(options: dict[str, Any]) -> None:
    data = planted(**options)
    corpus, languages = data.content.corpus, data.content.languages
    for batch in data.loader("all"):
        for row, id in enumerate(batch.ids):
            number = corpus.ids.index(id)
            sides = (languages.target, corpus.targets[number]), (languages.source, corpus.sources[number])
            # in these texts words stand between single spaces, so a tokeniser's words are those of the links
            words = [language.tokeniser.encode(text).words for language, text in sides]
            linked = {tuple(link) for link in corpus.links[number].tolist()}
            for target, origin in np.ndindex(len(words[0]), len(words[1])):
                assert batch.gold[row, target, origin] == ((words[0][target], words[1][origin]) in linked)
            assert not batch.gold[row, len(words[0]) :].any()


def test_one_vocabulary_for_both_languages() -> None:
    joint, apart = planted(joint=True).content.languages, planted().content.languages
    assert joint.source is joint.target
    assert len(joint.source) == len(apart.source) + len(apart.target) - 4


def batches(data: PairData) -> list[Pairs]:
    return list(data.train_dataloader())


def test_batches_keep_the_budget_and_lose_nothing() -> None:
    data = planted(batch_size=None, max_tokens=60)
    found = batches(data)
    for batch in found:
        longest = max(batch.source.tokens.shape[1], batch.targets.tokens.shape[1])
        assert len(batch) * longest <= 60
    assert sorted(id for batch in found for id in batch.ids) == sorted(data.content.corpus.ids[:60])
    assert all(batch.written is None for batch in found)


@pytest.mark.parametrize(("name", "most"), [("max_length", 6), ("max_ratio", 1.3)])
def test_training_pairs_that_are_left_out_are_counted(name: str, most: float) -> None:
    every = planted()
    data = planted(**{name: most})
    with pytest.warns(UserWarning, match=f"of 60 training pairs are left out by data.{name}={most}") as said:
        data.setup()
    kept = [id for batch in batches(data) for id in batch.ids]
    assert int(str(said[0].message).split()[0]) + len(kept) == 60
    for split in ("val", "test"):
        assert data.examples(split).lengths == every.examples(split).lengths
    for batch in batches(data):
        lengths = np.stack([batch.source.lengths, batch.targets.lengths - 1])
        limit = most * lengths.min(0) if name == "max_ratio" else most
        assert (lengths.max(0) <= limit).all()


def test_a_state_gives_the_same_languages_again() -> None:
    for options in TOKENISERS:
        data = planted(**options)
        again = planted(**options, seed=1)
        again.restore(data.state())
        assert again.state() == data.state()
        assert again.sizes() == data.sizes()
        text = data.for_text(["old dog", "strange words"], data.state())
        (batch,) = text.predict_dataloader()
        assert (batch.ids, batch.targets, batch.written[0].references) == (("text 1", "text 2"), None, [])
        assert batch.languages.source.text(batch.source.tokens[0].tolist()) == "old dog"


def test_a_table(write: Any) -> None:
    rows = "".join(f"text {n}\tein Text {n}\t0-1 1-2\n" for n in range(20))
    path: Path = write(f"source\ttarget\talignment\n{rows}", "pairs.tsv")
    data = text_pairs(table=str(path), max_epochs=1, batch_size=4)
    assert [len(data.examples(split).entries) for split in ("train", "val", "test")] == [12, 4, 4]
    batch = next(iter(data.loader("val")))
    assert batch.gold[0].nonzero().tolist() == [[1, 0], [2, 1]]


@pytest.mark.parametrize("cached", [False, True])
def test_aligned_files(write: Any, tmp_path: Path, cached: bool) -> None:
    sides = {side: str(write("".join(f"{side} {n}\n" for n in range(10)), f"own.{side}")) for side in ("de", "en")}
    data = text_pairs(
        source_file=sides["de"],
        target_file=sides["en"],
        cache=str(tmp_path / "cache") if cached else None,
        max_epochs=1,
        batch_size=4,
    )
    assert isinstance(data.content.corpus.sources, list) != cached
    found = [written for batch in data.loader("all") for written in batch.written]
    assert sorted((each.source, each.references[0]) for each in found) == [(f"de {n}", f"en {n}") for n in range(10)]
