"""When words were spoken, on alignments that are known, and the files of times."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import torch
from recogniser_cases import STRIDE, batch, language, telling

from zoo.errors import ConfigError
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.speech.alignment_metrics import find_spans, focus, onsets
from zoo.tasks.speech.timestamp_writers import ctm, text_grid, time_file
from zoo.tasks.speech.timestamps import Timed, Times, times_of

TIMES = Times(
    [Timed('a"b', 0.1, 0.25, 0.5), Timed("c", 0.25, 0.4, 1.0)],
    [Timed("a", 0.1, 0.15, 0.5), Timed("c", 0.3, 0.3, 1.0)],
    0.5,
)


def test_a_token_begins_where_half_of_its_weight_is_given() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5], [0.9, 0.1, 0.0], [0.0, 0.0, 0.0]])
    # the last place has 2 of 4 frames, and the fourth row goes back, which an onset does not
    assert onsets(weights, 4, 10).tolist() == pytest.approx([4.0, 6.0, 9.0, 9.0, 10.0])
    quarter = torch.tensor([[0.25, 0.75, 0.0]])
    assert onsets(quarter, 4, 12).tolist() == pytest.approx([4 + 4 / 3])


def test_a_token_ends_where_the_next_one_begins() -> None:
    weights = torch.eye(4, dtype=torch.float64)[[0, 1, 3]]
    assert find_spans(weights, 2, 2, 8).tolist() == [[1.0, 3.0], [3.0, 7.0]]
    assert find_spans(weights, 3, 2, 8).tolist() == [[1.0, 3.0], [3.0, 7.0], [7.0, 8.0]]  # no end was written
    assert find_spans(weights[:1], 0, 2, 8).shape == (0, 2)


def test_words_are_from_their_first_token_to_their_last() -> None:
    of = language()
    tokens = of.encode("ab b")[1]
    spans = torch.tensor([[1.0, 3.0], [3.0, 5.0], [5.0, 8.0], [8.0, 11.0]])
    found = times_of(tokens, spans, torch.tensor([0.5, 0.125, 1.0, 0.75]).log(), of, 0.1, 1.05)
    assert [(word.text, round(word.start, 6), round(word.end, 6)) for word in found.words] == [
        ("ab", 0.1, 0.5),
        ("b", 0.8, 1.05),
    ]
    assert [word.probability for word in found.words] == pytest.approx([0.25, 0.75])
    assert [token.text for token in found.tokens] == ["a", "b", " ", "b"]
    assert found.tokens[2].start == pytest.approx(0.5)


def test_times_of_a_prediction_are_those_of_a_forced_pass() -> None:
    module, made = telling("ab ba", "b", "", "b a"), batch()
    columns = module.predictor(times=True)(made)
    alone = batch([0])
    best = module.write(made)[0]
    weights = module.force_decode(alone, best).weights
    assert weights is not None
    frames = int(alone.source.lengths[0])
    begins = onsets(weights[0, : len(best[0].target(END))], STRIDE, frames) * alone.hop
    assert [token.start for token in columns["times"][0].tokens] == pytest.approx(begins[:-1].tolist())
    assert columns["times"][2].words == []
    rows = ([dict(zip(columns, row, strict=True))] for row in zip(*columns.values(), strict=True))
    said = [row["times"] for (row,) in module.write_sidecars(rows, times=True)]
    assert said[0].startswith(f"ab {float(begins[0]):.2f}-")
    assert said[2] == ""


def test_a_ctm_has_a_line_for_each_word() -> None:
    assert ctm("a recording", TIMES.words) == (
        'a_recording 1 0.100 0.150 a"b 0.5000\na_recording 1 0.250 0.150 c 1.0000\n'
    )


def test_a_text_grid_has_no_gaps() -> None:
    text = text_grid(TIMES)
    head, words, tokens = text.split("item [")[0], *text.split("    item [")[1:]
    assert "xmax = 0.500000" in head
    limits = [float(line.split("=")[1]) for line in words.splitlines() if line.startswith("            xm")]
    assert limits == [0.0, 0.1, 0.1, 0.25, 0.25, 0.4, 0.4, 0.5]
    assert 'text = "a""b"' in words
    assert "intervals: size = 3" in tokens  # silence, a, silence; what has no duration is left out


def test_an_interval_that_is_shorter_than_its_digits_is_left_out() -> None:
    """Praat refuses intervals without a length, as written; the time of the end may be one of them by rounding."""
    tokens = [Timed("a", 0.1, 0.1000001, 1.0), Timed("b", 0.1, 0.4, 1.0), Timed("c", 0.4, 0.4999999, 1.0)]
    text = text_grid(Times(tokens[1:], tokens, 0.5000001))
    limits = [line.split(" = ")[1] for line in text.splitlines() if line.strip().startswith(("xmin", "xmax"))]
    assert all(float(start) < float(end) for start, end in zip(limits[::2], limits[1::2], strict=True))
    assert '"a"' not in text


def test_the_focus_of_attention_is_its_share_in_a_time() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    spans = torch.tensor([[0.0, 4.0], [4.0, 8.0], [12.0, 14.0], [0.0, 14.0]])
    assert focus(spans, weights, 4, 14, 0.0).tolist() == pytest.approx([1.0, 0.25, 0.5, 0.0])
    # two frames more on either side: half of two places; the last place has two frames
    assert focus(spans, weights, 4, 14, 2.0).tolist() == pytest.approx([1.0, 0.5, 0.5, 0.0])


def test_poor_times_are_marked_in_every_output(tmp_path: Path) -> None:
    """The second of two words has a time in which its attention is not."""
    module, made = telling("ab ba"), batch([0])
    words = module.predictor(times=True)(made)["times"][0].words
    assert len(words) == 2
    poor = [word._replace(end=word.start + 0.1, focus=share) for word, share in zip(words, (0.9, 0.1), strict=True)]
    times = Times(poor, poor, 5.0)
    (row,) = next(module.write_sidecars(iter([[{"id": "a", "times": times}]]), times=True))
    assert [part.endswith("?") for part in row["times"].split(", ")] == [False, True]
    for name in ("times.ctm", "times.csv", "grids"):
        with time_file(tmp_path / name) as write:
            write("a", times)
    comment, *lines = (tmp_path / "times.ctm").read_text().splitlines()
    assert comment.startswith(";; a: poor times of ba ")
    assert len(lines) == 2
    rows = list(csv.DictReader(io.StringIO((tmp_path / "times.csv").read_text())))
    assert [row["is_poor"] for row in rows if row["unit"] == "word"] == ["false", "true"]
    assert [row["focus"] for row in rows if row["unit"] == "word"] == ["0.9000", "0.1000"]
    assert 'name = "focus"' in (tmp_path / "grids" / "a.TextGrid").read_text()


def test_files_of_times(tmp_path: Path) -> None:
    for name in ("times.ctm", "deep/times.csv", "grids"):
        with time_file(tmp_path / name) as write:
            write("b/1", TIMES)
            write("b 2", TIMES)
    assert (tmp_path / "times.ctm").read_text().count("\n") == 4
    rows = list(csv.DictReader(io.StringIO((tmp_path / "deep" / "times.csv").read_text())))
    assert [row["unit"] for row in rows] == ["word", "word", "token", "token"] * 2
    assert (rows[0]["id"], rows[0]["text"], rows[0]["end"]) == ("b/1", 'a"b', "0.250")
    assert sorted(each.name for each in (tmp_path / "grids").iterdir()) == ["b%202.TextGrid", "b%2f1.TextGrid"]


def test_where_times_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("times.txt", "file", "a.wav"):
        with pytest.raises(ConfigError, match=r"name a \.ctm file"), time_file(tmp_path / name):
            pass
    with pytest.raises(ConfigError, match="cannot be written"), time_file(tmp_path / "file" / "times.csv"):
        pass
    with time_file(tmp_path / "grids") as write:
        write("a", TIMES)
        with pytest.raises(ConfigError, match="two recordings"):
            write("a", TIMES)
