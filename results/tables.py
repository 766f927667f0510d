"""Makes the tables of README.md and docs/ from the measured runs; `--check` only reports whether they are up to date.

A table stands between `<!-- table NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import answering
import captioning
import documents
import recommendation
import speech
import translation
from domains import domains
from measured import RESULTS, clock_of, on_processor, read_runs, shown_command, spread, with_runs
from printed import PRINTED, printed

ROOT = RESULTS.parent

PLANTED = {
    "gat-planted_graph": "GAT",
    "gatv2-planted_graph": "GATv2",
    "gat-planted_graph-uniform": "uniform (control)",
    "gat-planted_graph-degree": "degree (control)",
    "gat-planted_graph-dynamic": "GAT, `data.cue=dynamic`",
    "gatv2-planted_graph-dynamic": "GATv2, `data.cue=dynamic`",
    "gatv2-planted_graph-dynamic-uniform": "uniform, `data.cue=dynamic`",
}
CORA = {
    "gat_cora": "GAT",
    "gatv2_cora": "GATv2",
    "gat_cora-uniform": "uniform (control)",
    "gat_cora-degree": "degree (control)",
}


GLIMPSE = {
    "vit-planted_glimpse": "ViT, mini",
    "vit-planted_glimpse-uniform": "ViT, uniform (control)",
    "cct-planted_glimpse": "CCT, mini",
    "swin-planted_glimpse": "Swin, mini",
    "cbam_resnet-planted_glimpse": "CBAM-ResNet-14",
    "cbam_resnet-planted_glimpse-reduction16": "CBAM-ResNet-14, inner width 1/16",
    "se_resnet-planted_glimpse": "SE-ResNet-14",
    "se_resnet-planted_glimpse-reduction16": "SE-ResNet-14, inner width 1/16",
    "eca_resnet-planted_glimpse": "ECA-ResNet-14",
    "resnet-planted_glimpse": "ResNet-14 (control)",
}
FASHION = {
    "resnet20_fashion_mnist": "ResNet-20 (control)",
    "se_resnet20_fashion_mnist": "SE-ResNet-20",
    "cbam_resnet20_fashion_mnist": "CBAM-ResNet-20",
    "cct_fashion_mnist": "CCT-2/3x2",
}


def planted(experiments: Mapping[str, str], column: str, truth: tuple[str, str], digits: int) -> Iterator[str]:
    """Makes a table of accuracy and truth score on planted data.

    Args:
        column: Title of the column of experiments.
        truth: Title of the truth score, and its name in a run.
        digits: Number of decimal digits of seconds. The processor time of the whole process follows in brackets if a
            run has it.
    """
    yield f"| {column} | test accuracy | {truth[0]} | train - val | parameters | seconds | seeds | command |"
    yield "|---|---|---|---|---|---|---|---|"
    for experiment, name in with_runs(experiments):
        runs = read_runs(experiment)
        cpu = [run["cpu_seconds"] for run in runs if "cpu_seconds" in run]
        gap = [run["train/accuracy"] - run["val/accuracy"] for run in runs]
        cells = [
            name,
            spread([run["test/accuracy"] for run in runs]),
            spread([run[truth[1]] for run in runs]),
            f"{statistics.mean(gap):+.3f}",
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.{digits}f}"
            + (f" (processor {statistics.mean(cpu):.{digits}f})" if cpu else ""),
            str(len(runs)),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def cora() -> Iterator[str]:
    """Makes the table of accuracy on Cora's public split."""
    yield "| attention | test accuracy, % | published | epochs | seconds a seed | whole process | seeds | command |"
    yield "|---|---|---|---|---|---|---|---|"
    for experiment, name in CORA.items():
        runs = read_runs(experiment)
        cells = [
            name,
            spread([100 * run["test/accuracy"] for run in runs], digits=2),
            "83.0 ± 0.7" if experiment == "gat_cora" else "",
            f"{statistics.mean(run['epochs'] for run in runs):.0f}",
            f"{statistics.mean(run['seconds'] for run in runs):.1f}",
            f"{statistics.mean(run['wall_seconds'] for run in runs):.1f}",
            str(len(runs)),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


def fashion_mnist() -> Iterator[str]:
    """Makes the table of accuracy on the official test set, and of the differences that gates make, seed by seed."""
    yield "| model | test accuracy, % | against control, by seed | calibration error | parameters | seeds | command |"
    yield "|---|---|---|---|---|---|---|"
    control = {run["seed"]: run["test/accuracy"] for run in read_runs("resnet20_fashion_mnist")}
    for experiment, name in with_runs(FASHION):
        runs = read_runs(experiment)
        pairs = [100 * (run["test/accuracy"] - control[run["seed"]]) for run in runs if run["seed"] in control]
        is_paired = experiment.startswith(("se_", "cbam_"))
        cells = [
            name,
            spread([100 * run["test/accuracy"] for run in runs], digits=2),
            ", ".join(f"{each:+.2f}" for each in pairs) if is_paired else "",
            spread([run["test/calibration_error"] for run in runs]),
            f"{runs[0]['parameters']:,}",
            str(len(runs)),
            f"`{shown_command(runs[0])}`",
        ]
        yield f"| {' | '.join(cells)} |"


NETWORKS = {
    "se_resnet18": "SE-ResNet-18, 3x3 stem, 32 x 32, batch 64",
    "cbam_resnet18": "CBAM-ResNet-18, likewise",
    "vit_small_pictures": "ViT, patch 4 of 32 x 32, width 192, depth 9, 12 heads, batch 64",
    "vit_small_pictures_bf16": "the same in bf16, by autocast (`trainer.precision=bf16-mixed`)",
    "vit_tiny": "ViT-Ti/16, 224 x 224, batch 8",
}


def benchmark_vision() -> Iterator[str]:
    """Makes the table of milliseconds of every network, with those of peers as multiples of ours."""
    (found,) = read_runs("benchmark-vision")
    yield "| | training step, ms | (peer / ours) | inference, ms | (peer / ours) |"
    yield "|---|---|---|---|---|"
    for workload, title in NETWORKS.items():
        measured = found["workloads"].get(workload)
        if measured is None:
            continue
        yield f"| **{title}** | | | | |"
        ours = {kind: measured[f"{kind}_ms"]["ours"] for kind in ("training", "inference")}
        for name in measured["training_ms"]:
            cells = []
            for kind, own in ours.items():
                time = measured[f"{kind}_ms"][name]
                cells += [f"{time:.1f}", "" if name == "ours" else f"{time / own:.2f}"]
            yield f"| {name} | {' | '.join(cells)} |"
        if "training_roofline_ms" in measured:
            yield f"| (its products alone, at this processor's best rate) | {measured['training_roofline_ms']} | | | |"
    yield ""
    on = f"{found['threads']} threads{on_processor(found)}"
    yield f"`{found['command']}`, torch {found['torch']}, {on}; medians, interleaved; float32 but where bf16 is said."


def benchmark_graph(experiment: str) -> Iterator[str]:
    """Makes the table of times against the peers."""
    (found,) = read_runs(experiment)
    yield "| | training step, ms | inference, ms | peak memory of training, MiB |"
    yield "|---|---|---|---|"
    names = {"pyg": "PyG `GATConv`", "dgl": "DGL `GATConv`"}
    for name in found["training_ms"]:
        figures = (f"{found[key][name]:.1f}" for key in ("training_ms", "inference_ms", "peak_mib"))
        yield f"| {names.get(name, name)} | {' | '.join(figures)} |"
    yield ""
    for ours in (name for name in found["training_ms"] if name.startswith("ours")):
        ratios = [
            f"training {found['training_ms'][peer] / found['training_ms'][ours]:.1f}x {names[peer].split()[0]}, "
            f"inference {found['inference_ms'][peer] / found['inference_ms'][ours]:.1f}x"
            for peer in names
            if peer in found["training_ms"]
        ]
        yield f"- {ours}: {'; '.join(ratios)}."
    recorder = found["recorder"]
    yield (
        f"- An open recorder costs a training step x{recorder['open_step_ratio']:.2f}, "
        f"a pass x{recorder['open_pass_ratio']:.2f}."
    )
    yield f"- `{found['command']}`, torch {found['torch']}, {found['threads']} threads{on_processor(found)}."


def attention_positions() -> Iterator[str]:
    """Makes the table of bits per character at the training length and beyond."""
    runs = read_runs("attention-positions")
    lengths = list(next(iter(runs[0]["bits_per_character"].values())))
    columns = [f"{n} ({int(n) // runs[0]['trained_length']}x)" for n in lengths]
    yield f"| position | {' | '.join(columns)} | parameters |"
    yield "|---|" + "---|" * (len(lengths) + 1)
    for name in runs[0]["bits_per_character"]:
        cells = [spread([run["bits_per_character"][name][n] for run in runs]) for n in lengths]
        trained = runs[0]["training"].get(name)
        cells.append("the same" if trained is None else f"{trained['parameters']:,}")
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield f"`{shown_command(runs[0])}`: {len(runs)} seeds, {runs[0]['steps']:,} steps each."


KINDS_OF_ATTENTION = {
    "softmax": "softmax, fused",
    "window": "window of 128 to each side",
    "bigbird": "BigBird, blocks of 64",
    "linear": "linear, elu + 1",
    "performer": "Performer, 256 features",
    "linformer": "Linformer, 256 slots",
}


def attention_lengths() -> Iterator[str]:
    """Makes the table of time and memory of each mechanism by length, from its last run, with ratios to the peer."""
    runs = read_runs("benchmark-attention")
    kinds = {kind: (run, measured) for run in runs for kind, measured in run["kinds"].items()}
    lengths = max((list(measured["ms"]) for _, measured in kinds.values()), key=len)
    columns = [*(f"{int(n):,}" for n in lengths), "exponent", "peer's", "peak memory, MiB"]
    yield f"| ms (peer's time / ours) | {' | '.join(columns)} |"
    yield "|---|" + "---|" * (len(lengths) + 3)
    for kind, name in KINDS_OF_ATTENTION.items():
        measured = kinds[kind][1]
        peer = next((side for side in measured["exponent"] if side != "ours"), None)
        cells = [_time_at(measured["ms"].get(n), peer) for n in lengths]
        longest = list(measured["ms"])[-1]
        cells.append(f"{measured['exponent']['ours']:.2f}")
        cells.append("" if peer is None else f"{measured['exponent'][peer]:.2f}")
        cells.append(f"{measured['peak_mib'][longest]['ours']:.0f} at {int(longest):,}")
        yield f"| {name}{'' if peer is None else f' / {peer}'} | {' | '.join(cells)} |"
    yield ""
    commands = ", ".join(f"`{run['command']}`" for run in runs)
    on = f"{runs[0]['threads']} threads{on_processor(runs[0])}"
    yield f"{commands}, torch {runs[0]['torch']}, {on}; medians, interleaved."


def _time_at(milliseconds: dict[str, float] | None, peer: str | None) -> str:
    if milliseconds is None:
        return ""
    ratio = "" if peer is None else f" ({milliseconds[peer] / milliseconds['ours']:.2f})"
    return f"{milliseconds['ours']:.1f}{ratio}"


def attention_maps() -> Iterator[str]:
    """Makes the table of the memory and time that exporting the map of a long input takes."""
    found = read_runs("benchmark-attention")[0]
    yield f"| of the map of {found['length']:,} positions | memory, MiB | seconds, the pass included |"
    yield "|---|---|---|"
    for name, measured in found["maps"].items():
        yield f"| {name} | {measured['mib']:.0f} | {measured['seconds']:.1f} |"


def trust() -> Iterator[str]:
    """Makes the table of the failures that a run survives, and of their cost."""
    (kills,), (hostile,), (mutated,), (startup,), (overhead,) = map(
        read_runs, ("resume-kills", "hostile-checkpoints", "mutated-inputs", "startup", "benchmark-overhead")
    )
    workers = read_runs("resume-kills-workers")
    yield "| measured | figure | command |"
    yield "|---|---|---|"
    for runs, what in (([kills], ""), (workers, " with data workers")):
        equal, killed = (sum(run[key] for run in runs) for key in ("bit_equal", "kills"))
        said = f"{equal} of {killed} finishes bit-equal: weights and `metrics.csv`"
        commands = f"`{runs[0]['command']}`" + (f", and seeds 1 to {len(runs) - 1}" if len(runs) > 1 else "")
        yield f"| killed (SIGKILL) at random moments{what}, resumed at once | {said} | {commands} |"
    said = f"{hostile['executed']} of {hostile['files']} executed, {hostile['explained']} refused in a sentence, "
    said += f"{hostile['without_effect']} without effect, at most {hostile['peak_mb']} MB"
    yield f"| hostile and broken checkpoints | {said} | `{_without_out(hostile)}` |"
    drops = f"{mutated['silent_drops']} lose a row unsaid"
    said = f"{mutated['tracebacks']} of {mutated['inputs']:,} end with a traceback, {drops}"
    yield f"| mutated tables, texts, pictures and sounds | {said} | `{_without_out(mutated)}` |"
    said = f"{overhead['overhead_percent']} % against plain Lightning with a DataLoader"
    yield f"| the price: checkpoints every minute, guards, the loader | {said} | `{overhead['command']}` |"
    said = f"{startup['typo_seconds']} s, {startup['help_seconds']} s, {startup['first_step_seconds']} s"
    yield f"| a refused typo, `--help`, command to first training step | {said} | `{_without_out(startup)}` |"


def cpu_kernels() -> Iterator[str]:
    """Makes the table of what the kernels for kinds of CPU gain in training steps and decoding."""
    runs = read_runs("benchmark-cpu-kernels")
    models = {model: each for run in runs for model, each in run["models"].items()}
    names = list(dict.fromkeys(name for each in models.values() for name in each["gains"]))
    yield f"| ms of processor time | with all | with none | gain | {' | '.join(names)} |"
    yield "|---|" + "---|" * (len(names) + 3)
    for model, each in models.items():
        cells = [f"{each['milliseconds'][side]:.1f}" for side in ("all", "none")]
        cells.append(f"{each['gain']:.2f}")
        cells += [f"{each['gains'][name]:.2f}" if name in each["gains"] else "" for name in names]
        yield f"| {model} | {' | '.join(cells)} |"
    yield ""
    commands = ", ".join(f"`{run['command']}`" for run in runs)
    on = f"{clock_of(runs[0])}, {runs[0]['threads']} thread{on_processor(runs[0])}"
    yield (
        f"{commands}, torch {runs[0]['torch']}, {on}; medians of {runs[0]['repeats']} turns, interleaved. The gain of "
        "a kernel is the time without it as a multiple of that with all."
    )


def _without_out(run: dict[str, Any]) -> str:
    return re.sub(r" --out \S+", "", run["command"])


BENCHMARKS = ("benchmark-graph", "benchmark-graph-x10")
TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "domains": domains,
    "planted": partial(planted, PLANTED, "attention", ("edge truth (AUC)", "truth/edge_auc"), 1),
    "cora": cora,
    "planted-vision": partial(planted, GLIMPSE, "model", ("pointing", "truth/pointing_accuracy"), 0),
    "fashion-mnist": fashion_mnist,
    "benchmark-vision": benchmark_vision,
    "planted-recommendation": recommendation.planted,
    "recommendation-attention": recommendation.mixers,
    "benchmark-recommendation": recommendation.benchmark,
    "recommendation-scale": recommendation.scale,
    "ml-1m": recommendation.ml_1m,
    "planted-documents": documents.planted,
    "flat-attention-imdb": documents.agreement,
    "faithfulness-documents": documents.faithfulness,
    "imdb": documents.imdb,
    "benchmark-documents": documents.benchmark,
    "documents-length": documents.lengths,
    "documents-file": documents.large_file,
    "fine-tuning-documents": documents.fine_tuning,
    "own-texts": documents.own_texts,
    "planted-translation": translation.planted,
    "planted-translation-length": translation.planted_lengths,
    "planted-summaries": translation.summaries,
    "multi30k": translation.multi30k,
    "benchmark-translation": translation.benchmark,
    "translation-length": translation.lengths,
    "planted-speech": speech.planted,
    "fsdd-strings": speech.strings,
    "long-speech": speech.longer,
    "long-speech-windows": speech.windows,
    "streamed-speech": speech.streamed,
    "few-recordings": speech.few_recordings,
    "benchmark-speech": speech.benchmark,
    "planted-captioning": captioning.planted,
    "flickr8k": captioning.flickr8k,
    "benchmark-captioning": captioning.benchmark,
    "planted-answering": answering.planted,
    "planted-answering-kinds": answering.by_kind,
    "sick": answering.sick,
    "benchmark-answering": answering.benchmark,
    "trust": trust,
    "attention-positions": attention_positions,
    "attention-lengths": attention_lengths,
    "attention-maps": attention_maps,
    "cpu-kernels": cpu_kernels,
    **{name: partial(benchmark_graph, name) for name in BENCHMARKS},
    **{f"run-{page}": partial(printed, *run) for page, run in PRINTED.items()},
}


def main(arguments: Sequence[str]) -> int:
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        old = path.read_text(encoding="utf-8")
        new = re.sub(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", _filled, old, flags=re.DOTALL)
        if new != old:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"tables differ from results/: {', '.join(stale)}; run python results/tables.py")
        return 1
    return 0


def _filled(found: re.Match[str]) -> str:
    start, name, end = found.groups()
    return f"{start}\n" + "\n".join(TABLES[name]()) + f"\n\n{end}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
