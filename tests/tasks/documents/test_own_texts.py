"""Defaults for texts of the user's own: what is chosen, that it is said, and what becomes of it in fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_cases import DOMAINS

from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.config.instantiate import build
from zoo.tasks.documents import DocumentData
from zoo.tasks.documents.small_data import choose_min_count, choose_skip, choose_vectors, choose_word_dropout

SMALL = [each for each in DOMAINS["documents"].tiny if each.startswith("model.net.")]
SAID = "zoo: chosen for texts of your own: "


def test_what_is_chosen() -> None:
    assert [choose_skip(own) for own in (0, 1)] == [False, True]
    assert [choose_vectors(own, 30, 8) for own in (0, 1)] == [None, "corpus"]
    assert choose_vectors(1, 8, 8) is None  # which vectors of 8 numbers cannot be learned for
    assert [choose_min_count(own, count) for own in (0, 1) for count in (499, 500)] == [1, 1, 1, 2]
    assert [choose_word_dropout(own, kind) for own in (0, 1) for kind in ("characters", "words")] == [0, 0, 0, 0.3]


def table(name: str, words: str = "the food was good") -> str:
    rows = [f"{words if n % 2 else 'a bus was late today'} {n},{n % 2}" for n in range(30)]
    Path(name).write_text("\n".join(["text,label", *rows]) + "\n")
    return f"data.table={name}"


def test_own_texts_have_learned_vectors_that_attention_reads(cli: Any) -> None:
    options = ["data=text_table", table("own.csv"), *SMALL, "data.max_epochs=1", "trainer=cpu", "data.num_workers=0"]
    done = cli("train", "model=han", *options, "run_dir=own")
    assert done.code == 0, done.err
    assert f"{SAID}data.augmentation.word_dropout=0.3 model.vectors=corpus model.net.skip=true\n" in done.err
    assert "zoo: corpus: vectors of " in done.err
    content = checkpoint.read("own/checkpoints/best.ckpt")
    assert content["zoo"]["sizes"]["own_texts"] == 1
    assert content["state_dict"]["net.head.weight"].shape[1] == 2 * 4 + 8
    for command in (
        ["predict", "own/checkpoints/best.ckpt", "--text", "good food"],
        ["evaluate", "own/checkpoints/best.ckpt"],
    ):
        done = cli(*command)
        assert done.code == 0, done.err
    done = cli("train", "resume=own/checkpoints/last.ckpt", "data.max_epochs=2")
    assert done.code == 0, done.err
    plain = ["model.vectors=null", "model.net.skip=false", "data.augmentation.word_dropout=0", "run_dir=plain"]
    done = cli("train", "model=han", *options, *plain)
    assert done.code == 0, done.err
    assert SAID not in done.err
    assert "vectors" not in done.err
    assert checkpoint.read("plain/checkpoints/best.ckpt")["state_dict"]["net.head.weight"].shape[1] == 2 * 4


def test_rare_words_of_five_hundred_texts_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{'the food was good' if n % 2 else 'a bus was late today'} {n},{n % 2},train" for n in range(500)]
    held_out = [f"late,{label},{split}" for label in (0, 1) for split in ("val", "test")]
    Path("own.csv").write_text("\n".join(["text,label,split", *rows, *held_out]) + "\n")
    overrides = ["model=han", "data=text_table", "data.table=own.csv", "paths.cache=cache"]

    def of(*more: str, state: Mapping[str, Any] | None = None, is_fine_tuned: bool = True) -> DocumentData:
        data: DocumentData = build(compose.compose([*overrides, *more])["data"], "data")
        if state is not None:
            data.is_fine_tuned = is_fine_tuned
            data.inherit_from_checkpoint(state)
        return data

    chosen, given = of(), of("data.min_count=1")
    assert chosen.choices == ["data.min_count=2", "data.augmentation.word_dropout=0.3"]
    assert given.choices == ["data.augmentation.word_dropout=0.3"]
    assert len(given.content.vocabulary) - len(chosen.content.vocabulary) == 500
    continued = of(state=given.state())
    assert (continued.choices, len(continued.content.vocabulary)) == ([], len(given.content.vocabulary))
    assert continued.examples("train", training=True).augment is None
    resumed = of(state=chosen.state(), is_fine_tuned=False)  # it chooses as it did at its beginning
    assert (resumed.choices, resumed.content.vocabulary.tokens) == (chosen.choices, chosen.content.vocabulary.tokens)
    dropped = chosen.examples("train", training=True).augment
    assert dropped is not None
    assert chosen.examples("val").augment is None


def test_generated_texts_have_neither(cli: Any) -> None:
    done = cli("train", *DOMAINS["documents"].tiny, "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    assert "vectors" not in done.err
    assert checkpoint.read("run/checkpoints/best.ckpt")["zoo"]["sizes"]["own_texts"] == 0


@pytest.mark.parametrize("is_own", [True, False])
def test_fine_tuning_keeps_the_shapes_of_the_checkpoint(is_own: bool, cli: Any) -> None:
    tiny = ["model=han", "data=text_table", table("first.csv"), *SMALL] if is_own else DOMAINS["documents"].tiny
    done = cli("train", *tiny, "data.max_epochs=1", "trainer=cpu", "run_dir=first")
    assert done.code == 0, done.err
    start = ["init=first/checkpoints/best.ckpt", "data=text_table", table("second.csv", "the music was loud")]
    done = cli("train", *start, "data.max_epochs=1", "trainer=cpu", "run_dir=second")
    assert done.code == 0, done.err
    assert SAID not in done.err
    weights = [checkpoint.read(f"{run}/checkpoints/best.ckpt")["state_dict"] for run in ("first", "second")]
    assert weights[0]["net.head.weight"].shape[1] == weights[1]["net.head.weight"].shape[1]
