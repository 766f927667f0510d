"""Options as messages name them: in training, on a command that has them, and on one that has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.data.option_hints import format_option, set_offered_options, skip_hint
from zoo.data.tables import read_table
from zoo.errors import DataError


def test_an_option_is_named_as_the_command_has_it() -> None:
    assert (format_option("most_pixels"), format_option("unknown", "skip")) == ("data.most_pixels", "data.unknown=skip")
    with set_offered_options(["most-pixels", "unknown"]):
        assert (format_option("most_pixels"), format_option("unknown", "skip")) == ("--most-pixels", "--unknown=skip")
        assert format_option("resize", "pad") == "data.resize=pad in training"
    assert skip_hint() == "on_bad_row=skip leaves such rows out and counts them."
    with set_offered_options(["on-bad-row"]):
        assert skip_hint("files") == "--on-bad-row=skip leaves such files out and counts them."


def test_a_missing_column_is_advised_what_the_command_has(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("review\nx\n")
    with pytest.raises(DataError, match=r"such as data\.text=review, or rename it"):
        read_table(tmp_path / "t.csv", required={"text": "data.text"})
    with set_offered_options([]), pytest.raises(DataError, match="Add the column, or rename the one that is meant"):
        read_table(tmp_path / "t.csv", required={"text": "data.text"})
