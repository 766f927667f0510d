#!/usr/bin/env bash
# Installs the peers that the benchmarks compare with, beside the project, in the current environment.
# With a folder, RecBole goes there, into an environment of its own: it needs older libraries.
set -euo pipefail
recbole=${1:+$(realpath -m "$1")}
cd "$(dirname "$0")/.."
pip install -e ".[bench]" "tqdm" "networkx" "requests"
# DGL's newest wheel for every platform; its dependencies would replace torch
pip install --no-deps "dgl==1.1.3"
# their newest wheels ask for older libraries; these are all that their networks and searches import
pip install --no-deps "joeynmt==2.3.0" "OpenNMT-py==3.5.1"
pip install --no-deps "speechbrain==1.1.2" "hyperpyyaml==1.2.3" "ruamel.yaml<0.19"
pip install sacremoses sentencepiece subword-nmt configargparse pyonmttok "importlib_metadata<9" wrapt
if [ -n "$recbole" ]; then
    python -m venv "$recbole"
    "$recbole/bin/pip" install "torch>=2.13,<2.15" "setuptools<81" "numpy<2" "pandas<3" "scipy<1.14" "recbole==1.2.1"
fi
