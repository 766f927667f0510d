"""Ranges stand in signatures, once: calls from Python obey them, and no signature with a range goes unchecked."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import pytest

import zoo.types
from zoo.types import (
    AnyFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
    Seed,
    validate_ranges,
)

ROOT = Path(__file__).resolve().parents[1]
RANGES = {name for name in vars(zoo.types) if name.endswith(("Int", "Float", "Fraction", "Probability", "Seed"))} | {
    "Annotated"
}


@validate_ranges
class Layer:
    def __init__(
        self,
        dim: PositiveInt,
        *,
        dropout: Probability = 0.0,
        widths: Sequence[PositiveInt] | None = None,
        rates: Mapping[str, PositiveFloat] | Literal["balanced"] | None = None,
        size: PositiveInt | Literal["all"] = "all",
        shift: AnyFloat = 0.0,
        other: int = 0,
    ) -> None:
        self.dim = dim


@validate_ranges
@dataclass(frozen=True)
class Options:
    width: PositiveInt
    best: NonNegativeInt = 1


@validate_ranges
def plant(*, nodes: PositiveInt = 3, seed: Seed = 0) -> int:
    return nodes


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Layer(0), "Layer(dim=0) does not fit: dim is to be a whole number of at least 1"),
        (lambda: Layer(dim=-2), "Layer(dim=-2) does not fit: dim is to be a whole number of at least 1"),
        (lambda: Layer(2.5), "Layer(dim=2.5) does not fit: dim is to be a whole number of at least 1"),  # type: ignore[arg-type]
        (
            lambda: Layer(2, dropout=1.0),
            "Layer(dropout=1.0) does not fit: dropout is to be a number of at least 0 and below 1",
        ),
        (lambda: Layer(2, dropout=float("nan")), "Layer(dropout=nan) does not fit: dropout is to be a number of"),
        (lambda: Layer(2, shift=float("inf")), "Layer(shift=inf) does not fit: shift is to be a number"),
        (lambda: Layer(2, widths=(3, 0)), "Layer(widths=(3, 0)) does not fit: widths is to be a list, each a whole"),
        (
            lambda: Layer(2, rates={"a": 0.0}),
            "Layer(rates={'a': 0.0}) does not fit: rates is to be ",
        ),
        (lambda: Layer(2, size=0), "Layer(size=0) does not fit: size is to be a whole number of at least 1 or 'all'"),
        (lambda: partial(Layer, dim=0)(), "Layer(dim=0) does not fit"),
        (lambda: Layer(np.int64(0)), "Layer(dim=np.int64(0)) does not fit"),  # type: ignore[arg-type]
        (lambda: Options(3, -1), "Options(best=-1) does not fit: best is to be a whole number of at least 0"),
        (lambda: Options(width=0), "Options(width=0) does not fit"),
        (lambda: plant(nodes=0), "plant(nodes=0) does not fit"),
        (
            lambda: plant(seed=2**32),
            "plant(seed=4294967296) does not fit: seed is to be a whole number of at least 0",
        ),
    ],
)
def test_a_number_outside_of_its_range_is_refused_in_one_sentence(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert str(caught.value).startswith(said)


def test_numbers_within_their_ranges_are_taken() -> None:
    made = Layer(np.int64(3), dropout=0, widths=[1, 2], rates={"a": 1}, size=4, shift=-7, other=-1)  # type: ignore[arg-type]
    assert made.dim == 3
    Layer(3, widths=None, rates="balanced", size="all")
    assert Options(3) == Options(width=3, best=1)
    assert plant() == 3


def test_what_is_validated_keeps_its_signature() -> None:
    assert list(inspect.signature(Layer).parameters)[:2] == ["dim", "dropout"]
    assert get_type_hints(Layer.__init__, include_extras=True)["dim"] == PositiveInt
    assert plant.__name__ == "plant"
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        Layer(dim=1, depth=2)  # type: ignore[call-arg]


def test_a_class_without_a_constructor_is_refused() -> None:
    class Plain:
        pass

    with pytest.raises(TypeError, match="Plain has no constructor of its own"):
        validate_ranges(Plain)


def mentions(annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        isinstance(node, ast.Name) and node.id in RANGES for node in ast.walk(annotation)
    )


def takes_ranges(node: ast.AST) -> bool:
    """Whether calls of a class or function are given numbers with ranges."""
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return any(mentions(each.annotation) for each in arguments)
    if not isinstance(node, ast.ClassDef):
        return False
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and mentions(each.annotation)]
    constructors = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return bool(fields) or any(map(takes_ranges, constructors))


FILES = [path for path in sorted((ROOT / "zoo").rglob("*.py")) if "from zoo.types import" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_signature_with_a_range_is_checked(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    constructors = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            constructors |= {each for each in node.body if isinstance(each, ast.FunctionDef)}
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node in constructors or not takes_ranges(node):
            continue
        decorators = [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
        assert "validate_ranges" in decorators, f"{node.name} has ranges that are not checked"
        found = getattr(module, node.name)
        if "dataset" not in decorators:  # whose result has the signature of several functions
            hints = zoo.types.get_ranges(found)
            assert hints, f"{node.name}: no range was found"
            assert set(hints) >= {k for k, hint in safe_hints(found).items() if zoo.types.has_range(hint)}


def safe_hints(found: Any) -> dict[str, Any]:
    """All types of a signature, where none of them is imported for the type checker alone."""
    try:
        return get_type_hints(found.__init__ if inspect.isclass(found) else found, include_extras=True)
    except NameError:
        return {}
