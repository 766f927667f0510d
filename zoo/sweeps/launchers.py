"""Runs the jobs of a sweep by one of Hydra's launchers (`hydra/launcher=joblib`), several at once or on a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo import processes
from zoo.config import plugins
from zoo.errors import ConfigError, InterruptedRunError, quote_value
from zoo.io.atomic import write_text
from zoo.sweeps.jobs import INTERRUPTED, Job, Sweep
from zoo.sweeps.sweep_lock import job_lock


def launch(sweep: Sweep, options: Sequence[str]) -> None:
    """Runs the open jobs by one of Hydra's launchers. Each of its tasks starts a fresh process and waits for it."""
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext, RunMode
    from omegaconf.errors import OmegaConfBaseException

    numbers = [number for number, _ in sweep.list_pending()]
    waiting = [sweep.jobs[number] for number in numbers]
    if not waiting:
        return
    for number in numbers:
        sweep.prepare(number)
    GlobalHydra.instance().clear()
    try:
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(plugins.CONF)))
        composed = hydra.compose_config(
            config_name="train",
            overrides=[
                *waiting[0].overrides,
                *options,
                *plugins.make_search_path(),
                f"hydra.sweep.dir={quote_value(str(sweep.folder))}",
            ],
            run_mode=RunMode.MULTIRUN,
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(composed))
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_run_job, config=composed
        )
    except (HydraException, OmegaConfBaseException) as error:
        for job in waiting:
            with suppress(OSError):
                Path(job.run_dir or "").rmdir()
                Path(job.run_dir or "").parent.rmdir()
            job.run_dir, job.status = None, "waiting"
        sweep.write()
        extra = 'launchers other than basic are plugins: pip install "attention-zoo[sweep]"'
        raise ConfigError(f"{str(error).strip().splitlines()[0]} ({extra})") from error
    finally:
        GlobalHydra.instance().clear()
    _write_job_files(sweep, waiting)
    jobs = [[each for each in job.arguments()[1:] if not each.startswith("resume=")] for job in waiting]
    codes = [_code(result) for result in launcher.launch(jobs, 0)]
    for number, code in zip(numbers, codes, strict=True):
        sweep.mark_done(number, code)
    if INTERRUPTED in codes:
        raise InterruptedRunError(f"the sweep was stopped.\nContinue with the same command: {sweep.command()}")


def _write_job_files(sweep: Sweep, waiting: Sequence[Job]) -> None:
    """Writes the arguments of the jobs to files, because Hydra passes a task its composed configuration alone."""
    folder = sweep.folder / "jobs"
    folder.mkdir(exist_ok=True)
    for number, job in enumerate(waiting):
        write_text(folder / f"{number}.json", json.dumps(job.arguments()))


def _run_job(_: Any) -> int:
    """The task that a launcher runs, in any process or on any node."""
    from hydra.core.hydra_config import HydraConfig

    found = HydraConfig.get()
    folder = Path(found.sweep.dir)
    arguments = json.loads((folder / "jobs" / f"{found.job.num}.json").read_text(encoding="utf-8"))
    with job_lock(folder) as handle:
        return processes.run(processes.make_command(*arguments), pass_fds=[handle])


def _code(result: Any) -> int:
    try:
        return int(result.return_value)
    except Exception as error:  # an error of the launcher or its cluster
        print(f"zoo: a job could not be launched: {error}", file=sys.stderr)
        return 1
