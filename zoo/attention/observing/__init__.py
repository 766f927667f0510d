"""Observation: taps, records, views of long maps."""
