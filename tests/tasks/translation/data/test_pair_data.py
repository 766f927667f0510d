"""Pairs as batches: every token once, gold that follows its words under every tokeniser, budgets that are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.errors import CheckpointError, ConfigError
from zoo.tasks.translation import PairData, planted_translation, text_pairs
from zoo.tasks.translation.batch import TranslationBatch

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
                assert data.content.languages.source.text(source) == written.source
                assert [batch.language.text(batch.targets.tokens[row].tolist())] == written.references
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


def batches(data: PairData) -> list[TranslationBatch]:
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
        text = data.from_texts(["old dog", "strange words"], data.state())
        (batch,) = text.predict_dataloader()
        assert (batch.ids, batch.targets, batch.written[0].references) == (("text 1", "text 2"), None, [])
        assert text.content.languages.source.text(batch.source.tokens[0].tolist()) == "old dog"


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


@pytest.mark.parametrize("kept", ["both", "source", "target", "none"])
def test_fine_tuning_keeps_the_tokenisers_that_are_asked_for(kept: Any) -> None:
    trained = planted(tokeniser="subwords", subwords=300).state()
    other = planted(tokeniser="subwords", subwords=320, seed=1, kept_tokenisers=kept)
    other.inherit_from_checkpoint(trained)
    state = other.state()
    for side in ("source", "target"):
        assert (state[f"{side}_tokeniser"] == trained[f"{side}_tokeniser"]) == (kept in (side, "both"))


def test_one_tokeniser_for_both_languages_is_kept_as_one() -> None:
    joint = {"tokeniser": "subwords", "subwords": 300, "joint": True}
    one, two = planted(**joint).state(), planted(tokeniser="subwords", subwords=300).state()
    other = planted(**joint, seed=1)
    other.inherit_from_checkpoint(one)
    assert other.state()["source_tokeniser"] == other.state()["target_tokeniser"] == one["source_tokeniser"]
    with pytest.raises(ConfigError, match=r"data.joint=true needs one tokeniser .* or give data.kept_tokenisers=none"):
        planted(**joint).inherit_from_checkpoint(two)
    with pytest.raises(ConfigError, match=r"data.joint=true needs one tokeniser"):
        planted(**joint, kept_tokenisers="source").inherit_from_checkpoint(one)
    planted(**joint, kept_tokenisers="none").inherit_from_checkpoint(two)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_tokens": ["a", "<pad>"]}, "tokens of no text among the others"),
        ({"target_tokens": ["<pad>", "<unk>", "a"]}, "does not begin with its special tokens"),
        ({"joint": True}, "its languages have one vocabulary, and it has two"),
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any], message: str) -> None:
    data = planted()
    with pytest.raises(CheckpointError, match=message):
        data.restore(data.state() | change)


def test_pieces_that_training_lacks_can_be_read_and_written_all_the_same() -> None:
    data = planted(tokeniser="subwords", subwords=300, min_count=50)
    assert set(data.content.languages.target.tokeniser.pieces) <= set(data.state()["target_tokens"])
    (batch,) = data.from_texts(["Größe 中 e\u0301"], data.state()).predict_dataloader()
    assert data.content.languages.source.text(batch.source.tokens[0].tolist()) == "Größe 中 e\u0301"


def test_rare_words_and_the_most_tokens() -> None:
    every, frequent, few = planted(), planted(min_count=5), planted(max_vocabulary=20)
    assert few.sizes() == {"source_words": 20, "target_words": 20}
    assert frequent.sizes()["source_words"] < every.sizes()["source_words"]
    kept = set(frequent.state()["source_tokens"][4:])
    counts = Counter(word for text in every.content.corpus.sources[:60] for word in text.split())
    assert kept == {word for word, count in counts.items() if count >= 5}


def test_what_is_no_word_is_a_token_all_the_same() -> None:
    data = planted()
    (batch,) = data.from_texts(["\u200b"], data.state()).predict_dataloader()
    assert batch.source.lengths.tolist() == [1]


def test_long_sources_are_cut_and_counted_everywhere() -> None:
    data, whole = planted(max_source=6), planted()
    with pytest.warns(UserWarning, match="of 80 sources are cut by data.max_source=6") as said:
        data.setup()
    assert int(str(said[0].message).split()[0]) == (whole.content.sources.lengths > 6).sum()
    for cut, full in zip(data.loader("test"), whole.loader("test"), strict=True):
        assert cut.source.tokens.shape[1] == 6
        by_id = {id: row for row, id in enumerate(full.ids)}
        for row, id in enumerate(cut.ids):
            assert len(cut.written[row].pieces) == len(cut.written[row].words) == cut.source.lengths[row]
            assert cut.written[row].source == full.written[by_id[id]].source
            length = full.targets.tokens.shape[1]
            assert cut.gold[row, :length, :6].tolist() == full.gold[by_id[id], : cut.gold.shape[1], :6].tolist()


def test_translations_of_the_other_direction_are_more_training_pairs(write: Any) -> None:
    """The columns are those of `zoo predict`."""
    path = write("id,text,translation,score\n1,ein Hund,a dog,0.5\n2,eine Katze,a cat,0.4\n", "back.csv")
    data, without = planted(back_translated=str(path)), planted()
    with pytest.warns(UserWarning, match="'id', 'score' are not used"):
        data.setup()
    assert data.train_size() == without.train_size() + 2
    assert {"dog", "cat"} <= set(data.state()["source_tokens"])
    assert {"Hund", "Katze"} <= set(data.state()["target_tokens"])
    found = {id: (source, target) for id, source, target in rows_of(data, "train")}
    assert found["back.csv:2"] == ("a dog", "ein Hund")
    path.unlink()
    again = planted(back_translated=str(path))
    again.restore(data.state())
    assert list(rows_of(again, "test")) == list(rows_of(data, "test"))


def rows_of(data: PairData, split: str) -> Iterator[tuple[str, str, str]]:
    for batch in data.loader(split):
        for id, written in zip(batch.ids, batch.written, strict=True):
            yield id, written.source, written.references[0]
