"""The answers of `zoo predict`: captions, and on request a contact sheet of each, with the place of every word."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import ConfigError
from zoo.maps import plots
from zoo.maps.explainer import picture_name
from zoo.tasks.captioning.batch import ReadableCaptionBatch
from zoo.tasks.captioning.explanation import Words
from zoo.tasks.captioning.plots import contact_sheet
from zoo.tasks.seq2seq.decoding_config import DecodingConfig
from zoo.tasks.seq2seq.predictions import PredictionTable

if TYPE_CHECKING:
    from zoo.tasks.captioning.task import Captioner


class Captions:
    """id, split, reference, caption, score and probability; among several captions their rank; with sheets their names.

    Args:
        module: The captioner.
        writing: How captions are written.
        sheets: A folder for contact sheets, which is new or empty; None: none are drawn.
    """

    def __init__(self, module: Captioner, writing: DecodingConfig, sheets: Path | None = None) -> None:
        self.module, self.writing, self.sheets = module, writing, sheets
        self._drawn = 0
        if sheets is None:
            return
        if module.net.align is None:
            raise ConfigError("--explain: this model has no attention to its picture")
        if sheets.exists() and (not sheets.is_dir() or any(sheets.iterdir())):
            raise ConfigError(f"--explain {sheets}: pictures are written to a new or an empty folder; name another")

    def __call__(self, batch: ReadableCaptionBatch) -> dict[str, list[Any]]:
        rows = PredictionTable(batch, self.module.write(batch, self.writing), self.writing)
        columns = rows.columns(self.module.text_noun)
        if self.sheets is not None:
            columns["sheet"] = self._draw(self.sheets, batch, rows, columns[self.module.text_noun])
        return columns

    def _draw(self, folder: Path, batch: ReadableCaptionBatch, rows: PredictionTable, captions: list[str]) -> list[str]:
        """Draws the sheet of each row, and returns their names."""
        weights = rows.weights(self.module.net)
        if weights is None:
            raise ConfigError("--explain: the attention of this model has no weights")
        names = []
        for number, text, of, caption in zip(rows.examples, rows.written, weights, captions, strict=True):
            original, self._drawn = batch.written[number].original, self._drawn + 1
            drawn = original.read()
            words = Words(batch.language.segment(text.tokens), of, self.module.grid)
            places = words.places(drawn.seen, drawn.shape)
            name = batch.ids[number]
            figure = contact_sheet(drawn.pixels, places, seen=drawn.seen, title=caption or "(nothing)", name=name)
            names.append(f"{picture_name(name, self._drawn)}.png")
            plots.save(figure, folder / names[-1])
        return names
