"""Data sets that a configuration can name: a source, composed with the data module that makes batches of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from zoo.tasks.batches import Batching

D = TypeVar("D")


def dataset(
    data: Callable[..., D], *, generator: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., D]]:
    """Makes of a source what a configuration can name: a function that composes it with the data module that takes it.

    The function has the source's options, those of `Batching` and those of the data module, and these are its
    signature: an option is written once, where it is used.

        @dataset(ImageData)
        def image_folder(*, folder: str, split_seed: Seed = 0) -> PictureSource: ...

        image_folder(folder="photos", max_epochs=3, height=224, width=224)
        # ImageData(image_folder's PictureSource, Batching(max_epochs=3), height=224, width=224)

    Args:
        data: The class of the data module, which takes a source, a `Batching` and options of its own.
        generator: What generates planted data. Its options are then those of the source, which is given the generator
            with these options filled in.
    """

    def composed(source: Callable[..., Any]) -> Callable[..., D]:
        parts = [_options(generator or source), _options(Batching), _options(data)]
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
            return data(found, Batching(**batching), **own)

        signature = inspect.Signature([each for part in parts for each in part.values()], return_annotation=data)
        make.__signature__ = signature  # type: ignore[attr-defined]
        make.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()} | {"return": data}
        return make

    return composed


def _options(part: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a part, with their types."""
    hints = get_type_hints(part.__init__ if inspect.isclass(part) else part, include_extras=True)
    parameters = inspect.signature(part).parameters.items()
    return {name: each.replace(annotation=hints[name]) for name, each in parameters if each.kind is each.KEYWORD_ONLY}
