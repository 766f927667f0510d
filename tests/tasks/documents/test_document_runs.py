"""Runs beside those of every domain: figures, other models, fine-tuning, the samples."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from run_cases import DOMAINS, ROOT, figures

from zoo.checkpoints import checkpoint
from zoo.tasks import initial_vectors
from zoo.text import corpus_vectors

TINY = DOMAINS["documents"].tiny
DATA = [each for each in TINY if each.startswith("data.")]
SMALL = [each for each in TINY if each.startswith("model.net.")]


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("documents")


def test_a_run_leaves_its_figures_and_the_confusion_matrix(trained: Path) -> None:
    found = figures(trained)
    metrics = ("accuracy", "f1_macro", "f1_micro", "calibration_error", "accuracy_without_shortcut", "shortcut_weight")
    for name in metrics:
        assert 0 <= found[f"test/{name}"] <= 1
    assert found["test/f1_micro"] == pytest.approx(found["test/accuracy"])
    assert 0 <= found["truth/sentence_pointing"] <= 1
    assert 0 <= found["truth/word_pointing"] <= 1
    with open(trained / "test_confusion.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label / prediction"] for row in rows] == ["awful", "poor", "good", "superb"]
    assert sum(int(value) for row in rows for name, value in row.items() if name != "label / prediction") == 12


@pytest.mark.parametrize("model", ["han_transformer", "flat_attention", "long_document"])
def test_the_other_models_train(model: str, cli: Any) -> None:
    done = cli("train", f"model={model}", *DATA, "model.net.dim=8", "data.max_epochs=1", "trainer=cpu", "run_dir=run")
    assert done.code == 0, done.err
    assert 0 <= figures(Path("run"))["truth/word_pointing"] <= 1


@pytest.mark.slow
def test_a_long_document_finds_the_phrase_by_attention(cli: Any) -> None:
    for name, more in (("own", []), ("uniform", ["attention=uniform"])):
        done = cli("train", "model=long_document", *more, "trainer=cpu", "threads=1", f"run_dir={name}")
        assert done.code == 0, done.err
    own, uniform = figures(Path("own")), figures(Path("uniform"))
    assert own["test/accuracy"] >= 0.95
    assert own["truth/sentence_pointing"] >= 0.9
    assert own["truth/word_pointing"] >= 0.9
    assert uniform["test/accuracy"] <= own["test/accuracy"] - 0.1


def test_fine_tuning_keeps_words_by_name_and_the_tokeniser(cli: Any) -> None:
    """From reviews in subwords to texts of the user's own, of other labels."""
    subwords = ["data.tokeniser=subwords", "data.subwords=300"]
    done = cli("train", *TINY, *subwords, "data.max_epochs=1", "run_dir=first")
    assert done.code == 0, done.err
    rows = [
        f"{'the food was good' if n % 2 else 'a bus was late'} {n},{'nice' if n % 2 else 'good'}" for n in range(20)
    ]
    Path("own.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    start = ["init=first/checkpoints/best.ckpt", "data=text_table", "data.table=own.csv", "data.max_epochs=1"]
    done = cli("train", *start, "trainer=cpu", "run_dir=own")
    assert done.code == 0, done.err
    before, after = (checkpoint.read(f"{run}/checkpoints/best.ckpt")["zoo"]["data"] for run in ("first", "own"))
    assert after["tokeniser"] == before["tokeniser"]
    assert after["labels"] == ["good", "nice"]
    assert set(after["tokens"]) <= {*before["tokeniser"]["pieces"], "<unk>"}
    resumed = cli("train", "resume=own/checkpoints/last.ckpt", "data.max_epochs=2")
    assert resumed.code == 0, resumed.err


def test_vectors_of_the_texts_and_of_pairs_of_words(cli: Any) -> None:
    """Vectors are learned from the training texts; pairs are found by the names of words in another vocabulary."""
    options = ["model.vectors=corpus", "model.net.pairs=3", "model.net.pair_dropout=0.5", "data.max_epochs=1"]
    done = cli("train", *TINY, *options, "run_dir=first")
    assert done.code == 0, done.err
    assert "zoo: corpus: vectors of " in done.err
    rows = [
        f"{'the food was good' if n % 2 else 'a bus was late'} {n},{'nice' if n % 2 else 'good'}" for n in range(20)
    ]
    Path("own.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    start = ["init=first/checkpoints/best.ckpt", "data=text_table", "data.table=own.csv", "data.max_epochs=1"]
    done = cli("train", *start, "optimizer.lr=1e-9", "trainer=cpu", "run_dir=own")
    assert done.code == 0, done.err
    before, after = (checkpoint.read(f"{run}/checkpoints/best.ckpt") for run in ("first", "own"))
    for content in (before, after):
        codes = content["state_dict"]["net.pairs.codes"].tolist()
        assert codes == [crc32(word.encode()) for word in content["zoo"]["data"]["tokens"]]
    table, kept = (content["state_dict"]["net.pairs.table.weight"] for content in (before, after))
    assert table.any()
    assert (table - kept).abs().max() < 1e-6
    done = cli("predict", "own/checkpoints/best.ckpt", "--text", "The food was good.", "--explain")
    assert done.code == 0, done.err
    done = cli("train", *TINY, *options, "model.net.dim=500", "check=true")
    assert (done.code, "vectors of 500 numbers cannot be learned for" in done.err) == (2, True)


def test_vectors_of_the_texts_are_learned_once(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run reads them from the cache, and is bit-equal; other texts and another width have other vectors."""
    learned: list[int] = []

    def noted(texts: Iterable[Sequence[int]], *, words: int, dim: int) -> Any:
        learned.append(dim)
        return corpus_vectors(texts, words=words, dim=dim)

    monkeypatch.setattr(initial_vectors, "corpus_vectors", noted)
    rows = [f"{'the food was good' if n % 2 else 'a bus was late'} {n},{n % 2}" for n in range(20)]
    Path("own.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    options = ["model=han", "data=text_table", "data.table=own.csv", "paths.cache=kept", "model.vectors=corpus", *SMALL]
    options += ["data.max_epochs=1", "data.num_workers=0", "trainer=cpu", "threads=1"]

    def weights(run: str, *more: str) -> dict[str, Any]:
        done = cli("train", *options, *more, f"run_dir={run}")
        assert done.code == 0, done.err
        assert "zoo: corpus: vectors of " in done.err
        found: dict[str, Any] = checkpoint.read(f"{run}/checkpoints/best.ckpt")["state_dict"]
        return found

    first, second = weights("first"), weights("second")
    assert learned == [8]
    assert all(first[name].equal(second[name]) for name in first)
    weights("wider", "model.net.dim=10")
    assert learned == [8, 10]
    Path("own.csv").write_text("\n".join(["text,label", *rows[::-1]]) + "\n")
    weights("others")
    assert learned == [8, 10, 8]
    assert len(list(Path("kept/corpus-vectors").glob("*.safetensors"))) == 3


def test_the_preflight_finds_nothing(cli: Any) -> None:
    done = cli("train", *TINY, "check=true")
    assert done.code == 0, done.err
    assert "do not depend on other documents of the batch" in done.out


@pytest.mark.parametrize(
    "own",
    [
        ["data=text_table", "data.table={}/reviews.csv", "data.augmentation.synonyms={}/synonyms.tsv"],
        ["data=text_table", "data.table={}/tickets.jsonl", "data.id=id", "data.targets=multi"],
        ["data=text_folder", "data.folder={}/letters"],
    ],
)
def test_the_samples(own: list[str], cli: Any) -> None:
    samples = ROOT / "data" / "samples" / "documents"
    given = [each.format(samples) for each in own]
    done = cli("train", "model=han", *SMALL, *given, "data.max_epochs=1", "trainer=cpu", "run_dir=run")
    assert done.code == 0, done.err
    assert "accuracy" in done.out


def test_word_vectors_of_a_file(cli: Any) -> None:
    """Words start from them; a file of another width, and one without any of the words, are refused."""
    Path("vectors.txt").write_text("food 1 2 3 4 5 6 7 8\nelsewhere 1 1 1 1 1 1 1 1\n")
    still = [*TINY, "model.vectors=vectors.txt", "optimization.freeze=[net.vectors]", "data.max_epochs=1"]
    done = cli("train", *still, "run_dir=run")
    assert done.code == 0, done.err
    assert "vectors.txt: vectors of 1 of" in done.err
    content = checkpoint.read("run/checkpoints/best.ckpt")
    row = content["zoo"]["data"]["tokens"].index("food")
    assert content["state_dict"]["net.vectors.table.weight"][row].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    bad = (("food 1 2\n", "line 1: the word has 2 numbers, not 8"), ("elsewhere" + " 1" * 8, "none of the"))
    for content, message in bad:
        Path("vectors.txt").write_text(content)
        for more in (["run_dir=other"], ["check=true"]):
            done = cli("train", *still, *more)
            assert (done.code, message in done.err) == (2, True)
