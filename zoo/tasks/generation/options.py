"""Options of `zoo predict` for models that write: how texts are written, and how many."""

from __future__ import annotations

from dataclasses import replace

from zoo.decoding.beam import BeamSearch
from zoo.decoding.sampling import Sampling
from zoo.errors import ConfigError
from zoo.tasks.command_options import CommandOption
from zoo.tasks.generation.writing import Writing

WRITING_OPTIONS = (
    CommandOption(name="n-best", kind=int, metavar="N", help="write the N best for each example, a row each"),
    CommandOption(name="beam", kind=int, metavar="N", help="hypotheses that the search keeps; 1 is greedy search"),
    CommandOption(name="sample", kind=None, help="draw at random instead of searching"),
    CommandOption(name="temperature", kind=float, metavar="T", help="of samples: below 1 probable tokens more often"),
    CommandOption(name="top-k", kind=int, metavar="K", help="of samples: the K most probable tokens alone"),
    CommandOption(name="top-p", kind=float, metavar="P", help="of samples: the fewest tokens with this probability"),
    CommandOption(name="seed", kind=int, metavar="N", help="of samples; default 0"),
)
_OF_SAMPLES = ("temperature", "top_k", "top_p", "seed")


def chosen(
    writing: Writing,
    *,
    n_best: int | None = None,
    beam: int | None = None,
    sample: bool = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Writing:
    """Returns the way to write that the options of the command ask for; what is not given is as in `writing`."""
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    of_samples = {name: value for name, value in given.items() if value is not None}
    count = 1 if n_best is None else n_best
    try:
        if sample:
            if beam is not None:
                raise ConfigError("--beam and --sample: a text is searched or drawn; give one of them")
            drawn = Sampling(draws=count, constraints=writing.search.constraints, **of_samples)  # type: ignore[arg-type]
            return replace(writing, search=drawn, seed=seed or 0)
        if of_samples or seed is not None:
            names = [name for name in _OF_SAMPLES if name in of_samples or (name == "seed" and seed is not None)]
            raise ConfigError(f"--{names[0].replace('_', '-')} is for samples; give --sample too")
        search = writing.search
        assert isinstance(search, BeamSearch)
        width = max(search.width, count) if beam is None else beam
        return replace(writing, search=replace(search, width=width, best=count))
    except ValueError as error:
        raise ConfigError(f"options of the search: {error}") from error
