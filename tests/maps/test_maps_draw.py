"""Pictures exist, show something, and can have any labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from map_cases import by_hand, dense_map, star
from matplotlib.image import imread

from zoo.errors import DataError
from zoo.maps import label_map, plots


def colours(path: Path) -> int:
    """Returns the number of different colours of a picture."""
    return len(np.unique((imread(path)[..., :3] * 255).round() @ [1, 256, 65536]))


def test_a_heat_map_is_drawn(tmp_path: Path) -> None:
    found = by_hand([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "le chien", "the dog barks", gold=[(0, 0), (1, 1)])
    figure = plots.heat_map(found)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["the", "dog", "barks"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["le", "chien"]
    np.testing.assert_allclose(axes.images[0].get_array(), found.weights[0])
    plots.save(figure, tmp_path / "pictures" / "a.png")
    assert colours(tmp_path / "pictures" / "a.png") > 20


def test_gold_is_framed() -> None:
    (frame,) = plots.heat_map(by_hand([[0.6, 0.4]], "q", "a b", gold=[(0, 0), (0, 1)])).axes[0].collections
    sides = {tuple(sorted(map(tuple, segment))) for segment in frame.get_segments()}  # type: ignore[attr-defined]
    assert len(sides) == 6  # two cells, no line between them
    assert not plots.heat_map(by_hand([[0.6, 0.4]], "q", "a b")).axes[0].collections


def test_totals_are_bars_below_their_columns() -> None:
    axes = plots.heat_map(by_hand([[0.6, 0.4], [0.9, 0.1]], "p q", "a b"), totals="coverage").axes[0]
    heights = [-bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([2.0, 2.0 * 0.5 / 1.5])
    assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == pytest.approx([0, 1])  # type: ignore[attr-defined]
    assert "coverage" in [text.get_text() for text in axes.texts]
    assert not plots.heat_map(by_hand([[0.6, 0.4]], "q", "a b")).axes[0].patches


def test_long_axes_are_thinned(tmp_path: Path) -> None:
    figure = plots.heat_map(label_map(dense_map(batch=1, queries=3, keys=500), {}), head=1)
    assert 30 <= len(figure.axes[0].get_xticklabels()) <= 40
    assert "one in 13 is named" in figure.axes[0].get_xlabel()
    assert figure.get_figwidth() < 14
    plots.save(figure, tmp_path / "long.png")
    assert colours(tmp_path / "long.png") > 20


def test_forbidden_cells_are_not_zeros() -> None:
    found = label_map(dense_map(batch=1, queries=30, keys=30, causal=True), {})
    cells = plots.heat_map(found).axes[0].images[0].get_array()
    assert np.ma.getmaskarray(np.ma.masked_invalid(cells)).sum() == 30 * 29 / 2


def test_a_few_dark_cells_do_not_leave_the_rest_pale() -> None:
    causal = label_map(dense_map(batch=1, heads=1, queries=140, keys=140, causal=True), {})
    image = plots.heat_map(causal, head=0).axes[0].images[0]
    assert image.get_clim()[1] < 0.5
    sharp = by_hand(torch.eye(60).mul(0.9).tolist(), " ".join(map(str, range(60))), " ".join(map(str, range(60))))
    assert plots.heat_map(sharp).axes[0].images[0].get_clim()[1] == pytest.approx(0.9)


@pytest.mark.parametrize("label", ["$x_1$", "$", "a\nb", "", " ", "\x00", "w" * 300, "$\\bad{$"])
def test_labels_are_shown_as_they_are(tmp_path: Path, label: str) -> None:
    found = by_hand([[0.5, 0.5]], "q", "a b")
    odd = type(found)(**{**vars(found), "labels": {"query": [label], "key": [label, "b"]}})
    plots.save(plots.heat_map(odd, title=label), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_maps_without_anything(tmp_path: Path) -> None:
    mask = torch.zeros(1, 4, dtype=torch.bool)
    found = label_map(dense_map(batch=1, keys=4, key_mask=mask), {"query": "abcd", "key": "abcd"})
    plots.save(plots.heat_map(found), tmp_path / "a.png")


def test_edges_are_not_drawn_as_a_matrix() -> None:
    with pytest.raises(ValueError, match="neighbourhood"):
        plots.heat_map(star({"4": 1.0}))


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        plots.save(plots.heat_map(by_hand([[1.0]], "q", "a")), tmp_path / "file" / "a.png")
