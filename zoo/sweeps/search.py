"""Searches for good options with Optuna.

    python train.py -m hydra/sweeper=optuna model=gat 'optimizer.lr=tag(log, interval(1e-4, 0.1))'

Options to search are written as for Optuna's plugin for Hydra: `interval(a, b)`, `int(interval(a, b))`,
`range(a, b, step)`, `choice(a, b)`, `a,b`. The plugin itself is not used, because it needs Optuna 2 and cannot prune.
A trial is a job of a sweep: a fresh process with its own run directory, which the pruner may stop early. Trials are
compared by a validation metric. The same command continues an interrupted search with the trials that are left.
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

from zoo.config import compose
from zoo.errors import ConfigError, did_you_mean
from zoo.sweeps.jobs import Job, Sweep
from zoo.sweeps.search_space import choose_objective, example, parse_settings, parse_space
from zoo.sweeps.summary import SUMMARY, select_headline, write_csv
from zoo.sweeps.sweep_dir import open_sweep
from zoo.training.callbacks.pruning import TRIAL


def run(overrides: list[str], own: Sequence[str], given: Mapping[str, str]) -> int:
    """Runs or continues the search; 0 if a trial was completed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise ConfigError('hydra/sweeper=optuna needs its package: pip install "attention-zoo[sweep]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    settings = parse_settings(given)
    fixed, space = parse_space(own)
    count = int(settings["n_trials"])

    def is_open(jobs: list[Job]) -> bool:
        return len(jobs) < count or any(job.status in ("started", "stopped") for job in jobs)

    like = [*fixed, *(f"{key}={example(each)}" for key, each in space.items())]
    settings |= choose_objective(settings, compose.compose(like))
    with open_sweep(overrides, [], given.get("hydra.sweep.dir"), like=like, is_open=is_open) as sweep:
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
                _run_trial(sweep, study, number, job, settings)
        while len(sweep.jobs) < count:
            trial = study.ask(space)
            chosen = {key: str(value) for key, value in trial.params.items()}
            job = Job([*fixed, *(f"{key}={value}" for key, value in chosen.items())], chosen)
            sweep.jobs.append(job)
            _run_trial(sweep, study, len(sweep.jobs) - 1, job, settings)
        return _finish(sweep, study, settings)


def _run_trial(sweep: Sweep, study: Any, number: int, job: Job, settings: Mapping[str, str]) -> None:
    """Runs one trial, from the beginning or from its last checkpoint."""
    import optuna

    frozen = study.trials[number]
    trial = optuna.trial.Trial(study, frozen._trial_id)
    with _answer_reports(trial, settings["metric"]) as (told, verdict):
        code = sweep.run_job(number, job, more={TRIAL: told}, of=int(settings["n_trials"]))
    found = job.metrics()
    if code or found is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    elif settings["metric"] not in found:
        known = [name for name in found if name.startswith("val/")]
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise ConfigError(f"hydra.sweeper.metric={settings['metric']}. {did_you_mean(settings['metric'], known)}")
    elif verdict:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, found[settings["metric"]])


@contextmanager
def _answer_reports(trial: Any, metric: str) -> Iterator[tuple[str, list[bool]]]:
    """Answers the run's reports; yields the address for them, and a list that is not empty once the run was pruned."""
    key = secrets.token_bytes(16)
    verdict: list[bool] = []

    def answer() -> None:
        try:
            with listener.accept() as line:
                while True:
                    step, value = line.recv()
                    if step >= len(trial.study.trials[trial.number].intermediate_values):  # a resumed run repeats some
                        trial.report(value, step)
                    stop = bool(trial.should_prune())
                    if stop and not verdict:
                        verdict.append(True)
                    line.send(stop)
        except (EOFError, OSError):  # the run has ended, or never reported
            return

    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield json.dumps({"port": listener.address[1], "key": key.hex(), "metric": metric}), verdict


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
    found = best.metrics() or {}
    figures = {name: found[name] for name in select_headline(best.overrides, list(found))}
    print(f"best {settings['metric']} {study.best_value:.4f}: {' '.join(f'{k}={v}' for k, v in best.chosen.items())}")
    print("  " + "  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    print(f"{sweep.folder}: sweep.yaml, summary.csv, study.log; the best run: {best.run_dir}")
    return 0
