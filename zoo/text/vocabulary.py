"""Vocabularies, which map the tokens that a model knows to numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from zoo.errors import CheckpointError, ConfigError, DataError, join_names
from zoo.text.tokenizer_factory import check_state
from zoo.validation import Predicate

Special = Literal["pad", "unknown", "begin", "end"]
Policy = Literal["unite", "keep", "new"]
"""The tokens of a model that starts from a checkpoint with the same tokenizer.

unite: the checkpoint's and those of the new training texts. keep: the checkpoint's alone. new: those of the new
training texts alone.
"""

_SPECIALS: dict[Special, str] = {"pad": "<pad>", "unknown": "<unk>", "begin": "<s>", "end": "</s>"}
_MAX_TOKEN_LENGTH, _MAX_TOKENS = 1 << 10, 1 << 24

VOCABULARY = [
    Predicate(f"a text of at most {_MAX_TOKEN_LENGTH:,} characters", lambda value: type(value) is str and _fits(value))
]
"""The form of a vocabulary's state. Fine-tuning matches its entries by name."""


class Vocabulary:
    """Maps tokens to numbers and back. The special tokens have the first numbers.

    A token of a text that is spelled like a special token, such as `<pad>`, is unknown.

    Args:
        tokens: Distinct tokens in the order of their numbers.
        specials: Special tokens in the order of their numbers.
    """

    def __init__(self, tokens: Iterable[str], specials: Sequence[Special] = ("pad", "unknown")) -> None:
        unknown_specials = [special for special in specials if special not in _SPECIALS]
        if unknown_specials or len(set(specials)) < len(specials):
            raise ConfigError(f"specials are {', '.join(_SPECIALS)}, each at most once, not {', '.join(specials)}")
        reserved = set(_SPECIALS.values())
        self._specials = {name: number for number, name in enumerate(specials)}
        self.tokens = (*(_SPECIALS[name] for name in specials), *(token for token in tokens if token not in reserved))
        """All tokens by number, including the special ones."""
        self._numbers = {name: number for number, name in enumerate(self.tokens) if name not in reserved}
        if len(self._numbers) + len(specials) < len(self.tokens):
            repeated = [name for name, count in Counter(self.tokens).items() if count > 1]
            raise DataError(f"{join_names(repeated)} named more than once among the tokens")

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        specials: Sequence[Special] = ("pad", "unknown"),
        min_count: int = 1,
        max_size: int | None = None,
        origin: Sequence[str] = (),
        policy: Policy = "unite",
    ) -> Self:
        """Makes a vocabulary of the most frequent tokens. Tokens with equal counts are in alphabetical order.

        Args:
            counts: Token -> number of occurrences.
            specials: Special tokens in the order of their numbers.
            min_count: Minimum number of occurrences of a token.
            max_size: Maximum number of tokens, including the special ones. Default: no limit. It takes none from
                those of `origin`.
            origin: All tokens of the checkpoint that training starts from, if any. They come first.
            policy: Which of the tokens of `origin` and `counts` the vocabulary has, if there is an origin.
        """
        if min_count < 1 or (max_size is not None and max_size <= len(specials)):
            raise ConfigError(
                f"min_count={min_count} and max_size={max_size}: write numbers from 1, and room for more than the "
                f"{len(specials)} tokens of no text"
            )
        reserved = set(_SPECIALS.values())
        origin_tokens = [] if policy == "new" else [token for token in origin if token not in reserved]
        if origin_tokens and policy == "keep":
            return cls(origin_tokens, specials)
        known = reserved.union(origin_tokens)
        frequent = [token for token, count in counts.items() if count >= min_count and token not in known]
        frequent.sort(key=lambda token: (-counts[token], token))
        if max_size is not None:
            frequent = frequent[: max(0, max_size - len(specials) - len(origin_tokens))]
        return cls([*origin_tokens, *frequent], specials)

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Restores the vocabulary of a checkpoint.

        Raises:
            CheckpointError: The state is not one that `state` returns.
        """
        check_state(state, VOCABULARY, "the vocabulary")
        if len(state) > _MAX_TOKENS:
            raise CheckpointError(f"the checkpoint has {len(state):,} tokens, and {_MAX_TOKENS:,} are the most")
        by_name = {name: special for special, name in _SPECIALS.items()}
        specials: list[Special] = []
        while len(specials) < len(state) and state[len(specials)] in by_name:
            specials.append(by_name[state[len(specials)]])
        try:
            vocabulary = cls(state[len(specials) :], specials)
        except (ConfigError, DataError) as error:
            raise CheckpointError(f"the checkpoint is damaged: its vocabulary has a token twice ({error})") from error
        if len(vocabulary) != len(state):
            raise CheckpointError("the checkpoint is damaged: its vocabulary has tokens of no text among the others")
        return vocabulary

    def state(self) -> list[str]:
        """Returns all tokens by number, for the checkpoint."""
        return list(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        """Returns True if a token has a number of its own and is not special."""
        return token in self._numbers

    @property
    def pad(self) -> int:
        return self._special("pad")

    @property
    def unknown(self) -> int:
        return self._special("unknown")

    @property
    def begin(self) -> int:
        return self._special("begin")

    @property
    def end(self) -> int:
        return self._special("end")

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Returns the number of each token; tokens that are not in the vocabulary get that of the unknown token.

        Raises:
            DataError: A token is unknown, and the vocabulary has no number for unknown tokens.
        """
        get = self._numbers.get
        if "unknown" in self._specials:
            unknown = self.unknown
            return [get(token, unknown) for token in tokens]
        tokens = list(tokens)
        numbers = [get(token, -1) for token in tokens]
        if -1 in numbers:
            unknown_tokens = sorted({token for token in tokens if token not in self._numbers})
            raise DataError(f"{join_names(unknown_tokens)} not in the vocabulary of {len(self):,} tokens")
        return numbers

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Returns the token of each number, without special tokens other than the unknown token."""
        unknown = self._specials.get("unknown", -1)
        return [self.tokens[number] for number in numbers if number >= len(self._specials) or number == unknown]

    def _special(self, name: Special) -> int:
        if name not in self._specials:
            raise AttributeError(f"this vocabulary was made without {_SPECIALS[name]}: ask for it in specials")
        return self._specials[name]


def _fits(name: str) -> bool:
    return 0 < len(name) <= _MAX_TOKEN_LENGTH
