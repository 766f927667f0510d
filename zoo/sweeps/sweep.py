"""Many runs from one command: `python train.py -m model=gat,gatv2 seed=0,1,2`.

Each job is a fresh process in a run directory of its own, started from its overrides. The sweep has a directory too:

    runs/sweeps/<time>/
      sweep.yaml    the overrides of the sweep; at its end also the overrides, run directory and status of every job
      summary.csv   for each combination of the values that are not seeds: mean, SD (n-1) and n of every test metric

The same command continues a sweep that did not finish: it skips finished jobs, continues a stopped or failed one from
its last.ckpt, and repeats one that has none. Hydra's parser reads the values (`0,1,2`, `range(5)`, `choice(a,b)`), and
one of its launchers runs the jobs if it is named (`hydra/launcher=joblib`). Its BasicSweeper is not used, because it
does not remember which jobs have failed or finished.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from zoo.errors import ConfigError
from zoo.sweeps.grid import MOST_JOBS, check_values, expand_grid, read_axes
from zoo.sweeps.jobs import open_sweep
from zoo.sweeps.launchers import launch
from zoo.sweeps.summary import finish

_OPTIONS = ("hydra/launcher", "hydra.launcher", "hydra.sweep.dir", "hydra.sweep.max_jobs")


def run(overrides: Sequence[str]) -> int:
    """Runs or continues the sweep of these overrides; 0 if every job finished, 1 if one failed."""
    own, options = hydra_options(overrides)
    if options.get("hydra/sweeper") == "optuna":
        from zoo.sweeps import search  # Optuna and torch take seconds to import

        return search.run(list(overrides), own, options)
    unknown = [
        key for key in options if key not in _OPTIONS and not key.startswith(("hydra/launcher", "hydra.launcher"))
    ]
    if unknown:
        known = "hydra/launcher=, hydra.launcher.*, hydra/sweeper=optuna, hydra.sweep.dir= and hydra.sweep.max_jobs="
        raise ConfigError(f"{unknown[0]}: a sweep takes {known}")
    if options.get("hydra.sweep.dir") == "":
        raise ConfigError("hydra.sweep.dir is empty (an unset shell variable?)")
    jobs = expand_grid(own, most=_most_jobs(options))
    check_values(read_axes(own))  # a mistake in the last job is found before the first one starts
    launched = options.get("hydra/launcher", "basic") != "basic"
    with open_sweep(list(overrides), jobs, options.get("hydra.sweep.dir")) as sweep:
        print(f"sweep {sweep.folder}: {len(sweep.jobs)} jobs, {len(sweep.list_pending())} to run", file=sys.stderr)
        if launched:
            launch(
                sweep, [override for override in overrides if override.startswith("hydra") and not _is_dir(override)]
            )
        else:
            for number, job in sweep.list_pending():
                sweep.run_job(number, job)
        return finish(sweep)


def _most_jobs(options: Mapping[str, str]) -> int:
    value = options.get("hydra.sweep.max_jobs", str(MOST_JOBS))
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"hydra.sweep.max_jobs={value!r}: write a whole number from 1")
    return int(value)


def hydra_options(overrides: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the overrides of the runs, and those of the sweep itself (`hydra...`)."""
    options = [override for override in overrides if override.startswith("hydra")]
    return [override for override in overrides if override not in options], dict(
        _pair(override) for override in options
    )


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value.strip("'\"")


def _is_dir(override: str) -> bool:
    return override.startswith("hydra.sweep.")
