"""Makes the tables of speech in docs/results/speech.md."""

from __future__ import annotations

from collections.abc import Iterator

from measured import clock_of, of_runs, on_processor, read_runs, spread, with_runs

PLANTED = {
    "las-planted_tones": "location-aware",
    "las-planted_tones-uniform": "uniform (control)",
    "las_monotonic-planted_tones": "monotonic",
    "las_mocha-planted_tones": "MoChA",
}
STRINGS = {
    "las_fsdd_strings": "location-aware",
    "las_fsdd_strings-additive": "additive",
    "las_fsdd_strings_monotonic": "monotonic",
    "las_fsdd_strings_mocha": "MoChA",
    "las_fsdd_strings-left_out": "location-aware, one speaker left out",
}
LONG = {
    "long-speech-location": "location-aware",
    "long-speech-location-greedy": "location-aware, greedy search",
    "long-speech-additive": "additive",
    "long-speech-monotonic": "monotonic",
    "long-speech-mocha": "MoChA",
}
WINDOWS = {
    "long-speech-val-all-alpha": "all places, `alpha` .6",
    "long-speech-val-all": "all places",
    "long-speech-val-all-greedy": "all places, greedy search",
    "long-speech-val-ahead-20": "10 behind, 20 ahead",
    "long-speech-val": "10 behind, 30 ahead",
    "long-speech-val-greedy": "10 behind, 30 ahead, greedy search",
    "long-speech-val-ahead-40": "10 behind, 40 ahead",
}
STREAMED = {
    "streaming-monotonic": "monotonic, planted tones",
    "streaming-mocha": "MoChA, planted tones",
    "streaming-monotonic-fsdd_strings": "monotonic, strings of FSDD",
    "streaming-mocha-fsdd_strings": "MoChA, strings of FSDD",
}
_NOTHING = "Not measured yet."


def planted() -> Iterator[str]:
    """Makes a table of error rates and of where attention is, on planted tones."""
    rates = {"test CER": "test/cer", "WER": "test/wer"}
    truth = {"within 2 frames": "truth/within_2_frames", "distance": "truth/distance", "pointing": "truth/pointing"}
    return of_runs(PLANTED, {**rates, **truth, "on silence": "truth/silence", "start, ms": "truth/start_ms"})


def strings() -> Iterator[str]:
    """Makes a table of error rates and of the boundaries of digits, on strings of FSDD."""
    if not any(with_runs(STRINGS)):
        yield _NOTHING
        return
    rates = {"test WER": "test/wer", "from": "test/wer_low", "to": "test/wer_high"}
    truth = {"pointing": "truth/pointing", "start, ms": "truth/start_ms", "end, ms": "truth/end_ms"}
    yield from of_runs(STRINGS, {**rates, **truth})


def longer() -> Iterator[str]:
    """Makes a table of word error by the number of digits, with its deletions and insertions."""
    return _by_digits(LONG, "test", "test WER (deletions, insertions) at")


def windows() -> Iterator[str]:
    """Makes a table of word error on validation strings by the number of digits, with each seed's."""
    return _by_digits(WINDOWS, "val", "validation WER of seeds 0, 1, 2 at")


def _by_digits(experiments: dict[str, str], split: str, title: str) -> Iterator[str]:
    found = {name: [run["lengths"] for run in read_runs(each)] for each, name in with_runs(experiments)}
    if not found:
        yield _NOTHING
        return
    counts = [f"{row['digits']} digits" for row in next(iter(found.values()))[0]]
    yield f"| {title} | {' | '.join(counts)} |"
    yield "|---" * (len(counts) + 1) + "|"
    for name, runs in found.items():
        cells = [", ".join(_error(row, split, len(runs) == 1) for row in rows) for rows in zip(*runs, strict=True)]
        yield f"| {' | '.join([name, *cells])} |"


def _error(row: dict[str, float], split: str, with_parts: bool) -> str:
    error = f"{row[f'{split}/wer']:.3f}"
    parts = (f"{row[f'{split}/wer_{part}']:.3f}" for part in ("deletions", "insertions"))
    return f"{error} ({', '.join(parts)})" if with_parts else error


def streamed() -> Iterator[str]:
    """Makes a table of texts that are written while recordings arrive."""
    found = {name: read_runs(each) for each, name in with_runs(STREAMED)}
    if not found:
        yield _NOTHING
        return
    yield "| model | same text as greedy search | mean wait, frames | longest wait | speed, times real time | seeds |"
    yield "|---|---|---|---|---|---|"
    for name, runs in found.items():
        for run in runs:
            same = f"{round(run['same_as_greedy'] * run['recordings'])} of {run['recordings']}"
            waits = f"{run['mean_wait']:.1f} | {run['longest_wait']}"
            yield f"| {name} | {same} | {waits} | {run['times_real_time']:.0f} | {run['seed']} |"
    yield ""
    yield f"`{run['command']}`: sound arrives in blocks of 0.1 s, on one thread."


def few_recordings() -> Iterator[str]:
    """Makes the table of 35 recordings of one's own: tokens, CTC and the number of steps."""
    if not any(with_runs({"few-recordings": ""})):
        yield _NOTHING
        return
    runs = read_runs("few-recordings")
    (corpus,) = (name for name, value in runs[0].items() if isinstance(value, dict) and "characters" in value)
    yield "| options | validation WER | test WER |"
    yield "|---|---|---|"
    for name in runs[0][corpus]:
        cells = [spread([run[corpus][name][metric] for run in runs]) for metric in ("val/wer", "test/wer")]
        yield f"| {name.replace('defaults', 'words, CTC')} | {' | '.join(cells)} |"  # which were the defaults then
    yield ""
    yield f"`{runs[0]['command']}`, seeds {', '.join(str(run['seed']) for run in runs)}."


def benchmark() -> Iterator[str]:
    """Makes the table of training and of both searches against SpeechBrain."""
    if not any(with_runs({"benchmark-speech": ""})):
        yield _NOTHING
        return
    (found,) = read_runs("benchmark-speech")
    clock = clock_of(found)
    columns = [f"training step, ms of {clock}", "greedy, recordings/s", "beam 5, recordings/s", "peak memory, MiB"]
    by_frames = found.get("by_frames", {})
    if by_frames:
        lengths = list(next(iter(by_frames.values()))["step_ms"])
        columns += [f"step at {' / '.join(lengths)} frames, ms", "exponent"]
    yield f"| | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for name, milliseconds in found["step_ms"].items():
        cells = [
            name,
            _beside(f"{milliseconds:.0f}", found["ratio"].get(name)),
            *(
                _beside(f"{found[f'{search}_per_second'][name]:.1f}", found[f"{search}_ratio"].get(name))
                for search in ("greedy", "beam")
            ),
            f"{found['peak_mib'][name]:.0f}",
        ]
        if name in by_frames:
            of_lengths = by_frames[name]
            cells += [" / ".join(f"{value:.0f}" for value in of_lengths["step_ms"].values())]
            cells += [f"{of_lengths['exponents']['step_ms']:.2f}"]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"In brackets: time of SpeechBrain / time of ours. `{found['command']}`{on_processor(found)}."


def _beside(value: str, ratio: float | None) -> str:
    return value if ratio is None else f"{value} ({ratio:.2f})"
