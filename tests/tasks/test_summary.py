"""What `zoo check` says of the data of every domain, from the samples, counted by other means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.config import compose, instantiate
from zoo.data.ragged import RaggedArray
from zoo.tasks.data_summary import Longest, Summary, Vocabulary, count_labels, share_unknown

SAMPLES = Path(__file__).resolve().parents[2] / "data" / "samples"
OWN = {
    "graph": (
        ["model=gat", "data=graph_files", "data.nodes=graph/nodes.csv", "data.edges=graph/edges.csv"],
        [
            "splits     38 nodes: train 18, val 9, test 9, in no split 2",
            "in all     186 edges, 5 features",
            "labels     3, in train, val, test: graphs 6/3/3, language 6/3/3, vision 6/3/3",
            "longest    incoming edges: 10 in 'streets-from-above', 9 in 'maps-read-aloud', ",
        ],
    ),
    "vision": (
        ["model=se_resnet", "data=image_folder", "data.folder=vision/pictures", "data.height=32", "data.width=32"],
        [
            "splits     27 pictures: train 15, val 6, test 6",
            "labels     3, in train, val, test: circle 5/2/2, cross 5/2/2, stripes 5/2/2",
        ],
    ),
    "recommendation": (
        [
            *("model=sasrec", "data=interactions", "data.table=recommendation/interactions.csv"),
            *("data.min_user_items=3", "data.min_item_users=2"),
        ],
        [
            "splits     users: train 12, val 12, test 12",
            "in all     12 users, 12 items, 87 interactions",
            "longest    items: 9",
        ],
    ),
    "documents": (
        ["model=han", "data=text_table", "data.table=documents/reviews.csv"],
        [
            "splits     30 texts: train 18, val 6, test 6",
            "labels     2, in train, val, test: bad 9/3/3, good 9/3/3",
            "longest    words: 17 in '31', 16 in '3', 15 in '12'; median 13",
            "vocabulary 112 words of train; unknown: 43.2% of val, 34.5% of test",
        ],
    ),
    "translation": (
        ["model=nmt", "data=text_pairs", "data.table=translation/phrases.tsv"],
        [
            "splits     30 pairs: train 18, val 6, test 6",
            "longest    tokens: 7 in '6', 7 in '10', 7 in '16'; median 6",
            "vocabulary 67 source tokens of train; unknown: 71.4% of val, 64.5% of test",
            "vocabulary 63 target tokens of train; unknown: 66.7% of val, 62.5% of test",
        ],
    ),
    "speech": (
        ["model=las", "data=audio_manifest", "data.table=speech/recordings.csv"],
        [
            "splits     20 recordings: train 12, val 4, test 4",
            "sound      0.1",
            "longest    seconds: 0.73 in 'clips/05.flac', 0.67 in 'clips/13.flac', 0.63 in 'clips/06.ogg'; median 0.55",
            "vocabulary 6 tokens of train; unknown: 0.0% of val, 0.0% of test",
        ],
    ),
    "captioning": (
        ["model=captioner", "data=captions", "data.table=captioning/captions.csv"],
        [
            "splits     10 pictures: train 6, val 2, test 2",
            "in all     20 captions",
            "longest    tokens: 16 in 'pictures/03.png', 15 in 'pictures/09.png', 14 in 'pictures/03.png'; median 9",
        ],
    ),
    "answering": (
        ["model=esim", "data=hypotheses", "data.table=answering/hypotheses.jsonl"],
        [
            "splits     5 questions: train 3, val 1, test 1",
            "labels     3, in train, val, test: contradiction 1/0/1, entailment 1/1/0, neutral 1/0/0",
            "longest    tokens: 9 in '1', 9 in '2', 7 in '3'; median 7",
        ],
    ),
}


def data_of(overrides: list[str], tmp_path: Path) -> Any:
    at_samples = [
        each if "=" not in each or "/" not in each else each.replace("=", f"={SAMPLES}/", 1) for each in overrides
    ]
    composed = compose.compose([*at_samples, f"paths.cache={tmp_path}"])
    return instantiate.build(composed["data"], "data")


@pytest.mark.filterwarnings("ignore:.*(is not used|not in every split)")
@pytest.mark.parametrize("domain", OWN)
def test_every_domain_says_what_its_data_hold(domain: str, tmp_path: Path) -> None:
    overrides, expected = OWN[domain]
    lines = list(data_of(overrides, tmp_path).summary().lines())
    missing = [part for part in expected if not any(line.startswith(part) for line in lines)]
    assert missing == [], lines


def test_many_labels_are_cut_in_the_middle() -> None:
    labels = {f"label{number}": (number, 1, 2) for number in range(40)}
    (_, line) = Summary(noun="text", sizes={"train": 3}, labels=labels).lines()
    assert line.startswith("labels     40, in train, val, test: label39 39/1/2, ")
    assert line.endswith(" and 28 more; the rarest: label2 2/1/2, label1 1/1/2, label0 0/1/2")


def test_labels_are_counted_by_split() -> None:
    splits = np.array([0, 0, 1, 2, -1])
    assert count_labels(("a", "b"), np.array([1, 0, 1, -1, 0]), splits) == {"a": [1, 0, 0], "b": [1, 1, 0]}
    several = np.array([[True, True], [False, True], [True, False], [False, False], [True, True]])
    assert count_labels(("a", "b"), several, splits) == {"a": [1, 1, 0], "b": [2, 0, 0]}


def test_unknown_tokens_are_a_share_of_a_splits_tokens() -> None:
    rows = RaggedArray(np.array([5, 1, 1, 7, 8, 1]), np.array([0, 2, 3, 6]))
    assert share_unknown([rows], np.array([0, 1, 2]), 1) == {"val": 1.0, "test": 1 / 3}
    assert share_unknown([rows], np.array([0, 0, 1]), 1) == {"val": 1 / 3}


def test_one_of_a_kind() -> None:
    found = Summary(
        noun="text",
        sizes={"train": 1},
        totals={"edge": 1, "entry": 2},
        hours={"train": 2.5},
        longest=Longest.find("word", ["a", "b"], np.array([1, 2])),
        vocabularies=[Vocabulary("words", 3, {"val": 0.25}, most=2000)],
    )
    assert list(found.lines()) == [
        "splits     1 text: train 1",
        "in all     1 edge, 2 entries",
        "sound      2.50 hours: train 2.50",
        "longest    words: 2 in 'b', 1 in 'a'; median 1.50",
        "vocabulary 3 words of train; unknown: 25.0% of val, of 2,000 texts each",
    ]
    assert Longest.find("word", [], np.zeros(0)) is None
