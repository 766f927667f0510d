"""A search for good options.

    python train.py -m hydra/sweeper=optuna model=gat 'optimizer.lr=tag(log, interval(1e-4, 0.1))'

Optuna itself, not its plugin for Hydra, which holds it to a version below 3 and cannot stop a hopeless trial. What is
searched is written as there: `interval(a, b)`, `int(interval(a, b))`, `range(a, b, step)`, `choice(a, b)`, `a,b`.
A trial is a job of a sweep: a fresh process with a run directory of its own, stopped early where the pruner says so. It
is chosen by validation; the same command continues an interrupted search with the trials that are left.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Listener
from typing import Any

from zoo.composing import config
from zoo.composing.build import resolve
from zoo.errors import ConfigError, nearest
from zoo.sweeps.sweep import Sweep, headlined, opened, write_csv
from zoo.sweeps.sweep_directory import Job
from zoo.training.callbacks.reporting import TRIAL

DEFAULTS = {"n_trials": "20", "metric": "", "direction": "", "pruner": "median", "seed": "0"}
"""hydra.sweeper.*: how many trials; by what and whether more of it is better, by default the model's primary metric;
median or none; of the sampler."""
_DIRECTIONS = {"max": "maximize", "min": "minimize"}


def run(overrides: list[str], own: Sequence[str], given: Mapping[str, str]) -> int:
    """Runs or continues the search; 0 if a trial was completed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError('hydra/sweeper=optuna needs its package: pip install "attention-zoo[sweep]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings = _settings(given)
    fixed, space = _space(own)
    count = int(settings["n_trials"])

    def is_open(jobs: list[Job]) -> bool:
        return len(jobs) < count or any(job.status in ("started", "stopped") for job in jobs)

    like = [*fixed, *(f"{key}={_example(each)}" for key, each in space.items())]
    settings |= _judged(settings, config.compose(like))
    with opened(overrides, [], given.get("hydra.sweep.dir"), like=like, is_open=is_open) as sweep:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(sweep.folder / "study.log"))),
            study_name="search",
            direction=settings["direction"],
            sampler=optuna.samplers.TPESampler(seed=int(settings["seed"]) + len(sweep.jobs)),
            pruner=optuna.pruners.NopPruner() if settings["pruner"] == "none" else optuna.pruners.MedianPruner(4, 10),
            load_if_exists=True,
        )
        print(f"search {sweep.folder}: {count} trials, {len(sweep.jobs)} begun", file=sys.stderr)
        for number, job in enumerate(sweep.jobs):
            if job.status in ("started", "stopped"):
                _try(sweep, study, number, job, settings)
        while len(sweep.jobs) < count:
            trial = study.ask(space)
            chosen = {key: str(value) for key, value in trial.params.items()}
            job = Job([*fixed, *(f"{key}={value}" for key, value in chosen.items())], chosen)
            sweep.jobs.append(job)
            _try(sweep, study, len(sweep.jobs) - 1, job, settings)
        return _finish(sweep, study, settings)


def _try(sweep: Sweep, study: Any, number: int, job: Job, settings: Mapping[str, str]) -> None:
    """One trial, from the beginning or from where it was stopped."""
    import optuna

    frozen = study.trials[number]
    trial = optuna.trial.Trial(study, frozen._trial_id)
    with _listening(trial, settings["metric"]) as (told, verdict):
        code = sweep.run_job(number, job, more={TRIAL: told}, of=int(settings["n_trials"]))
    found = job.metrics()
    if code or found is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    elif settings["metric"] not in found:
        known = [name for name in found if name.startswith("val/")]
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise ConfigError(f"hydra.sweeper.metric={settings['metric']}. {nearest(settings['metric'], known)}")
    elif verdict:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, found[settings["metric"]])


@contextmanager
def _listening(trial: Any, metric: str) -> Iterator[tuple[str, list[bool]]]:
    """Answers the run's reports; the list is not empty once it was told to stop."""
    key = secrets.token_bytes(16)
    verdict: list[bool] = []

    def answer() -> None:
        try:
            with listener.accept() as line:
                while True:
                    step, value = line.recv()
                    if step >= len(trial.study.trials[trial.number].intermediate_values):  # not again after a resume
                        trial.report(value, step)
                    stop = bool(trial.should_prune())
                    if stop and not verdict:
                        verdict.append(True)
                    line.send(stop)
        except (EOFError, OSError):  # the run has ended, or never spoke
            return

    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield json.dumps({"port": listener.address[1], "key": key.hex(), "metric": metric}), verdict


def _finish(sweep: Sweep, study: Any, settings: Mapping[str, str]) -> int:
    """summary.csv has a row for each trial; the best is named with its figures on the test set."""
    rows = []
    for trial, job in zip(study.trials, sweep.jobs, strict=False):
        value = (job.metrics() or {}).get(settings["metric"])
        state = trial.state.name.lower()
        rows.append(
            {"trial": trial.number, "state": state, settings["metric"]: value, **job.chosen, "run": job.run_dir}
        )
    write_csv(sweep.folder / "summary.csv", rows)
    complete = [row for row in rows if row["state"] == "complete"]
    print(f"{len(rows)} trials: {len(complete)} complete, {sum(r['state'] == 'pruned' for r in rows)} stopped early")
    if not complete:
        print("zoo: no trial was completed", file=sys.stderr)
        return 1
    best = sweep.jobs[study.best_trial.number]
    found = best.metrics() or {}
    figures = {name: found[name] for name in headlined(best.overrides, list(found))}
    print(f"best {settings['metric']} {study.best_value:.4f}: {' '.join(f'{k}={v}' for k, v in best.chosen.items())}")
    print("  " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    print(f"{sweep.folder}: sweep.yaml, summary.csv, study.log; the best run: {best.run_dir}")
    return 0


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    settings = dict(DEFAULTS)
    for key, value in given.items():
        name = key.removeprefix("hydra.sweeper.")
        if key in ("hydra/sweeper", "hydra.sweep.dir"):
            continue
        if not key.startswith("hydra.sweeper.") or name not in DEFAULTS:
            raise ConfigError(
                f"the search has no option {key!r}. {nearest(key, [f'hydra.sweeper.{n}' for n in DEFAULTS])}"
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


def _judged(settings: Mapping[str, str], composed: Mapping[str, Any]) -> dict[str, str]:
    """By which metric trials are compared, and in which direction."""
    task = resolve(composed["model"]["_target_"], "model", is_root=True)
    metric = settings["metric"] or task.primary
    direction = settings["direction"] or _DIRECTIONS.get(task.mode_of(metric) or "")
    if not direction:
        raise ConfigError(
            f"hydra.sweeper.metric={metric}: the model does not say whether more or less of it is better; write "
            f"hydra.sweeper.direction=maximize or minimize, or take its primary metric, {task.primary}"
        )
    return {"metric": metric, "direction": direction}


def _space(own: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The overrides that every trial has, and what differs."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(own))
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    space = {each.get_key_element(): _distribution(each) for each in parsed if each.is_sweep_override()}
    if not space:
        raise ConfigError("nothing to search: write an option as interval(a, b), range(a, b) or choice(a, b)")
    return [str(each.input_line) for each in parsed if not each.is_sweep_override()], space


def _distribution(override: Any) -> Any:
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    if isinstance(value, IntervalSweep):
        kind = IntDistribution if isinstance(value.start, int) and isinstance(value.end, int) else FloatDistribution
        return kind(value.start, value.end, log="log" in value.tags)
    if isinstance(value, RangeSweep):
        found = list(override.sweep_iterator())
        if all(isinstance(each, int) for each in found) and len(found) > 1:
            return IntDistribution(min(found), max(found), step=abs(found[1] - found[0]))
        return CategoricalDistribution(found)
    return CategoricalDistribution(list(override.sweep_string_iterator()))


def _example(distribution: Any) -> Any:
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low
