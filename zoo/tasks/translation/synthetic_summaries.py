"""Documents with summaries that were made, so that it is known which sentences a summary keeps.

    also old dog sees red box near lamp notably tiger often helps young cat besides child draws bridge
    tiger helps cat

Every sentence begins with a word that says whether it matters. The summary has the sentences that do, in their order:
subject, verb and object, without the words that describe them, joined by "and". Other sentences are made of the same
words, so that the bag of a document's words does not say its summary.
"""

from __future__ import annotations

import random
from typing import Annotated

import numpy as np

from zoo.data.size_limits import check_numbers
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.tasks.translation.synthetic import ADJECTIVES, ADVERBS, NOUNS, PREPOSITIONS, VERBS, Link, SyntheticPairs
from zoo.types import PositiveInt, Seed, validate_ranges

MATTERS = ("notably", "chiefly", "crucially")
OTHERS = ("also", "besides", "meanwhile")
"""The first words of sentences that matter, and of others."""
JOINING = "and"
_SHARE, _DESCRIBED = 0.4, 0.5
"""Of sentences that matter, and the probability of each word that describes others."""
_LONGEST = 9


@validate_ranges
def plant_summaries(
    *,
    documents: PositiveInt = 8000,
    held_out: PositiveInt = 400,
    sentences: Annotated[int, ">= 2", "<= 20"] = 6,
    seed: Seed = 0,
) -> SyntheticPairs:
    """Generates documents and their summaries; the same arguments give the same documents.

    Args:
        documents: Number of training documents.
        held_out: Number of documents of the validation split, and of the test split.
        sentences: Number of sentences of a document; about two of five matter, and one at least.
        seed: Seed of the generator.
    """
    total = documents + 2 * held_out
    options = f"data.documents={documents}, held_out={held_out} and sentences={sentences}"
    check_numbers(total * sentences * _LONGEST, options)
    draw = random.Random(seed)
    found = [_document(draw, sentences) for _ in range(total)]
    return SyntheticPairs(
        sources=[" ".join(document) for document, _, _ in found],
        targets=[" ".join(summary) for _, summary, _ in found],
        links=[links for _, _, links in found],
        splits=np.repeat([TRAIN, VAL, TEST], [documents, held_out, held_out]),
    )


def _document(draw: random.Random, sentences: int) -> tuple[list[str], list[str], list[Link]]:
    """Returns the words of a document and of its summary, and the place in it that each word of the summary repeats."""
    matters = [draw.random() < _SHARE for _ in range(sentences)]
    matters[draw.randrange(sentences)] = True
    nouns = draw.sample(NOUNS, 3 * sentences)
    document, summary, links = list[str](), list[str](), list[Link]()
    for number, does in enumerate(matters):
        document.append(draw.choice(MATTERS if does else OTHERS))
        if does and summary:
            summary.append(JOINING)
        for word, is_said in _sentence(draw, nouns[3 * number : 3 * number + 3]):
            if does and is_said:
                links.append((len(summary), len(document)))
                summary.append(word)
            document.append(word)
    return document, summary, links


def _sentence(draw: random.Random, nouns: list[str]) -> list[tuple[str, bool]]:
    """Returns the words of a sentence after its first, and whether its summary says them."""
    subject, thing, place = nouns
    parts = [
        (draw.choice(ADJECTIVES), False),
        (subject, True),
        (draw.choice(ADVERBS), False),
        (draw.choice(VERBS), True),
        (draw.choice(ADJECTIVES), False),
        (thing, True),
        (f"{draw.choice(PREPOSITIONS)} {place}", False),
    ]
    chosen = [part for part in parts if part[1] or draw.random() < _DESCRIBED]
    return [(word, is_said) for words, is_said in chosen for word in words.split()]
