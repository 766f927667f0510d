"""Searches for good options with Optuna.

    python train.py -m hydra/sweeper=optuna model=gat 'optimizer.lr=tag(log, interval(1e-4, 0.1))'

Options to search are written as for Optuna's plugin for Hydra: `interval(a, b)`, `int(interval(a, b))`,
`range(a, b, step)`, `choice(a, b)`, `a,b`. The plugin itself is not used, because it needs Optuna 2 and cannot prune.
A trial is a job of a sweep: a fresh process with its own run directory, which reports to Optuna's journal and which the
pruner may stop early. Trials are compared by a validation metric. The same command continues an interrupted search with
the trials that are left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.config import compose
from zoo.config.instantiate import resolve_target
from zoo.errors import ConfigError, did_you_mean
from zoo.io import write_csv
from zoo.sweeps.grid import parse_overrides
from zoo.sweeps.jobs import SUMMARY, Job, Sweep, open_sweep
from zoo.training.callbacks.pruning import open_study
from zoo.training.run_config import TRIAL

DEFAULTS = {"n_trials": "20", "metric": "", "direction": "", "pruner": "median", "seed": "0"}
"""Options `hydra.sweeper.*` with their defaults. Without a metric, the model's primary one is taken."""
_DIRECTIONS = {"max": "maximize", "min": "minimize"}


_JOURNAL = "study.log"


def run(overrides: list[str], own: Sequence[str], options: Mapping[str, str]) -> int:
    """Runs or continues the search; 0 if a trial was completed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError('hydra/sweeper=optuna needs its package: pip install "attention-zoo[sweep]"') from error
    settings = parse_settings(options)
    fixed, space = parse_space(own)
    count = int(settings["n_trials"])
    like = [*fixed, *(f"{key}={example(distribution)}" for key, distribution in space.items())]
    settings |= choose_objective(settings, compose.compose(like))

    def open_search(sweep: Sweep) -> Any:
        study = open_study(str(sweep.folder / _JOURNAL), settings["pruner"], settings["direction"])
        study.sampler = optuna.samplers.TPESampler(seed=int(settings["seed"]) + len(study.trials))
        return study

    def is_open(sweep: Sweep) -> bool:
        trials = open_search(sweep).trials
        return len(trials) < count or any(not trial.state.is_finished() for trial in trials)

    with open_sweep(overrides, [], options.get("hydra.sweep.dir"), like=like, is_open=is_open) as sweep:
        study = open_search(sweep)
        print(f"search {sweep.folder}: {count} trials, {len(study.trials)} begun", file=sys.stderr)
        for number in range(max(count, len(study.trials))):
            trial = study.trials[number] if number < len(study.trials) else study.ask(space)
            chosen = {key: str(value) for key, value in trial.params.items()}
            job = Job([*fixed, *(f"{key}={value}" for key, value in chosen.items())], chosen)
            sweep.name_run_dir(job, number)
            sweep.jobs.append(job)
            if not study.trials[number].state.is_finished():
                _run_trial(sweep, study, number, job, settings)
        return _finish(sweep, study, settings)


def _run_trial(sweep: Sweep, study: Any, number: int, job: Job, settings: Mapping[str, str]) -> None:
    """Runs one trial, from the beginning or from its last checkpoint."""
    import optuna

    trial = optuna.trial.Trial(study, study.trials[number]._trial_id)
    keys = ("metric", "pruner", "direction")
    told = {"journal": str(sweep.folder / _JOURNAL), "trial": number} | {key: settings[key] for key in keys}
    code = sweep.run_job(number, job, more={TRIAL: json.dumps(told)}, of=int(settings["n_trials"]))
    metrics = job.metrics()
    if code or metrics is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    elif settings["metric"] not in metrics:
        known = [name for name in metrics if name.startswith("val/")]
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise ConfigError(f"hydra.sweeper.metric={settings['metric']}. {did_you_mean(settings['metric'], known)}")
    elif study.pruner.prune(study, study.trials[number]):  # with what the run has reported
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, metrics[settings["metric"]])


def _finish(sweep: Sweep, study: Any, settings: Mapping[str, str]) -> int:
    """Writes summary.csv, a row for each trial, and prints the best trial with its test metrics."""
    rows = []
    for trial, job in zip(study.trials, sweep.jobs, strict=False):
        value = (job.metrics() or {}).get(settings["metric"])
        state = trial.state.name.lower()
        rows.append(
            {"trial": trial.number, "state": state, settings["metric"]: value, **job.chosen, "run": job.run_dir}
        )
    write_csv(sweep.folder / SUMMARY, rows)
    complete = [row for row in rows if row["state"] == "complete"]
    print(f"{len(rows)} trials: {len(complete)} complete, {sum(r['state'] == 'pruned' for r in rows)} stopped early")
    if not complete:
        print("zoo: no trial was completed", file=sys.stderr)
        return 1
    best = sweep.jobs[study.best_trial.number]
    metrics = best.metrics() or {}
    figures = {name: metrics[name] for name in best.select_headline(list(metrics))}
    print(f"best {settings['metric']} {study.best_value:.4f}: {' '.join(f'{k}={v}' for k, v in best.chosen.items())}")
    print("  " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    print(f"{sweep.folder}: sweep.yaml, summary.csv, study.log; the best run: {best.run_dir}")
    return 0


def parse_settings(options: Mapping[str, str]) -> dict[str, str]:
    settings = dict(DEFAULTS)
    for key, value in options.items():
        name = key.removeprefix("hydra.sweeper.")
        if key in ("hydra/sweeper", "hydra.sweep.dir"):
            continue
        if not key.startswith("hydra.sweeper.") or name not in DEFAULTS:
            raise ConfigError(
                f"the search has no option {key!r}. {did_you_mean(key, [f'hydra.sweeper.{n}' for n in DEFAULTS])}"
            )
        settings[name] = value
    for name in ("n_trials", "seed"):
        if not settings[name].isdigit():
            raise ConfigError(f"hydra.sweeper.{name}={settings[name]}: write a whole number")
    for name, choices in (("direction", ("", *_DIRECTIONS.values())), ("pruner", ("median", "none"))):
        if settings[name] not in choices:
            raise ConfigError(f"hydra.sweeper.{name}={settings[name]}: write {' or '.join(filter(None, choices))}")
    if settings["metric"].startswith(("test/", "truth/")):
        raise ConfigError(f"hydra.sweeper.metric={settings['metric']}: the test set has no say in a choice")
    return settings


def choose_objective(settings: Mapping[str, str], composed: Mapping[str, Any]) -> dict[str, str]:
    """Returns the metric by which trials are compared, and its direction."""
    task = resolve_target(composed["model"]["_target_"], "model", is_root=True)
    metric = settings["metric"] or task.primary
    direction = settings["direction"] or _DIRECTIONS.get(task.mode_of(metric) or "")
    if not direction:
        raise ConfigError(
            f"hydra.sweeper.metric={metric}: the model does not say whether more or less of it is better; write "
            f"hydra.sweeper.direction=maximize or minimize, or take its primary metric, {task.primary}"
        )
    return {"metric": metric, "direction": direction}


def parse_space(own: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Reads the overrides that all trials share, and the distribution of each option that is searched."""
    parsed = parse_overrides(own)
    space = {override.get_key_element(): _distribution(override) for override in parsed if override.is_sweep_override()}
    if not space:
        raise ConfigError("nothing to search: write an option as interval(a, b), range(a, b) or choice(a, b)")
    return [str(override.input_line) for override in parsed if not override.is_sweep_override()], space


def _distribution(override: Any) -> Any:
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    if isinstance(value, IntervalSweep):
        kind = IntDistribution if isinstance(value.start, int) and isinstance(value.end, int) else FloatDistribution
        return kind(value.start, value.end, log="log" in value.tags)
    if isinstance(value, RangeSweep):
        values = list(override.sweep_iterator())
        if all(isinstance(value, int) for value in values) and len(values) > 1:
            return IntDistribution(min(values), max(values), step=abs(values[1] - values[0]))
        return CategoricalDistribution(values)
    return CategoricalDistribution(list(override.sweep_string_iterator()))


def example(distribution: Any) -> Any:
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low
