#!/usr/bin/env bash
# Installs the peers that the benchmarks compare with, beside the project, in the current environment.
set -euo pipefail
cd "$(dirname "$0")/.."
pip install -e ".[bench]" "tqdm" "networkx" "requests"
# DGL's newest wheel for every platform; its dependencies would replace torch
pip install --no-deps "dgl==1.1.3"
