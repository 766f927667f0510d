"""`python -m zoo` is the command `zoo`. Sweeps use it to start runs with the interpreter that runs them."""

import sys

from zoo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
