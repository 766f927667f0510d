"""Options as messages name them: in training, on a command that has them, and on one that has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.data.advice import advising, option, skip_hint
from zoo.data.tables import read_table
from zoo.errors import DataError


def test_an_option_is_named_as_the_command_has_it() -> None:
    assert (option("most_pixels"), option("unknown", "skip")) == ("data.most_pixels", "data.unknown=skip")
    with advising(["most-pixels", "unknown"]):
        assert (option("most_pixels"), option("unknown", "skip")) == ("--most-pixels", "--unknown=skip")
        assert option("resize", "pad") == "data.resize=pad in training"
    assert skip_hint() == "on_bad_row=skip leaves such rows out and counts them."
    with advising(["on-bad-row"]):
        assert skip_hint("files") == "--on-bad-row=skip leaves such files out and counts them."


def test_a_missing_column_is_advised_what_the_command_has(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("review\nx\n")
    with pytest.raises(DataError, match=r"such as data\.text=review, or rename it"):
        read_table(tmp_path / "t.csv", required={"text": "data.text"})
    with advising([]), pytest.raises(DataError, match="Add the column, or rename the one that is meant"):
        read_table(tmp_path / "t.csv", required={"text": "data.text"})
