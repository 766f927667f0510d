"""Random changes of training texts: unknown words, moved words and synonyms."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoo.data.encodings import Fault
from zoo.data.line_index import read_lines
from zoo.data.tables import check_is_file, message
from zoo.errors import ConfigError, DataError
from zoo.tasks.documents.batch import Document
from zoo.text import Tokenizer, Vocabulary
from zoo.types import Fraction, NonNegativeInt, validate_ranges


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Options of the random changes. By default, nothing is changed.

    Args:
        word_dropout: Probability that a word is replaced by the unknown word (Iyyer et al. 2015, section 3). None:
            the data choose it (`choose_word_dropout`).
        shuffle: Number of places; each word moves within its sentence by fewer (Lample et al. 2018, section 2.3).
            With 0 and 1 no word moves.
        synonyms: File with a word and its synonyms on each line, separated by tabs. Default: none.
        synonym_rate: Probability that a word with synonyms is replaced by one of them.
    """

    word_dropout: Fraction | None = 0.0
    shuffle: NonNegativeInt = 0
    synonyms: str | None = None
    synonym_rate: Fraction = 0.1

    @property
    def changes(self) -> bool:
        """True if the options change anything."""
        return bool(self.word_dropout) or self.shuffle > 1 or self.synonyms is not None


class AugmentedView:
    """Changes a document with the generator of `random`, which the loader seeds for each document and epoch."""

    def __init__(self, augmentation: Augmentation, vocabulary: Vocabulary, tokeniser: Tokenizer) -> None:
        self.augmentation = augmentation
        self.unknown: int = vocabulary.unknown
        self.synonyms: Mapping[int, Sequence[int]] = {}
        if augmentation.synonyms is not None:
            if tokeniser.state()["kind"] != "words":
                raise ConfigError("data.augmentation.synonyms replaces whole words: choose data.tokeniser=words")
            self.synonyms = _encode_synonyms(read_synonyms(Path(augmentation.synonyms)), vocabulary)

    def __call__(self, document: Document) -> Document:
        changed, gold, start = [], [], 0
        for sentence in document.sentences:
            order = self._move(len(sentence))
            changed.append([self._replace_word(sentence[place]) for place in order])
            if document.gold_words is not None:
                gold += [document.gold_words[start + place] for place in order]
            if document.planted is not None and start <= document.planted < start + len(sentence):
                document = replace(document, planted=start + order.index(document.planted - start))
            start += len(sentence)
        return replace(document, sentences=changed, gold_words=None if document.gold_words is None else gold)

    def _move(self, length: int) -> list[int]:
        if self.augmentation.shuffle < 2:
            return list(range(length))
        keys = [place + random.uniform(0, self.augmentation.shuffle) for place in range(length)]
        return sorted(range(length), key=keys.__getitem__)

    def _replace_word(self, word: int) -> int:
        if word in self.synonyms and random.random() < self.augmentation.synonym_rate:
            word = random.choice(self.synonyms[word])
        if self.augmentation.word_dropout and random.random() < self.augmentation.word_dropout:
            return self.unknown
        return word


def read_synonyms(path: Path) -> dict[str, list[str]]:
    """Reads the synonyms of each word.

    Raises:
        DataError: The file cannot be read or is empty, or a line has no synonyms or a word that another line has.
    """
    check_is_file(path)
    found: dict[str, list[str]] = {}
    for number, text in read_lines(path):
        if isinstance(text, Fault):
            raise DataError(message(path, number, None, *text))
        word, *others = [part.strip() for part in text.split("\t")]
        if not word and not any(others):
            continue
        if not word or not others or not all(others):
            raise DataError(
                message(path, number, None, "the line is not a word and its synonyms", "Separate them by tabs.")
            )
        if word in found:
            raise DataError(message(path, number, None, f"{word!r} has synonyms already", "Put them on one line."))
        found[word] = others
    if not found:
        raise DataError(f"{path}: the file has no word with synonyms. Give a word and its synonyms on each line.")
    return found


def _encode_synonyms(synonyms: Mapping[str, Sequence[str]], vocabulary: Vocabulary) -> dict[int, list[int]]:
    """Returns the indices of words and synonyms that are in the vocabulary."""
    found = {}
    for word, others in synonyms.items():
        known = [each for each in others if each in vocabulary]
        if word in vocabulary and known:
            found[vocabulary.encode([word])[0]] = vocabulary.encode(known)
    return found
