"""One of the processes that `zoo.training.launch` starts: `python -m zoo.training.rank_process config.yaml`."""

from __future__ import annotations

import ctypes
import signal
import sys
from pathlib import Path

from zoo.errors import InterruptedRunError, ZooError
from zoo.small_files import read_yaml
from zoo.training import last_words, run


def main(path: str) -> int:
    """Trains as one rank of the run with this config.yaml; returns the exit code."""
    _end_with_parent()
    try:
        run.train(read_yaml(Path(path)))
    except ZooError as error:
        last_words.leave(error)
        return 130 if isinstance(error, InterruptedRunError) else 2
    except Exception as error:
        last_words.leave(error)
        return 1
    return 0


def _end_with_parent() -> None:
    """Asks Linux to stop this process when its launcher is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
