"""`zoo predict` for recommenders, as a user runs it, and its refusal of options that do not apply."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recommendation_run_cases import SAMPLES, checkpoint

from zoo.checkpoints import checkpoint as files
from zoo.cli import commands
from zoo.cli.main import main
from zoo.data.loader import Loader
from zoo.tasks.recommendation.datamodule import HistoryData
from zoo.tasks.recommendation.maps.attributions import some_users
from zoo.tasks.recommendation.predictions import because

MODELS = ("sasrec", "din")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def module_and_data(history: list[str], model: str = "sasrec") -> tuple[Any, Any]:
    module: Any = files.load(checkpoint(model))
    options: Any = SimpleNamespace(root=None, input=None, history=history, on_bad_row=None, encoding=None)
    return module, commands._setup_data(module, options)


@pytest.mark.parametrize("model", MODELS)
def test_a_user_never_seen(cli: Any, model: str) -> None:
    done = cli("predict", checkpoint(model), "--history", "oat-milk, Rye bread", "--top", 3, "--explain")
    assert done.code == 0, done.err
    found = rows(done.out)
    assert list(found[0]) == ["user", "split", "held_out", "rank", "item", "title", "score", "because"]
    assert [(row["user"], row["rank"]) for row in found] == [("history 1", "1"), ("history 1", "2"), ("history 1", "3")]
    assert not {"oat-milk", "rye-bread"} & {row["item"] for row in found}
    titles = {row["item"]: row["title"] for row in rows((SAMPLES / "titles.csv").read_text())}
    assert all(row["title"] == titles[row["item"]] for row in found)
    scores = [float(row["score"]) for row in found]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("model", MODELS)
def test_the_scores_are_those_of_the_model(cli: Any, model: str) -> None:
    history = "butter,honey,soap"
    module, data = module_and_data([history], model)
    (batch,) = data.predict_dataloader()
    with torch.inference_mode():
        scores = module.score(module.encode(batch), torch.arange(12))[0]
    names = batch.catalogue.names
    kept = [at for at in scores.argsort(descending=True).tolist() if names[at] not in history.split(",")]
    found = rows(cli("predict", checkpoint(model), "--history", history, "--top", 100).out)
    assert [row["item"] for row in found] == [names[at] for at in kept]
    assert [float(row["score"]) for row in found] == pytest.approx([float(scores[at]) for at in kept], rel=1e-4)
    everything = rows(cli("predict", checkpoint(model), "--history", history, "--top", 100, "--seen").out)
    assert [row["item"] for row in everything] == [names[at] for at in scores.argsort(descending=True).tolist()]


def test_without_top_there_are_ten(cli: Any) -> None:
    assert len(rows(cli("predict", checkpoint(), "--history", "soap").out)) == 10


def test_a_file_of_histories(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "new" / "recs.csv"
    done = cli("predict", checkpoint(), SAMPLES / "histories.csv", "--top", 2, "--out", out)
    assert done.code == 0, done.err
    assert "8 predictions in" in done.out
    found = rows(out.read_text())
    assert list(found[0]) == ["user", "split", "held_out", "rank", "item", "title", "score"]
    assert [row["user"] for row in found][::2] == ["mia", "noah", "olga", "pia"]
    alone = rows(cli("predict", checkpoint(), "--history", "cherry-jam,honey", "--top", 2).out)
    assert [row["item"] for row in found if row["user"] == "noah"] == [row["item"] for row in alone]


def test_several_histories(cli: Any) -> None:
    done = cli("predict", checkpoint(), "--history", "soap", "--history", "honey,butter", "--top", 1)
    assert [row["user"] for row in rows(done.out)] == ["history 1", "history 2"]


def test_unknown_items_three_ways(cli: Any) -> None:
    history = "soap,caviar,honey"
    done = cli("predict", checkpoint(), "--history", history)
    assert (done.code, done.out) == (2, "")
    assert "'caviar' is not among the 12 items that the model knows" in done.err
    skipped = cli("predict", checkpoint(), "--history", history, "--unknown", "skip")
    assert skipped.code == 0
    assert skipped.out == cli("predict", checkpoint(), "--history", "soap,honey").out
    refused = cli("predict", checkpoint(), "--history", history, "--unknown", "row")
    assert refused.code == 2
    assert "rare=unknown" in refused.err
    # Items of fewer than nine users share a row, to which an unknown item is mapped; it is never recommended.
    lumped = checkpoint("sasrec", "data.min_item_users=6", "data.rare=unknown")
    done = cli("predict", lumped, "--history", history, "--unknown", "row", "--top", 100)
    assert done.code == 0, done.err
    assert "unknown" not in done.out


def test_attention_is_the_same_for_all_of_a_users_items(cli: Any) -> None:
    found = rows(cli("predict", checkpoint(), "--history", "soap,honey,butter", "--top", 4, "--explain=attention").out)
    assert len({row["because"] for row in found}) == 1
    assert any(title in found[0]["because"] for title in ("Soap", "Honey", "Butter"))


def test_reasons_are_by_name_heaviest_first() -> None:
    _, data = module_and_data(["soap,honey,soap,butter", "candles"])
    (batch,) = data.predict_dataloader()
    shares = torch.tensor([[0.2], [0.3], [0.25], [0.25], [1.0]])
    assert because(batch, shares, is_share=True) == [["Soap .45; Honey .30; Butter .25"], ["Candles 1.00"]]
    lifts = torch.tensor([[2.0, -1.0], [0.4, -2.0], [0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    assert because(batch, lifts, is_share=False) == [
        ["Soap +2.00; Butter +1.00", "nothing in particular"],
        ["nothing in particular", "Candles +3.00"],
    ]


def test_din_weighs_the_history_for_each_candidate() -> None:
    module, data = module_and_data(["soap,honey,butter", "candles,pears"], "din")
    (batch,) = data.predict_dataloader()
    items = torch.tensor([[0, 1], [2, 3]])
    with torch.inference_mode():
        found = module.weights(batch, items)
        own = module.weights(some_users(batch, torch.tensor([1])), items[1:])
    assert found.shape == (5, 2)
    torch.testing.assert_close(found[3:], own)
    assert not torch.allclose(found[:, 0], found[:, 1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--top", "0"], "--top=0: write 1 or more"),
        (["--explain=magic"], "--explain=magic: write --explain=occlusion or --explain=attention"),
        ([SAMPLES / "histories.csv"], "give either files or --history, not both"),
    ],
)
def test_options_that_do_not_fit(cli: Any, options: list[Any], said: str) -> None:
    done = cli("predict", checkpoint(), *options, "--history", "soap")
    assert (done.code, done.out, done.err) == (2, "", f"zoo: {said}\n")


def test_a_model_without_attention_says_so(cli: Any) -> None:
    recurrent = checkpoint("sasrec", "attention=recurrent", "model.net.relative=null")
    done = cli("predict", recurrent, "--history", "soap", "--explain=attention")
    assert done.code == 2
    assert "no attention with weights; write --explain=occlusion" in done.err
    assert "Soap" in cli("predict", recurrent, "--history", "soap", "--explain", "--top", 11).out


@pytest.mark.parametrize(
    "option", [["--top", "3"], ["--explain"], ["--seen"], ["--history", "a,b"], ["--unknown=skip"]]
)
def test_models_that_do_not_rank_refuse(cli: Any, tiny_run: Path, option: list[str]) -> None:
    done = cli("predict", tiny_run / "checkpoints" / "best.ckpt", *option)
    name = option[0].partition("=")[0]
    said = (
        f"zoo: {name}: zoo predict has no such option for gat, which adds none to those that zoo predict --help shows\n"
    )
    assert (done.code, done.out, done.err) == (2, "", said)


def test_a_slip_is_answered_with_the_options_that_there_are(cli: Any) -> None:
    for command, has in (("predict", "--history, --top, --explain, --seen and --unknown"), ("evaluate", "--unknown")):
        done = cli(command, checkpoint(), "--tops", "3")
        assert (done.code, done.out) == (2, "")
        assert f"--tops: zoo {command} has no such option for sasrec, which adds {has} to those" in done.err
        assert len(done.err.splitlines()) == 1


def test_help_shows_the_options_of_the_model(cli: Any, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--history ITEMS", "--top N", "--explain [HOW]", "--seen", "--unknown {error,skip,row}")
    for arguments in (["predict", "--help"], ["predict", str(checkpoint()), "--help"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
        said = capsys.readouterr().out
        assert ("options of sasrec" in said, *(each in said for each in own)) == (len(arguments) > 2,) * 6
        assert ("With a checkpoint" in said) == (len(arguments) == 2)


def test_the_checkpoint_is_found_behind_the_options(cli: Any) -> None:
    before = cli("predict", checkpoint(), "--history", "soap", "--top", 3)
    assert before.code == 0
    assert cli("predict", "--top", 3, "--history", "soap", checkpoint()).out == before.out
    missing = cli("predict", "--top", 3, "--history", "soap", "no.ckpt")
    assert (missing.code, missing.err) == (2, "zoo: there is no checkpoint no.ckpt\n")


def test_histories_in_buckets(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is that of the input, even if the loader makes batches by length."""
    lines = [f"user {number},{'|'.join(['honey', 'butter', 'soap'][: 1 + number % 3])}" for number in range(40)]
    Path("histories.csv").write_text("\n".join(["user,history", *lines]))
    best = checkpoint()
    plain = cli("predict", best, "histories.csv", "--top", 2).out
    usual = HistoryData.loader

    def by_length(self: HistoryData, split: str) -> Loader:
        found = usual(self, split)
        return Loader(found.examples, collate=found.collate, batch_size=4, lengths=[n % 3 for n in range(40)])

    monkeypatch.setattr(HistoryData, "loader", by_length)
    assert cli("predict", best, "histories.csv", "--top", 2).out == plain
    users = [line.split(",")[0] for line in plain.splitlines()[1:]]
    assert users == [f"user {number}" for number in range(40) for _ in range(2)]


def test_bad_rows_of_the_input_are_left_out_as_the_message_says(cli: Any) -> None:
    Path("histories.csv").write_text("user,history\nmia,honey\n,soap\nnoah,butter\n")
    done = cli("predict", checkpoint(), "histories.csv")
    assert done.code == 2
    assert "line 3, column 'user': the cell is empty. Fill it in. --on-bad-row=skip leaves such rows out" in done.err
    with pytest.warns(UserWarning, match="skipped 1 bad row"):
        done = cli("predict", checkpoint(), "histories.csv", "--on-bad-row=skip", "--top", 1)
    assert [row["user"] for row in rows(done.out)] == ["mia", "noah"]
    done = cli("predict", checkpoint(), "--on-bad-row=skip")
    assert (done.code, done.err) == (2, "zoo: --on-bad-row is for files of yours, and none is given; leave it out\n")


def test_evaluation_prints_the_metrics_of_the_closing_table(cli: Any) -> None:
    done = cli("evaluate", checkpoint(), "--out", "found.json")
    assert done.code == 0, done.err
    found = {key for key in json.loads(Path("found.json").read_text()) if "/" in key}
    shown = {line.split()[1] for line in done.out.splitlines() if "/" in line and line.startswith("│")}
    assert {key for key in shown if key.startswith("test/")} == {
        f"test/{name}" for name in ("ndcg@10", "hr@10", "mrr", "popularity_ndcg@10")
    }
    assert f"and {len(found - shown)} other metrics: all are in found.json" in done.out


def test_a_history_of_all_items_is_answered_by_a_sentence(cli: Any) -> None:
    _, data = module_and_data(["butter"])
    history = ",".join(data.log.item_names)
    said = "1 user has no recommendation, such as history 1: .* --seen recommends those that were chosen, too"
    with pytest.warns(UserWarning, match=said):
        done = cli("predict", checkpoint("sasrec"), "--history", history)
    assert rows(done.out) == []
    assert len(rows(cli("predict", checkpoint("sasrec"), "--history", history, "--top", 3, "--seen").out)) == 3
