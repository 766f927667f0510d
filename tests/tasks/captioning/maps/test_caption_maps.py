"""The place of each word: in the size and shape of the picture, as sheets, arrays and tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from captioning_cases import captioner, doubled, pictures, recurrent, transformer

from zoo.attention import record
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps import label_map
from zoo.nn.images.image_input import OriginalImage
from zoo.tasks.captioning.explanation import OF_REFERENCE, WORDS, ExplainedCaption, PerturbableImage
from zoo.tasks.captioning.plots import WordPlace, contact_sheet

SIZE = (20, 30)


def drawn(net: Any = recurrent) -> ExplainedCaption:
    module, batch = captioner(net).eval(), doubled(pictures([1]))
    tokens = tuple(batch.language.encode("a blue ring")[1])  # type: ignore[union-attr]
    best = Hypothesis(tokens, -1.0, -1.0, True)
    with torch.inference_mode(), record(module.net) as found:
        written = module.force_decode(batch, [best])
    assert batch.written is not None
    original = OriginalImage([torch.full((3, *SIZE), 90, dtype=torch.uint8)], 0, (0.0, 5.0, 20.0, 20.0))
    batch = replace(batch, written=(replace(batch.written[0], original=original),))
    return ExplainedCaption(module, batch, found, best, written, module.force_references(batch))


@pytest.mark.parametrize("net", [recurrent, transformer])
def test_maps_have_words_cells_and_pixels(net: Any) -> None:
    example = drawn(net)
    made = {
        each.found.site: label_map(each.found, each.axis_labels, gold=each.gold, nouns=each.nouns)
        for each in example.maps()
    }
    assert made[WORDS].labels["query"] == ["a", "blue", "ring"]
    assert made[WORDS].labels["key"][:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"]
    assert made[WORDS].gold is None
    gold = made[OF_REFERENCE].gold
    assert gold is not None
    assert gold.any(-1).int().tolist() == [0, 1, 1, 0, 0, 0, 0]
    own = made["word 2"]
    assert own.axes == ("height", "width")
    assert own.weights.shape == SIZE
    assert float(own.weights.sum()) == pytest.approx(1.0, abs=0.02)
    torch.testing.assert_close(made[WORDS].weights.sum(-1), torch.ones(1, 3))
    assert any(site.startswith("decoder.") for site in made)


def test_rows_of_words_say_where_and_whether_it_is_right() -> None:
    example = drawn()
    tables = [table.frames[0] for table in example.tables({})]  # type: ignore[index]
    of_caption, of_reference = tables
    assert list(of_caption["word"]) == ["a", "blue", "ring"]
    assert of_caption["gold"].isna().all()
    first = of_caption.iloc[0]
    assert first["y"] == pytest.approx((first["row"] + 0.5) * 5)
    assert first["x"] == pytest.approx(5 + (first["column"] + 0.5) * 5)
    assert of_reference["gold"].notna().tolist() == [False, True, True, False, False, False, False]
    assert "blue at " in example.description


def test_a_sheet_has_a_panel_for_each_word() -> None:
    figures = dict(drawn().figures({}, 1))
    assert len(figures) == 2
    sheet = next(iter(figures.values()))
    titles = [axes.get_title() for axes in sheet.axes]
    assert titles[1:4] == ["a", "blue", "ring"]
    many = [WordPlace(str(n), torch.ones(2, 2)) for n in range(40)]
    sheet = contact_sheet(torch.zeros(3, 8, 12, dtype=torch.uint8), many, seen=(0.0, 0.0, 8.0, 12.0), title="many")
    assert [axes.get_title() for axes in sheet.axes].count("28") == 1
    assert "30" not in [axes.get_title() for axes in sheet.axes]


def test_the_panels_of_a_sheet_have_one_scale_and_its_bar() -> None:
    places = [WordPlace("sharp", torch.eye(2)), WordPlace("dull", torch.full((2, 2), 0.25))]
    sheet = contact_sheet(torch.zeros(3, 8, 12, dtype=torch.uint8), places, seen=(0.0, 0.0, 8.0, 12.0), title="two")
    heats = [axes.images[-1] for axes in sheet.axes if axes.get_title() in ("sharp", "dull")]
    assert [image.get_clim() for image in heats] == [(0.0, 1.0)] * 2
    assert [axes.get_ylabel() for axes in sheet.axes].count("weight of a cell") == 1


def test_cells_that_are_left_out_have_the_mean_colour() -> None:
    module, batch = captioner().eval(), doubled(pictures([1]))
    found = PerturbableImage(module, batch)
    assert found.attention.shape == (16,)
    keep = torch.ones(3, 16, dtype=torch.bool)
    keep[1, 5] = keep[2] = False
    scores = found.score(keep)
    source = batch.source
    assert source.pixels is not None
    blank = source.pixels.clone()
    blank[:, :, 3:6, 3:6] = 0.0
    best = module.write(batch)[0][0]
    for score, pixels in zip(scores, (source.pixels, blank, torch.zeros_like(blank)), strict=True):
        changed = replace(batch, source=replace(source, pixels=pixels))
        expected = module.force_decode(changed, [best]).log_probability[0].mean().exp()
        assert float(score) == pytest.approx(float(expected), rel=1e-9)
    assert found.gradient().shape == (16,)
    assert found.gradient().any()
