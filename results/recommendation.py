"""Tables of recommendation."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from measured import read_runs, shown_command, spread, with_runs

SESSIONS = {
    "sasrec-planted_sessions": "SASRec, rotary positions",
    "sasrec-planted_sessions-learned": "SASRec, learned positions",
    "sasrec-planted_sessions-uniform": "SASRec, uniform (control)",
    "din-planted_sessions": "DIN",
}
MIXERS = {
    "sasrec-planted_sessions": "softmax",
    "sasrec-planted_sessions-linear": "linear",
    "sasrec-planted_sessions-window": "window of 8",
    "sasrec-planted_sessions-fourier": "fourier",
    "sasrec-planted_sessions-recurrent": "recurrent",
    "sasrec-planted_sessions-convolution": "convolution",
    "sasrec-planted_sessions-state_space": "state_space",
    "sasrec-planted_sessions-uniform": "uniform (control)",
}
ML_1M = {
    "sasrec_ml1m": ("SASRec", ".8245 / .5905", ".2500 / .1341"),
    "sasrec_plus_ml1m": ("SASRec, full softmax", "", ".3152 / .1821"),
    "din_ml1m": ("DIN", "", ""),
}


def sessions() -> Iterator[str]:
    """Hits and truth scores on planted sessions."""
    yield "| model | test HR@1 | popularity | pointing | train - val | parameters | seconds | seeds | command |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(SESSIONS):
        runs = read_runs(experiment)
        cells = [
            name,
            spread([run["test/hr@1"] for run in runs]),
            f"{runs[0]['test/popularity_hr@1']:.3f}",
            spread([run["truth/pointing_accuracy"] for run in runs]),
            f"{statistics.mean(run['train/hr@1'] - run['val/hr@1'] for run in runs if 'val/hr@1' in run):+.3f}",
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f}",
            str(len(runs)),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def mixers() -> Iterator[str]:
    """What stands in attention's place, on the same sessions and epochs."""
    yield "| `attention=` | test HR@1 | HR@10 | NDCG@10 | pointing | parameters |"
    yield "|---|---|---|---|---|---|"
    for experiment, name in with_runs(MIXERS):
        runs = read_runs(experiment)
        pointing = [run["truth/pointing_accuracy"] for run in runs if "truth/pointing_accuracy" in run]
        cells = [name, *(spread([run[f"test/{metric}"] for run in runs]) for metric in ("hr@1", "hr@10", "ndcg@10"))]
        cells += [spread(pointing) if pointing else "no weights", f"{runs[0]['parameters']:,}"]
        yield f"| {' | '.join(cells)} |"


def ml_1m() -> Iterator[str]:
    """Hits and gains on MovieLens-1M, by both protocols."""
    columns = ("HR@10 / NDCG@10 among 100", "published", "of all items", "published", "coverage@10", "epochs", "seeds")
    yield f"| model | {' | '.join(columns)} | command |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs({key: title for key, (title, *_) in ML_1M.items()}):
        runs = read_runs(experiment)
        is_sampled = "sampled" in runs[0]["protocol"]
        pairs = [
            " / ".join(spread([run[f"test/{prefix}{metric}"] for run in runs], 4) for metric in ("hr@10", "ndcg@10"))
            if f"test/{prefix}hr@10" in runs[0]
            else ""
            for prefix in ("", "full_")
        ]
        sampled, full = pairs if is_sampled else ("", pairs[0])
        _, published, published_full = ML_1M[experiment]
        covered = [run["test/coverage@10"] for run in runs if "test/coverage@10" in run]
        cells = [name, sampled, published, full, published_full, spread(covered) if covered else ""]
        cells += [f"{statistics.mean(run['epochs'] for run in runs):.0f}"]
        cells += [str(len(runs))]
        yield f"| {' | '.join(cells)} | `{shown_command(runs[0])}` |"


def benchmark() -> Iterator[str]:
    """Against padded batches and RecBole."""
    (found,) = read_runs("benchmark-recommendation")
    yield "| | ours | peer | (peer / ours) |"
    yield "|---|---|---|---|"
    for workload, measured in found["padded"].items():
        for peer, ratio in measured["ratio"].items():
            yield (
                f"| training, microseconds a target: {workload}, against {peer} | {measured['target_us']['ours']:.1f} "
                f"| {measured['target_us'][peer]:.1f} | {ratio:.2f} |"
            )
    for loss in ("one negative", "full softmax"):
        us = found["recbole"][loss]["target_us"]
        fastest = min((name for name in us if name != "ours"), key=lambda name: us[name])
        yield (
            f"| training, microseconds a target: ML-1M, {loss}, against {fastest} | {us['ours']:.1f} "
            f"| {us[fastest]:,.0f} | {us[fastest] / us['ours']:.0f} |"
        )
    ranking = found["recbole"]["full ranking"]
    users = ranking["users_a_second"]
    fastest = max((name for name in users if name != "ours"), key=lambda name: users[name])
    yield (
        f"| full ranking of 3,416 items, users a second, against {fastest} | {users['ours']:,} | {users[fastest]:,} "
        f"| {users['ours'] / users[fastest]:.2f} times as many |"
    )
    yield ""
    yield f"`{found['command']}`, torch {found['torch']}, threads: {found['threads']}; medians, interleaved."


def scale() -> Iterator[str]:
    """A million items, ten million interactions."""
    (found,) = read_runs("benchmark-recommendation-scale")
    yield "| | time | peak memory, MiB |"
    yield "|---|---|---|"
    for name, measured in found["million"].items():
        is_ranking = "users_a_second" in measured
        time = f"{measured['users_a_second']:.0f} users/s" if is_ranking else f"{measured['step_ms']:.0f} ms a step"
        targets = "" if is_ranking else f", {measured['targets']:,} targets"
        yield f"| 1,000,000 items x 64: {name}{targets} | {time} | {measured['peak_mib']:,} |"
    for count, measured in found["stream"].items():
        if isinstance(measured, dict):
            yield (
                f"| {count} interactions read, one epoch | {measured['read_s']:.1f} + {measured['epoch_s']:.1f} s "
                f"| {measured['peak_mib']:,} |"
            )
    yield ""
    yield f"`{found['command']}`, torch {found['torch']}, threads: {found['threads']}."
