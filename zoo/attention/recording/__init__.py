"""Observation: taps at attention sites, recorders, and views of long maps."""
