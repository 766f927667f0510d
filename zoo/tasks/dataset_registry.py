"""Data sets that a configuration can name: a source together with the data module that makes its batches."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from zoo.tasks.batching import BatchOptions

D = TypeVar("D")


def dataset(
    data: Callable[..., D], *, generator: Callable[..., Any] | None = None, kind: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., D]]:
    """Decorates a function that returns a source; the result returns the data module of this source.

    Its signature has the options of the source, of `BatchOptions` and of the data module, so that each option is
    written once, where it is used.

        @dataset(ImageData)
        def image_folder(*, folder: str, split_seed: Seed = 0) -> PictureSource: ...

        image_folder(folder="photos", max_epochs=3, height=224, width=224)
        # ImageData(image_folder's PictureSource, BatchOptions(max_epochs=3), height=224, width=224)

    Args:
        data: The class of the data module: `data(source, batching, **options)`.
        generator: Function that generates planted data. The options of the source are then those of the generator,
            and the decorated function is called with a partial of the generator.
        kind: Kind of the examples, where a data module has several and a model takes one.
    """

    def make_data(source: Callable[..., Any]) -> Callable[..., D]:
        parts = [_options(generator or source), _options(BatchOptions), _options(data)]
        names = [name for each in parts for name in each]
        if len(set(names)) < len(names):
            raise TypeError(f"{source.__qualname__} has an option of the same name as one of its data module")

        @functools.wraps(source)
        def make(**options: Any) -> D:
            given, batching, own = ({name: options[name] for name in options if name in each} for each in parts)
            strange = set(options) - set(names)
            if strange:
                raise TypeError(f"{source.__qualname__} has no option {', '.join(sorted(strange))}")
            found = source(**given) if generator is None else source(functools.partial(generator, **given))
            made = data(found, BatchOptions(**batching), **own)
            if generator is not None:
                made.is_generated = True  # type: ignore[attr-defined]
            return made

        signature = inspect.Signature([each for part in parts for each in part.values()], return_annotation=data)
        make.kind = kind  # type: ignore[attr-defined]
        make.__signature__ = signature  # type: ignore[attr-defined]
        make.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()} | {"return": data}
        return make

    return make_data


def _options(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the keyword-only parameters of a function or class, with their types resolved."""
    hints = get_type_hints(part.__init__ if inspect.isclass(part) else part, include_extras=True)
    parameters = inspect.signature(part).parameters.items()
    return {name: each.replace(annotation=hints[name]) for name, each in parameters if each.kind is each.KEYWORD_ONLY}
