"""`python -m zoo` is `zoo`: how a sweep and a launcher start a process with the interpreter that runs them."""

import sys

from zoo.commandline.cli import main

if __name__ == "__main__":
    sys.exit(main())
