"""Makes the tables of captioning in docs/results/captioning.md."""

from __future__ import annotations

from collections.abc import Iterator

from measured import clock_of, of_runs, of_runs_with_protocol, on_processor, read_runs

PLANTED = {
    "captioner-planted_scenes": "soft attention",
    "captioner-planted_scenes-hard": "hard attention, rewarded",
    "captioner-planted_scenes-straight_through": "hard attention, straight through, 12 epochs",
    "captioner-planted_scenes-straight_through_8": "hard attention, straight through, 8 epochs",
    "captioner-planted_scenes-uniform": "uniform (control)",
    "captioner_transformer-planted_scenes": "Transformer",
}
FLICKR8K = {
    "captioner_flickr8k": "soft attention",
    "captioner_flickr8k-hard": "hard attention, rewarded",
    "captioner_flickr8k-straight_through": "hard attention, straight through",
    "captioner_flickr8k-hard_from_soft": "hard attention, from the weights of soft attention",
    "captioner_flickr8k-uniform": "uniform (control)",
    "captioner_flickr8k-self_critical": "soft attention, then self-critical",
}


def planted() -> Iterator[str]:
    """Makes a table of captions and of where their words look, on planted scenes."""
    texts = {"exact match": "test/exact_match", "BLEU-4": "test/bleu", "CIDEr-D": "test/cider"}
    return of_runs(PLANTED, {**texts, "pointing": "truth/pointing"})


def flickr8k() -> Iterator[str]:
    """Makes a table of captions of Flickr8k's test pictures, with the protocol of the scores."""
    bleu = {f"BLEU-{number}": f"test/bleu_{number}" for number in (1, 2, 3)}
    rest = {"BLEU-4": "test/bleu", "CIDEr-D": "test/cider", "ROUGE-L": "test/rouge_l", "chrF": "test/chrf"}
    return of_runs_with_protocol(FLICKR8K, {**bleu, **rest})


def benchmark() -> Iterator[str]:
    """Makes the table of training, search and epochs against the form of tutorials and against features made again."""
    (found,) = read_runs("benchmark-captioning")
    clock = clock_of(found)
    yield f"| work | implementation | ms of {clock} | x ours | peak memory, MiB |"
    yield "|---" * 5 + "|"
    titles = {"several lengths": "captions of 8 to 20 tokens", "one": "captions of one length"}
    for lengths, each in found["training"].items():
        title = f"training step, {titles[lengths]}"
        yield from _rows(title, each["step_ms"], each["ratio"], each["peak_mib"])
    yield from _rows(
        f"beam search of width {found['search']['width']}", found["search"]["ms"], found["search"]["ratio"]
    )
    for name, each in found["epoch"].items():
        yield from _rows(f"epoch, net of `{name}`", each["ms"], each["ratio"])
    for name in ("greedy", "beam"):
        of_search = found["hard"][f"{name}_ms"], found["hard"][f"{name}_ratio"]
        yield from _rows(f"{name} search, soft and hard attention", *of_search)
    yield ""
    yield f"`{found['command']}`: {found['threads']} thread{on_processor(found)}."


def _rows(
    title: str, milliseconds: dict[str, float], ratio: dict[str, float], peak: dict[str, float] | None = None
) -> Iterator[str]:
    for number, (name, value) in enumerate(milliseconds.items()):
        times = f"{ratio[name]:.2f}" if name in ratio else ""
        memory = "" if peak is None else f"{peak[name]:.0f}"
        yield f"| {'' if number else title} | {name} | {value:.0f} | {times} | {memory} |"
