"""One of the processes that `zoo.training.launch` starts: `python -m zoo.training.worker config.yaml PID`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from zoo import memory
from zoo.errors import InterruptedRunError, ZooError
from zoo.io import read_yaml
from zoo.processes import end_with_parent, wait_for_parent
from zoo.training import run
from zoo.training.run_config import RunConfig
from zoo.training.run_errors import write_error


def main(path: str, launcher: int) -> int:
    """Trains as one rank of the run with this config.yaml, while its launcher lives; returns the exit code."""
    end_with_parent(lambda: wait_for_parent(launcher), signal.SIGTERM)
    config = RunConfig(read_yaml(Path(path)))
    try:
        run.train(config)
    except ZooError as error:
        write_error(error)
        return 130 if isinstance(error, InterruptedRunError) else 2
    except Exception as error:
        if memory.is_out_of_memory(error):
            write_error(memory.explain(error, memory.advise(config.data)))
            return 2
        write_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
