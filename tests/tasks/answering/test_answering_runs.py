"""Question answering as a user runs it: own tables, predictions, and fine-tuning with new words and answers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.checkpoints import checkpoint
from zoo.maps import load
from zoo.nn.images.image_input import cells_of
from zoo.tasks.answering import planted_inference, planted_passages, planted_questions

SAMPLES = Path(__file__).parents[3] / "data" / "samples" / "answering"
TINY = ["trainer=cpu", "logger=csv", "data.max_epochs=1"]
ESIM = ["model=esim", "model.net.dim=6", "model.net.hidden=4"]
BIDAF = ["model=bidaf", "model.net.dim=6", "model.net.hidden=4"]


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_tokens_spans_and_links_of_generated_passages() -> None:
    data = planted_passages(passages=20, held_out=5, max_epochs=1, batch_size=7)
    asked = data.content.records
    batch = next(iter(data.loader("train")))
    vocabulary = data.content.language.vocabulary
    for number, wording in enumerate(batch.written):
        first, last = batch.spans[number].tolist()
        assert wording.text_between(first, last) == wording.answer
        words = vocabulary.decode(batch.passage.tokens[number, : batch.passage.lengths[number]].tolist())
        assert " ".join(words) == wording.passage
        question = vocabulary.decode(batch.question.tokens[number, : batch.question.lengths[number]].tolist())
        pairs = [(question[q], words[p]) for q, p in batch.gold[number].nonzero().tolist()]
        assert len(pairs) == 1
        assert all(one == other for one, other in pairs)
    assert data.sizes() == {"words": len(vocabulary)}
    assert len(asked) == 30
    assert next(iter(data.train_dataloader())).written is None


def test_answers_of_the_training_split_are_those_of_the_model() -> None:
    data = planted_inference(pairs=30, held_out=6, max_epochs=1, batch_size=30)
    assert data.content.answer_names == ("contradiction", "entailment", "neutral")
    batch = next(iter(data.loader("test")))
    assert [batch.answer_names[number] for number in batch.answers.tolist()] == [each.answer for each in batch.written]
    few = planted_inference(pairs=30, held_out=6, max_answers=2, max_epochs=1, batch_size=30)
    with pytest.warns(UserWarning, match=r"10 of 30 training questions are left out by data\.max_answers"):
        few.setup()
    assert few.sizes()["answers"] == 2


def test_boxes_of_generated_pictures_are_shares() -> None:
    data = planted_questions(pictures=20, held_out=5, max_epochs=1, batch_size=20)
    asked = data.content.records
    batch = next(iter(data.loader("train")))
    assert batch.picture.pixels.shape == (20, 3, 48, 48)
    for number, boxes in enumerate(asked.boxes[:20]):
        torch.testing.assert_close(batch.regions[number, : len(boxes)] * 48, torch.tensor(boxes).view(-1, 4).float())
    assert cells_of(batch.regions, (8, 8)).any(-1).sum(1).tolist() == [len(boxes) for boxes in asked.boxes[:20]]


def test_own_passages_are_read_answered_and_measured(cli: Any) -> None:
    table = SAMPLES / "passages.csv"
    done = cli("train", *BIDAF, *TINY, "data=passage_questions", f"data.table={table}", "run_dir=run")
    assert done.code == 0, done.err
    assert cli("predict", "run/checkpoints/best.ckpt", table, "--out", "out.csv").code == 0
    found = rows_of("out.csv")
    assert [each["question"] for each in found][-1] == "When does the ferry return?"
    assert [each["answer"] for each in found] == [each["answer"] for each in rows_of(str(table))]
    contexts = [each["context"] for each in rows_of(str(table))]
    assert all(each["prediction"] in context for each, context in zip(found, contexts, strict=True))
    Path("new.csv").write_text("context,question\nIt rains in May.,When?\n")
    assert cli("predict", "run/checkpoints/best.ckpt", "new.csv", "--out", "new_out.csv").code == 0
    assert rows_of("new_out.csv")[0]["prediction"] in "It rains in May."
    assert cli("evaluate", "run/checkpoints/best.ckpt", "--data", table, "--out", "found.json").code == 0
    assert "test/f1" in json.loads(Path("found.json").read_text())


def test_new_words_and_answers_are_matched_by_name(cli: Any) -> None:
    options = ["data.pairs=40", "data.held_out=10", "data.batch_size=20"]
    assert cli("train", *ESIM, *TINY, *options, "run_dir=old").code == 0
    own = "premise,hypothesis,label,split\n"
    for split in ("train", "train", "val", "test"):
        for label in ("entailment", "unclear"):
            own += f"the cup is red,the umbrella is {label},{label},{split}\n"
    Path("own.csv").write_text(own)
    old = "old/checkpoints/best.ckpt"
    options = ["data=hypotheses", "data.table=own.csv", f"init={old}", "optimizer.lr=1e-12"]
    done = cli("train", *ESIM, *TINY, *options, "run_dir=new")
    assert done.code == 0, done.err
    assert cli("predict", "new/checkpoints/best.ckpt", "own.csv", "--out", "out.csv").code == 0
    columns = ["id", "split", "premise", "hypothesis", "label", "prediction", "probability"]
    assert list(rows_of("out.csv")[0]) == columns
    assert [each["hypothesis"] for each in rows_of("out.csv")][:2] == [
        "the umbrella is entailment",
        "the umbrella is unclear",
    ]
    assert cli("evaluate", "new/checkpoints/best.ckpt", "own.csv", "--worst", "1", "--out", "test.json").code == 0
    assert list(rows_of("test_worst.csv")[0])[:4] == ["id", "premise", "hypothesis", "label"]
    before, after = (checkpoint.read(Path(f"{run}/checkpoints/best.ckpt")) for run in ("old", "new"))
    for vocabulary, parameter in (("tokens", "net.vectors.table.weight"), ("answers", "net.head.weight")):
        names = [each["zoo"]["data"][vocabulary] for each in (before, after)]
        both = [name for name in names[1] if name in names[0]]
        assert len(both) >= 1
        assert set(names[1]) - set(names[0])
        tables = [each["state_dict"][parameter] for each in (before, after)]
        for name in both:
            torch.testing.assert_close(*(rows[of.index(name)] for rows, of in zip(tables, names, strict=True)))
    assert cli("predict", "new/checkpoints/best.ckpt", "own.csv", "--out", "out.csv").code == 0
    assert {each["prediction"] for each in rows_of("out.csv")} <= {"entailment", "unclear"}


def test_own_pictures(cli: Any) -> None:
    Path("in").mkdir()
    table = "image,question,answer,split\n"
    for number, split in enumerate(("train", "train", "val", "test")):
        Image.fromarray(np.full((20, 30, 3), 60 * number, dtype=np.uint8)).save(f"in/{number}.png")
        table += f"{number}.png,is it dark ?,{'yes' if number % 2 else 'no'},{split}\n"
    Path("in/own.csv").write_text(table)
    net = [
        "model.net.encoder.channels=[4,4]",
        "model.net.encoder.strides=[2,3]",
        "model.net.encoder.dim=8",
        "model.net.fused=4",
    ]
    data = ["data=picture_questions", "data.table=in/own.csv", "data.height=24", "data.width=24"]
    done = cli("train", "model=coattention", *net, *data, *TINY, "run_dir=run")
    assert done.code == 0, done.err
    assert cli("predict", "run/checkpoints/best.ckpt", "in/own.csv", "--out", "out.csv").code == 0
    assert {each["prediction"] for each in rows_of("out.csv")} <= {"yes", "no"}
    done = cli("maps", "run/checkpoints/best.ckpt", "--data", "in/own.csv", "--out", "drawn")
    assert done.code == 0, done.err
    sites = {
        f"both.{level}.{site}" for level in ("word", "phrase", "question") for site in ("first", "second", "affinity")
    }
    assert set(load(Path("drawn")).layers) == sites | {"both.first", "both.second", "picture"}


@pytest.mark.parametrize("data", ["planted_passages", "planted_inference"])
def test_a_model_for_something_else_is_refused(cli: Any, data: str) -> None:
    done = cli("train", "model=coattention", f"data={data}", *TINY)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_training_starts_from_word_vectors(cli: Any) -> None:
    """Of a file, whose other words are random as before, or learned from the premises and hypotheses of training."""
    options = [*ESIM, *TINY, "data.pairs=40", "data.held_out=10", "optimization.freeze=[net.vectors]"]
    data = planted_inference(pairs=40, held_out=10, phrases=True, max_epochs=1, batch_size=7)
    words = data.content.language.vocabulary.tokens
    Path("vectors.txt").write_text(f"{words[5]} 1 2 3 4 5 6\nelsewhere 1 1 1 1 1 1\n")
    done = cli("train", *options, "model.vectors=vectors.txt", "run_dir=file")
    assert done.code == 0, done.err
    assert f"vectors.txt: vectors of 1 of {len(words)} tokens" in done.err
    table = checkpoint.read("file/checkpoints/best.ckpt")["state_dict"]["net.vectors.table.weight"]
    assert table[5].square().mean().sqrt().item() == pytest.approx(1)  # as random ones: dot products are compared
    assert (table[5] / table[5, 0]).tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    done = cli("train", *options, "model.vectors=vectors.txt", "model.spread=null", "run_dir=unscaled")
    assert done.code == 0, done.err
    unscaled = checkpoint.read("unscaled/checkpoints/best.ckpt")["state_dict"]["net.vectors.table.weight"]
    assert unscaled[5].tolist() == [1, 2, 3, 4, 5, 6]
    done = cli("train", *options, "model.vectors=corpus", "run_dir=corpus")
    assert done.code == 0, done.err
    learned = checkpoint.read("corpus/checkpoints/best.ckpt")["state_dict"]["net.vectors.table.weight"]
    assert not torch.equal(learned[6], table[6])
