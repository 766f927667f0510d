"""Maps of questions: labels, gold, the signed affinity, pictures, tables, and inputs that are left out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from answering_cases import CNN, DOT

from zoo.attention import AttentionFactory, Constant, Uniform
from zoo.maps import label_map
from zoo.maps.explainer import MapOptions
from zoo.optim import OptimizerConfig
from zoo.tasks.answering import (
    ESIM,
    BiDAF,
    ExtractiveQA,
    HieCoAtt,
    NLIClassifier,
    VQAClassifier,
    planted_inference,
    planted_passages,
    planted_questions,
)
from zoo.tasks.answering.explanation import PICTURE, AnswerExplainer, ExplainedAnswer
from zoo.tasks.answering.perturbation import PerturbableQuestion

FEW: dict[str, Any] = {"held_out": 6, "max_epochs": 1, "batch_size": 4}
MADE: dict[str, Any] = {
    "picture": (
        VQAClassifier,
        partial(HieCoAtt, encoder=CNN, dim=6, context=7, fused=9),
        lambda: planted_questions(pictures=20, **FEW),
    ),
    "passage": (ExtractiveQA, partial(BiDAF, dim=5, hidden=3), lambda: planted_passages(passages=12, **FEW)),
    "premise": (NLIClassifier, partial(ESIM, dim=5, hidden=3), lambda: planted_inference(pairs=30, **FEW)),
}
every_subject = pytest.mark.parametrize("about", MADE)


def maps_of(about: str, attend: Any = DOT, **net: Any) -> AnswerExplainer[Any]:
    torch.default_generator.manual_seed(0)
    task, factory, generate = MADE[about]
    data = generate()
    optimization = OptimizerConfig(optimizer=torch.optim.Adam)
    module = task(net=partial(factory, attend=attend, **net), optimization=optimization, **data.sizes()).double()
    return _doubled(module.eval(), about).maps(data, MapOptions(pictures=2))


def _doubled(module: Any, about: str) -> Any:
    """A task in double precision, whose pictures are too."""
    if about == "picture":
        module.net.picture.register_forward_pre_hook(
            lambda _, given: (replace(given[0], pixels=given[0].pixels.double()),)
        )
    return module


def example_of(source: AnswerExplainer[Any]) -> tuple[ExplainedAnswer[Any], dict[str, Any]]:
    example = next(iter(source.examples()))
    assert isinstance(example, ExplainedAnswer)
    return example, {
        each.found.site: label_map(each.found, each.axis_labels, gold=each.gold, nouns=each.nouns)
        for each in example.maps()
    }


def test_a_picture_has_weights_over_cells_and_words_and_a_signed_affinity() -> None:
    example, made = example_of(maps_of("picture"))
    words = example.batch.written[0].question.split()
    assert list(made["both.first"].labels["key"][:2]) == ["0,0", "0,1"]
    assert list(made["both.second"].labels["key"]) == words
    assert made["both.first"].gold is not None
    assert all(made[f"both.{level}.first"].gold is not None for level in ("word", "phrase", "question"))
    mean = made["both.first"]
    assert example.scored == mean.site
    assert example.weights is not None
    torch.testing.assert_close(example.weights.float(), mean.head())
    net: Any = maps_of("picture").net
    batch = example.batch
    cells = net.of_picture(net.picture(batch.picture).states)
    for level, asked in net.encode_levels(batch.question).items():
        of_level = made[f"both.{level}.affinity"]
        assert list(of_level.labels["query"]) == words
        assert of_level.gold is None  # signed numbers are not scored
        expected = torch.tanh(asked[0] @ net.both[level].affinity.matrix.T @ cells[0].T)
        torch.testing.assert_close(of_level.head(), expected.float(), rtol=1e-5, atol=1e-6)
        assert (of_level.head() < 0).any()
        assert list(made[f"both.{level}.second"].labels["key"]) == words
    mean = sum(made[f"both.{level}.first"].head() for level in net.levels) / 3
    torch.testing.assert_close(made["both.first"].head(), mean)
    assert {f"1_{example.id.replace(' ', '_')}_affinity_{level}" for level in net.levels} < set(
        dict(example.figures(made, 1))
    )
    assert made[PICTURE].axes == ("height", "width")
    assert made[PICTURE].weights.shape == (48, 48)
    assert float(made[PICTURE].weights.sum()) == pytest.approx(1.0, abs=0.02)


def test_alternating_and_uniform_attention_have_maps() -> None:
    _, made = example_of(maps_of("picture", order="alternating"))
    assert {"both.alone", "both.first", "both.second", "both.word.alone", PICTURE} <= set(made)
    example, made = example_of(maps_of("picture", AttentionFactory(score=Constant, normalizer=Uniform)))
    assert not [site for site in made if "affinity" in site]
    assert list(dict(example.figures(made, 1))) == ["1_" + example.id.replace(" ", "_")]


@pytest.mark.parametrize(("about", "first"), [("passage", "flow.first"), ("premise", "both.first")])
def test_texts_have_words_along_both_axes(about: str, first: str) -> None:
    example, made = example_of(maps_of(about))
    told, asked = str(example.batch.written[0].passage).split(), example.batch.written[0].question.split()
    assert [list(made[first].labels[axis]) for axis in ("query", "key")] == [told, asked]
    torch.testing.assert_close(made[first].head().sum(-1), torch.ones(len(told)))
    gold = made[example.scored].gold
    assert gold is not None
    queries, keys = (made[example.scored].labels[axis] for axis in ("query", "key"))
    pairs = [(queries[q], keys[k]) for q, k in gold.nonzero().tolist()]
    assert pairs
    assert about != "passage" or all(one == other for one, other in pairs)
    figures = dict(example.figures(made, 1))
    assert len(figures) == 2
    marked = {name: [text.get_text() for text in _legend(figure)] for name, figure in figures.items()}
    assert all(("given answer" in texts) == (about == "passage") for texts in marked.values())


def test_the_given_answer_is_marked_where_it_stands() -> None:
    example, made = example_of(maps_of("passage"))
    (_, (first, last)) = example.marks[0]
    assert " ".join(example.batch.written[0].passage_pieces[first : last + 1]) == example.batch.written[0].answer
    figure = dict(example.figures(made, 1))["1_" + example.id.replace(" ", "_") + "_flow_first"]
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == "given answer")
    assert list(line.get_ydata()) == [first - 0.45, last + 0.45]


@every_subject
def test_the_truth_is_that_of_the_task_and_rows_are_those_of_the_split(about: str) -> None:
    source = maps_of(about)
    (table,) = source.tables()
    rows = [row for frame in table.frames for row in frame.to_dict("records")]
    numbers = source.data.content.records.numbers("test")
    assert [row["id"] for row in rows] == [source.data.content.records.ids[number] for number in numbers]
    (pointing,) = source.truth().values()
    points = []
    for number in numbers:
        batch = source.batch(int(number))
        with torch.no_grad():
            weights = source.module.explain(batch).dense()[0, 0]
        gold = source.module.scored_gold(batch)[0]
        for row, is_gold in zip(weights, gold, strict=True):
            if is_gold.any():
                points.append(float(is_gold[row == row.max()].double().mean()))
    assert pointing == pytest.approx(sum(points) / len(points))


@every_subject
def test_links_name_the_heaviest_key_of_each_query(about: str) -> None:
    source = maps_of(about)
    example, made = example_of(source)
    (table,) = example.tables(made)
    (frame,) = table.frames
    assert source.truth_label == f"test questions, {example.scored}"
    of_scored = frame[frame["site"] == example.scored]
    assert example.weights is not None
    assert list(of_scored["key_place"]) == example.weights.argmax(1).tolist()
    assert (
        f"< {example.name_key(int(example.weights.argmax()), '') if about == 'picture' else ''}" in example.description
    )
    assert source.describe_chosen()[0] == example.description


@every_subject
def test_what_is_left_out_changes_the_probability_of_the_answer(about: str) -> None:
    source = maps_of(about)
    batch = source.batch(source.positions[0])
    (found,) = source.make_perturbable(source.positions[0])
    count = len(found.attention)
    keep = torch.ones(3, count, dtype=torch.bool)
    keep[1, 1] = False
    keep[2, : count // 2] = False
    scores = found.score(keep)
    (said,) = source.module.predict(source.module(batch), batch)["probability"]
    assert float(scores[0]) == pytest.approx(said, rel=1e-5)
    for row, score in zip(keep[1:], scores[1:], strict=True):
        assert float(score) == pytest.approx(_alone(source, batch, found, row), rel=1e-9)
    gradient = found.gradient()
    assert gradient.shape == (count,)
    assert gradient.any()
    with pytest.raises(ValueError, match="must keep at least one"):
        found.score(torch.zeros(1, count, dtype=torch.bool))


def _alone(source: AnswerExplainer[Any], batch: Any, found: PerturbableQuestion[Any], keep: torch.Tensor) -> float:
    """The probability of the answer with some inputs left out, by a pass of its own."""
    about = type(batch).__name__
    if about == "VQABatch":
        pixels = batch.picture.pixels.clone()
        rows, columns = source.module.grid
        high, wide = pixels.shape[2] // rows, pixels.shape[3] // columns
        for cell in (~keep).nonzero().flatten().tolist():
            top, left = cell // columns * high, cell % columns * wide
            pixels[:, :, top : top + high, left : left + wide] = 0.0
        changed = replace(batch, pixels=pixels)
    else:
        part = "question" if about == "ExtractiveQABatch" else "passage"
        text = getattr(batch, part)
        tokens = text.tokens[:, keep]
        changed = replace(batch, **{part: replace(text, rows=tokens, lengths=torch.tensor([tokens.shape[1]]))})
    with torch.no_grad():
        given = source.module(changed)
    if isinstance(given, torch.Tensor):
        return float(given.softmax(-1)[0, int(found.answer)])
    start, end = (each.softmax(-1)[0] for each in given)
    return float(start[found.answer[0]] * end[found.answer[1]])


@every_subject
def test_an_answer_does_not_depend_on_its_company(about: str) -> None:
    source = maps_of(about)
    for batch in source.data.loader("train"):
        (each,) = source.module.invariants(batch)
        kept, alone = each.kept(source.module(batch)), each.kept(source.module(each.batch))
        assert kept.shape == alone.shape
        torch.testing.assert_close(kept, alone, rtol=0.0, atol=1e-12)
    assert source.module.invariants(source.batch(0)) == ()


def _legend(figure: Any) -> list[Any]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else legend.get_texts()
