"""Subwords by byte pair encoding (Sennrich et al. 2016, 'Neural machine translation of rare words with subword units').

The smallest pieces are bytes, so that no token is unknown and decoding restores every text. A checkpoint holds only the
pieces and the merges. The regular expression that first splits texts into words is not part of it, so that no
expression from a stranger's checkpoint is run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Self

import regex

from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.text.tokens import NO_WORD, Span, Tokens
from zoo.text.words import WORD, word_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTES = 256
_MAX_PIECES = 1 << 20
_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_LETTERS = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(_BYTES + number): byte for number, byte in enumerate(sorted({*range(_BYTES)}.difference(_PRINTABLE)))
}
"""The byte for which each letter of a piece stands."""
_SPACES = regex.compile(r"\s*")
# a word includes the single space before it
_WORDS = "|".join(f" ?{kind}" for kind in WORD.split("|"))
_PARTS = "|".join([_WORDS, r"\s+(?!\S)", r"\s+"])
_SPACED_WORD = regex.compile(_WORDS)


class Subwords:
    """Splits words into pieces; frequent words are one piece. `decode` restores the text, except for case if `lower`.

    The names of pieces are not readable, because their letters stand for bytes: to show a token, take the characters at
    its span.

    Args:
        size: Maximum number of pieces, of which 256 are the bytes.
        min_count: Minimum number of occurrences of a pair of pieces that is merged.
        lower: If True, texts are converted to lower case.
    """

    def __init__(self, *, size: int = 8000, min_count: int = 2, lower: bool = False) -> None:
        if not _BYTES < size <= _MAX_PIECES or min_count < 1:
            raise ConfigError(
                f"size={size} and min_count={min_count} of subwords: write {_BYTES + 1} to {_MAX_PIECES:,} and at "
                "least 1"
            )
        self.size = size
        self.min_count = min_count
        self.lower = lower
        self.pieces: tuple[str, ...] = ()
        """All pieces, for the vocabulary; empty before `fit`."""
        self._merges: list[str] = []
        self._tokenizer: Tokenizer | None = None

    def fit(self, texts: Iterable[str]) -> Self:
        """Learns pieces from texts, whose order does not matter."""
        from tokenizers.trainers import BpeTrainer

        tokenizer = _make_tokenizer(self.lower, [], [])
        trainer = BpeTrainer(
            vocab_size=self.size, min_frequency=self.min_count, initial_alphabet=_get_alphabet(), show_progress=False
        )
        tokenizer.train_from_iterator(_prepend_spaces(texts), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        subwords = type(self)(size=self.size, min_count=self.min_count, lower=self.lower)
        subwords._set(pieces, [" ".join(pair) for pair in model["merges"]])
        return subwords

    def encode(self, text: str) -> Tokens:
        if self._tokenizer is None:
            raise RuntimeError("these subwords have learned nothing yet: call fit first")
        try:
            encoding = self._tokenizer.encode(f" {text}", add_special_tokens=False)
        except TypeError as error:  # the library's error for text that cannot be encoded as UTF-8
            raise DataError("the text has half of a surrogate pair, which is not a character") from error
        spans = [_strip_span(text, start - 1, end - 1) for start, end in encoding.offsets]
        filled = [word for word, (start, end) in zip(encoding.word_ids, spans, strict=True) if start < end]
        numbers = {word: number for number, word in enumerate(dict.fromkeys(filled))}
        return Tokens(encoding.tokens, spans, [numbers.get(word, NO_WORD) for word in encoding.word_ids])

    def decode(self, names: Sequence[str]) -> str:
        from tokenizers.decoders import ByteLevel

        return str(ByteLevel().decode(list(names))).removeprefix(" ")

    def words(self, names: Sequence[str]) -> list[int]:
        pieces = [bytes(map(_LETTERS.__getitem__, name)) for name in names]
        text = b"".join(pieces).decode("utf-8", "surrogateescape")
        sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text]
        character = [number for number, size in enumerate(sizes) for _ in range(size)]
        ends = accumulate(map(len, pieces), initial=0)
        spans = ((character[start], character[end - 1] + 1) for start, end in pairwise(ends))
        return word_ids((match.span() for match in _SPACED_WORD.finditer(text)), spans, len(text))

    def state(self) -> dict[str, Any]:
        return {"kind": "subwords", "lower": self.lower, "pieces": list(self.pieces), "merges": list(self._merges)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        pieces, merges = state.get("pieces", []), state.get("merges", [])
        _check(pieces, merges)
        subwords = cls(size=max(len(pieces), _BYTES + 1), lower=state["lower"])
        subwords._set(pieces, merges)
        return subwords

    def _set(self, pieces: Sequence[str], merges: list[str]) -> None:
        self.pieces, self._merges = tuple(pieces), merges
        self._tokenizer = _make_tokenizer(self.lower, self.pieces, merges)


def _make_tokenizer(lower: bool, pieces: Sequence[str], merges: Sequence[str]) -> Tokenizer:
    # the library's threads would deadlock in forked workers, and are of no use for one text at a time
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(BPE(vocab=numbers, merges=[_split_merge(merge) for merge in merges]))
    parts = pre_tokenizers.Split(Regex(_PARTS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [parts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def _get_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def _prepend_spaces(texts: Iterable[str]) -> Iterator[str]:
    """Puts a space before each text, so that its first word has the same pieces as elsewhere."""
    return (f" {text}" for text in texts)


def _strip_span(text: str, start: int, end: int) -> Span:
    match = _SPACES.match(text, max(start, 0), end)
    assert match is not None
    return match.end(), max(match.end(), end)


def _split_merge(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _check(pieces: Sequence[str], merges: Sequence[str]) -> None:
    """Refuses pieces and merges that training cannot produce, because they could lose characters."""
    known, letters = set(pieces), set(_get_alphabet())
    for is_valid, problem in (
        (_BYTES <= len(pieces) <= _MAX_PIECES, f"{len(pieces):,} pieces, not {_BYTES} to {_MAX_PIECES:,}"),
        (len(known) == len(pieces), "a piece twice"),
        (letters <= known, "no piece for some bytes"),
        (letters.issuperset("".join(pieces)), "a piece of letters that stand for no bytes"),
        (len(merges) <= len(pieces), "more merges than pieces"),
        (
            all(known.issuperset((*_split_merge(merge), merge.replace(" ", ""))) for merge in merges),
            "a merge of no pieces",
        ),
    ):
        if not is_valid:
            raise CheckpointError(f"the checkpoint is damaged: its tokeniser has {problem}")
