"""Generated questions: answers follow from what is gold, and from nothing less."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.tasks.answering.synthetic import passages, premises, scenes
from zoo.tasks.answering.synthetic.premises import COLOURS, LABELS, MATERIALS
from zoo.tasks.images.synthetic_scenes import COLOURS as PAINTS
from zoo.tasks.images.synthetic_scenes import SHAPES, ShapeKinds, draw_scenes

FURTHEST = {"leftmost": (1, min), "rightmost": (1, max), "highest": (0, min), "lowest": (0, max)}
ASKED, FOUND = r"(where|when) did (\w+) find the (\w+)", r"(\w+) found the (\w+)"
MODULES = {"passages": passages, "inference": premises}


@pytest.mark.parametrize("name", MODULES)
def test_equal_arguments_give_equal_texts(name: str) -> None:
    size = {"passages": {"passages": 30}, "inference": {"pairs": 30}}[name] | {"held_out": 5}
    one, same, other = (MODULES[name].plant(**size, seed=seed) for seed in (0, 0, 1))
    assert (one.passages, one.questions, one.answers) == (same.passages, same.questions, same.answers)
    assert one.passages != other.passages
    assert Counter(one.splits.tolist()) == {TRAIN: 30, VAL: 5, TEST: 5}


@pytest.mark.parametrize("size", [{}, {"wanted": 4, "others": 4}, {"others": 0}])
def test_the_passage_tells_what_one_question_asks_for(size: dict[str, int]) -> None:
    made = passages.plant(passages=200, held_out=1, **size)
    for passage, question, answer, span, links in zip(
        made.passages, made.questions, made.answers, made.spans, made.links, strict=True
    ):
        words, asked = passage.split(), question.split()
        wanted = {(person, thing): way for way, person, thing in re.findall(ASKED, question)}
        told = {
            (person, thing): {"where": place, "when": time}
            for person, thing, place, time in re.findall(rf"{FOUND} (.+?) ((?:at|before|after) \w+) \.", passage)
        }
        ((person, thing),) = wanted.keys() & told.keys()
        assert answer == told[person, thing][wanted[person, thing]]
        assert " ".join(words[span[0] : span[1] + 1]) == answer
        ((key, query),) = links
        assert asked[key - 2 : key + 4] == [wanted[person, thing], "did", person, "find", "the", thing]
        assert words[query : query + 4] == [person, "found", "the", thing]
        # all that questions name stands in the passage, once
        assert all(words.count(name) == 1 for pair in wanted for name in pair)
        assert len(told) == 2 * size.get("wanted", 2) - 1 + size.get("others", 1)


def test_no_single_word_of_the_questions_decides() -> None:
    made = passages.plant(passages=400, held_out=1)
    counts, ways, doubled = Counter[int](), Counter[str](), 0
    for question, links in zip(made.questions, made.links, strict=True):
        asked = re.findall(ASKED, question)
        counts[len(asked)] += 1
        words, ((key, _),) = question.split(), links
        ways[words[key - 2]] += 1
        doubled += words.count(words[key]) == 2
        for word in (1, 2):  # a person, or a thing, is asked for once with each question word
            assert len({(each[0], each[word]) for each in asked}) == len(asked)
    assert sorted(counts) == [1, 2, 3, 4]
    assert min(counts.values()) > 70
    assert min(ways.values()) > 160
    assert doubled > 160  # a word of the passage equals two of the questions


def test_every_word_of_a_hypothesis_is_in_its_premise() -> None:
    made = premises.plant(pairs=300, held_out=30)
    assert Counter(made.answers[:300]) == dict.fromkeys(LABELS, 100)
    for premise, hypothesis, label, links in zip(made.passages, made.questions, made.answers, made.links, strict=True):
        said = dict(re.findall(r"the (\w+) is (\w+) \.", premise))
        ((thing, property_),) = re.findall(r"the (\w+) is (\w+) \.", hypothesis)
        assert len(said) == len(set(said.values())) == 6
        assert property_ in said.values()
        kind = next(kind for kind in (COLOURS, MATERIALS) if said[thing] in kind)
        expected = "entailment" if said[thing] == property_ else "contradiction" if property_ in kind else "neutral"
        assert label == expected
        words, asked = premise.split(), hypothesis.split()
        assert [asked[one] for one, _ in links] == [thing, property_]
        assert [words[other] for _, other in links] == [thing, said[thing]]


def test_a_phrase_about_the_thing_decides_and_stands_in_one_place() -> None:
    """The same premises, labels and hypotheses as in statements, with a property beside its thing."""
    made, same = (premises.plant(pairs=300, held_out=30, phrases=phrases) for phrases in (True, False))
    assert made.answers == same.answers
    turned = [re.sub(r"the (\w+) is (\w+) \.", r"the \2 \1 .", text) for text in same.passages + same.questions]
    assert made.passages + made.questions == turned
    for premise, hypothesis, links in zip(made.passages, made.questions, made.links, strict=True):
        ((_, thing),) = re.findall(r"the (\w+) (\w+) \.", hypothesis)
        words = premise.split()
        place = words.index(thing)
        assert links == [(2, place - 1), (2, place)]
        assert words.count(thing) == 1


def test_questions_are_answered_by_their_things() -> None:
    draw = scenes.plant(pictures=400, held_out=1, seed=3)
    one = draw_scenes([1], seed=0)  # for its size alone
    assert draw.pixels.shape == (402, *one.pixels.shape[1:])
    assert min(Counter(draw.kinds).values()) > 60
    asked = Counter(question.split()[4] for question in draw.questions)
    assert all(10 < asked[where] < 50 for where in FURTHEST)
    for kind, question, answer, boxes in zip(draw.kinds, draw.questions, draw.answers, draw.boxes, strict=True):
        assert len(boxes) == {"colour": 1, "shape": 1, "relation": 1}.get(kind, len(boxes))
        if kind == "count":
            assert answer == str(len(boxes))
        assert answer in ({"colour": PAINTS, "shape": SHAPES}.get(question.split()[1], (answer,)))
        assert question.endswith(" ?")


def test_every_kind_of_question_says_what_is_there() -> None:
    generator, counts = random.Random(0), [2, 3, 4, 5] * 40
    for things in draw_scenes(counts, seed=5).things:
        kind, (question, answer, boxes) = scenes.ask(generator, things, ShapeKinds())
        words = question.split()
        of = {thing.box: thing for thing in things}
        named = [of[box] for box in boxes]
        if kind == "colour":
            assert [thing.colour for thing in things if thing.shape == words[4]] == [answer]
        elif kind == "shape":
            assert [thing.shape for thing in things if thing.colour == words[4]] == [answer]
        elif kind == "count":
            assert named == [thing for thing in things if words[-2] in (thing.colour, thing.shape)]
        else:
            (one,) = named
            assert answer == {"colour": one.colour, "shape": one.shape}[words[1]]
            axis, most = FURTHEST[words[4]]
            at = one.box.centre[axis]
            others = [thing.box.centre[axis] for thing in things if thing is not one]
            assert at == most([at, *others])
            assert min(abs(at - other) for other in others) >= 4


def test_things_have_the_colours_shapes_and_sizes_that_are_given() -> None:
    made = scenes.plant(pictures=60, held_out=1, colours=2, shapes=3)
    said = {word for question in made.questions for word in question.split()} | set(made.answers)
    assert said & {*PAINTS, *SHAPES} == {"red", "green", "square", "cross", "ring"}
    assert {(box.bottom - box.top) for boxes in made.boxes for box in boxes} == {13}
    both = scenes.plant(pictures=60, held_out=1, small=True)
    assert {(box.bottom - box.top) for boxes in both.boxes for box in boxes} == {7, 13}


@pytest.mark.parametrize("kind", ["colour", "shape", "relation"])
def test_neither_the_question_nor_the_colours_of_a_picture_decide(kind: str) -> None:
    """The most frequent answer to each question, or a guess among what is there, is right in a part of the cases."""
    made = scenes.plant(pictures=700, held_out=1)
    chosen = [number for number, each in enumerate(made.kinds) if each == kind]
    of_words: dict[str, Counter[str]] = {}
    for number in chosen:
        of_words.setdefault(made.questions[number], Counter())[made.answers[number]] += 1
    of_kind = Counter(made.answers[number] for number in chosen)
    assert max(of_kind.values()) / len(chosen) < 0.45
    if kind != "relation":  # few relations are asked for twice
        assert sum(max(counts.values()) for counts in of_words.values()) / len(chosen) < 0.5


def test_the_same_pictures_get_the_same_questions() -> None:
    one, same = (scenes.plant(pictures=20, held_out=2) for _ in range(2))
    assert (one.questions, one.answers, one.boxes) == (same.questions, same.answers, same.boxes)
    np.testing.assert_array_equal(one.pixels, same.pixels)


def test_nothing_can_be_counted() -> None:
    kind, (question, answer, boxes) = scenes.ask(random.Random(0), [], ShapeKinds())
    assert (kind, question.startswith("how many things"), answer, boxes) == ("count", True, "0", [])


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.least=4 is more than data\.most=3"):
        scenes.plant(least=4, most=3)
    with pytest.raises(ConfigError, match="2 colours and 2 shapes make 4 things"):
        scenes.plant(most=5, colours=2, shapes=2, side=64)
    with pytest.raises(ConfigError, match=r"data\.most=5: write a whole number from 1 to 4"):
        scenes.plant(most=5)
    with pytest.raises(ConfigError, match="numbers of generated data"):
        premises.plant(pairs=10**8)
