"""Trains a model: `python train.py model=gat`. The same as `zoo train model=gat`."""

import sys

from zoo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
