"""Makes tokenizers by the name of their kind, and restores those of checkpoints."""

from __future__ import annotations

from typing import Any, Literal

from zoo.errors import CheckpointError
from zoo.text.bpe import Subwords
from zoo.text.tokens import Tokenizer
from zoo.text.words import Characters, Words
from zoo.validation import Predicate, ValidationError, validate

Kind = Literal["words", "characters", "subwords"]
_KINDS: tuple[Kind, ...] = ("words", "characters", "subwords")
_PIECE = Predicate("a text of at most 1,024 characters", lambda value: type(value) is str and 0 < len(value) <= 1 << 10)
_MERGE = Predicate("two pieces and a space", lambda value: type(value) is str and 3 <= len(value) <= 1 << 11)

TOKENISER = {
    "kind": Predicate(f"one of {', '.join(_KINDS)}", lambda value: type(value) is str and value in _KINDS),
    "lower": bool,
    "pieces?": [_PIECE],
    "merges?": [_MERGE],
}
"""The form of a tokenizer's state."""


def check_state(state: Any, form: Any, name: str) -> None:
    """Refuses a state that does not have its form.

    Raises:
        CheckpointError: The state differs from the form. The message names the first difference.
    """
    try:
        validate(state, form, name)
    except ValidationError as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}") from error


def new_tokenizer(kind: Kind, *, lower: bool, subwords: int) -> Tokenizer:
    """Makes a tokenizer that has learned nothing yet.

    Args:
        kind: Name of the kind.
        lower: If True, texts are converted to lower case.
        subwords: Maximum number of subwords, if `kind` is subwords.
    """
    if kind == "subwords":
        return Subwords(size=subwords, lower=lower)
    return Words(lower=lower) if kind == "words" else Characters(lower=lower)


def tokenizer_from_state(state: Any) -> Tokenizer:
    """Restores the tokenizer of a checkpoint.

    Raises:
        CheckpointError: The state is not one that a tokenizer's `state` returns.
    """
    check_state(state, TOKENISER, "the tokeniser")
    kinds: dict[str, type[Tokenizer]] = {"words": Words, "characters": Characters, "subwords": Subwords}
    return kinds[state["kind"]].from_state(state)
