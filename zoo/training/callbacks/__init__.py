"""Callbacks of a run: each watches training for one purpose, such as keeping weights or stopping at Ctrl-C."""
