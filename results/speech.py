"""Makes the tables of speech in docs/speech.md."""

from __future__ import annotations

from collections.abc import Iterator

from measured import of_runs

PLANTED = {
    "las-planted_tones": "location-aware",
    "las-planted_tones-uniform": "uniform (control)",
    "las_monotonic": "monotonic",
    "las_mocha": "MoChA",
}


def planted() -> Iterator[str]:
    """Makes a table of error rates and of where attention is, on planted tones."""
    rates = {"test CER": "test/cer", "WER": "test/wer"}
    truth = {"within 2 frames": "truth/within_2_frames", "distance": "truth/distance", "pointing": "truth/pointing"}
    return of_runs(PLANTED, {**rates, **truth, "on silence": "truth/silence", "start, ms": "truth/start_ms"})
