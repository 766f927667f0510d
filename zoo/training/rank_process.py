"""One of the processes that `zoo.training.launch` starts: `python -m zoo.training.rank_process config.yaml PID`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from zoo import shortage
from zoo.errors import InterruptedRunError, ZooError
from zoo.orphans import end_with_parent, wait_for_parent
from zoo.small_files import read_yaml
from zoo.training import last_words, run


def main(path: str, launcher: int) -> int:
    """Trains as one rank of the run with this config.yaml, while its launcher lives; returns the exit code."""
    end_with_parent(lambda: wait_for_parent(launcher), signal.SIGTERM)
    config = read_yaml(Path(path))
    try:
        run.train(config)
    except ZooError as error:
        last_words.leave(error)
        return 130 if isinstance(error, InterruptedRunError) else 2
    except Exception as error:
        if shortage.is_shortage(error):
            last_words.leave(shortage.explain(error, shortage.advise(config["data"])))
            return 2
        last_words.leave(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
