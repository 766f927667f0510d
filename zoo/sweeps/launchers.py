"""Runs the jobs of a sweep by one of Hydra's launchers (`hydra/launcher=joblib`), several at once or on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from zoo import processes
from zoo.config import plugins
from zoo.errors import ConfigError, InterruptedRunError, get_reason, quote_value
from zoo.sweeps.jobs import INTERRUPTED, Sweep


class _NoCallbacks:
    """The callbacks of Hydra that a launcher calls."""

    def on_job_start(self, **_: Any) -> None:
        """Does nothing."""

    def on_job_end(self, **_: Any) -> None:
        """Does nothing."""


def launch(sweep: Sweep, options: Sequence[str]) -> None:
    """Runs the open jobs by one of Hydra's launchers. Each of its tasks starts a fresh process and waits for it."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext, RunMode
    from omegaconf.errors import OmegaConfBaseException

    for _, job in sweep.list_pending():
        job.wait()
    waiting = [job for _, job in sweep.list_pending()]
    if not waiting:
        return
    jobs = [job.arguments()[1:] for job in waiting]
    overrides = [*waiting[0].overrides, *options, *plugins.make_search_path()]
    overrides.append(f"hydra.sweep.dir={quote_value(str(sweep.folder))}")
    try:
        with initialize_config_dir(str(plugins.CONF), version_base=None):
            loader = GlobalHydra.instance().config_loader()
            composed = loader.load_configuration("train", overrides, RunMode.MULTIRUN)
            context = HydraContext(config_loader=loader, callbacks=_NoCallbacks())  # type: ignore[arg-type]
            launcher = Plugins.instance().instantiate_launcher(
                hydra_context=context, task_function=_run_job, config=composed
            )
    except (HydraException, OmegaConfBaseException) as error:
        extra = 'launchers other than basic are plugins: pip install "attention-zoo[sweep]"'
        raise ConfigError(f"{get_reason(error)} ({extra})") from error
    for job, result in zip(waiting, launcher.launch(jobs, 0), strict=True):
        job.code = _get_exit_code(result)
    if any(job.code == INTERRUPTED for job in waiting):
        raise InterruptedRunError(f"the sweep was stopped.\nContinue with the same command: {sweep.command()}")


def _run_job(_: Any) -> int:
    """Runs a job, as the task that a launcher starts in any process or on any node."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    arguments = OmegaConf.to_container(HydraConfig.get().overrides.task)
    assert isinstance(arguments, list)
    return processes.run(processes.make_command("train", *map(str, arguments)))


def _get_exit_code(result: Any) -> int:
    try:
        return int(result.return_value)
    except Exception as error:  # an error of the launcher or its cluster
        print(f"zoo: a job could not be launched: {error}", file=sys.stderr)
        return 1
