"""Every public function of the core says the types of what it takes and gives, and the shapes of tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import zoo.attention

FILES = sorted(Path(zoo.attention.__file__).parent.rglob("*.py"))
SHAPED = {"Float", "Int", "Bool", "Shaped", "Complex", "Inexact", "Num"}


def public_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for owner in (tree, *classes):
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield f"{getattr(owner, 'name', 'function')}.{node.name}", node


def has_tensor_without_shape(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id in SHAPED:
            return False
    elif isinstance(annotation, ast.Name):
        return annotation.id == "Tensor"
    return any(has_tensor_without_shape(child) for child in ast.iter_child_nodes(annotation))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shapes_stand_in_signatures(path: Path) -> None:
    for name, function in public_functions(ast.parse(path.read_text(encoding="utf-8"))):
        taken = [each for each in (*function.args.args, *function.args.kwonlyargs) if each.arg not in ("self", "cls")]
        for what, annotation in [*((each.arg, each.annotation) for each in taken), ("result", function.returns)]:
            assert annotation is not None, f"{name}: {what} has no type"
            assert not has_tensor_without_shape(annotation), f"{name}: {what} has no shape"
