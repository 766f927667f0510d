"""Options of commands for models that write: how texts are searched or drawn, and how many."""

from __future__ import annotations

from dataclasses import replace

from zoo.decoding.beam import BeamSearch
from zoo.decoding.constraints import Constraints
from zoo.decoding.ranking import GNMTLength
from zoo.decoding.sampling import Sampling
from zoo.errors import ConfigError
from zoo.tasks.command_options import COUNT, NOT_NEGATIVE, POSITIVE, CommandOption
from zoo.tasks.seq2seq.decoding_config import DecodingConfig, MaxLength

SEARCH_OPTIONS = (
    CommandOption(name="beam", kind=COUNT, metavar="N", help="hypotheses that the search keeps; 1 is greedy search"),
    CommandOption(
        name="length-penalty",
        kind=NOT_NEGATIVE,
        metavar="A",
        help="rank texts by log-probability / ((5 + tokens) / 6)^A; 0: by probability, which favours short texts",
    ),
    CommandOption(
        name="coverage-penalty",
        kind=NOT_NEGATIVE,
        metavar="B",
        help="add B times the sum of log(attention, at most 1) over all places of the source; 0: nothing",
    ),
    CommandOption(name="max-length", kind=COUNT, metavar="N", help="the most tokens of a text, its end included"),
    CommandOption(name="no-repeat", kind=COUNT, metavar="N", help="no N tokens in a row occur twice in a text"),
)
"""Options of the search, which `zoo predict`, `zoo evaluate` and `zoo maps` have. Others are as in training."""
WRITING_OPTIONS = (
    *SEARCH_OPTIONS,
    CommandOption(name="n-best", kind=COUNT, metavar="N", help="write the N best for each example, a row each"),
    CommandOption(name="sample", kind=None, help="draw at random instead of searching"),
    CommandOption(
        name="temperature", kind=POSITIVE, metavar="T", help="of samples: below 1 probable tokens more often"
    ),
    CommandOption(name="top-k", kind=COUNT, metavar="K", help="of samples: the K most probable tokens alone"),
    CommandOption(name="top-p", kind=float, metavar="P", help="of samples: the fewest tokens with this probability"),
    CommandOption(name="seed", kind=int, metavar="N", help="of samples; default 0"),
)
_OF_SAMPLES = ("temperature", "top_k", "top_p", "seed")


def choose_decoding(
    writing: DecodingConfig,
    *,
    beam: int | None = None,
    length_penalty: float | None = None,
    coverage_penalty: float | None = None,
    max_length: int | None = None,
    no_repeat: int | None = None,
    n_best: int | None = None,
    sample: bool = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> DecodingConfig:
    """Returns the way to write that the options of the command ask for; what is not given is as in `writing`."""
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    of_samples = {name: value for name, value in given.items() if value is not None}
    count = 1 if n_best is None else n_best
    writing = _limit_length(writing, max_length, no_repeat)
    of_searches = {"beam": beam, "length-penalty": length_penalty, "coverage-penalty": coverage_penalty}
    try:
        if sample:
            for name, value in of_searches.items():
                if value is not None:
                    raise ConfigError(f"--{name} and --sample: a text is searched or drawn; give one of them")
            drawn = Sampling(draws=count, constraints=writing.search.constraints, **of_samples)  # type: ignore[arg-type]
            return replace(writing, search=drawn, seed=seed or 0)
        if of_samples or seed is not None:
            names = [name for name in _OF_SAMPLES if name in of_samples or (name == "seed" and seed is not None)]
            raise ConfigError(f"--{names[0].replace('_', '-')} is for samples; give --sample too")
        search = writing.search
        assert isinstance(search, BeamSearch)
        width = max(search.width, count) if beam is None else beam
        ranking = search.ranking
        if length_penalty is not None:
            ranking = replace(ranking, length=GNMTLength(length_penalty))
        if coverage_penalty is not None:
            ranking = replace(ranking, coverage=coverage_penalty)
        return replace(writing, search=replace(search, width=width, best=count, ranking=ranking))
    except ValueError as error:
        raise ConfigError(f"options of the search: {error}") from error


def _limit_length(writing: DecodingConfig, max_length: int | None, no_repeat: int | None) -> DecodingConfig:
    """Returns the way to write with limits of the number of tokens and of what is repeated."""
    if max_length is not None:
        writing = replace(writing, longest=MaxLength(factor=0.0, constant=max_length))
    if no_repeat is None:
        return writing
    constraints: Constraints = replace(writing.search.constraints, unrepeated=no_repeat)
    return replace(writing, search=replace(writing.search, constraints=constraints))
