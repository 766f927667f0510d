"""Reads mutated copies of the samples by every reader: no traceback, and every row is read or reported.

python benchmarks/mutated_inputs.py --count 2000 --out results/mutated-inputs/0.json
python benchmarks/mutated_inputs.py --only 117 --seed 0     # one of them again, with what was said

Bytes are flipped and cut, columns removed and renamed, cells emptied or filled with what does not belong there, quotes
opened, encodings and ends of lines changed, rows repeated, pictures and sounds damaged. A set is read as for training,
or as input of a trained model, with on_bad_row=error or skip, and every example is made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filing import file
from mutations import MUTATIONS, rows_written

from zoo.config.compose import compose
from zoo.config.instantiate import build
from zoo.errors import ZooError
from zoo.training.environment import find_commit

SAMPLES = Path(__file__).resolve().parent.parent / "data" / "samples"
SECONDS = 60
_SKIPPED = re.compile(r"skipped ([\d,]+) (?:bad|\w+ with more than)")
_LEFT_OUT = re.compile(r"left out (.*)")
_FILES = re.compile(r"([\d,]+) (?:file|hidden|picture|text|recording|link|row)")


@dataclass(frozen=True)
class Case:
    """A data set of samples.

    Args:
        options: Words that choose model and data; paths are relative to a folder with the samples.
        tables: Tables whose rows are counted.
        folders: Folders whose files are counted.
        mutated: Patterns of the files that are mutated.
        read: How many rows a data module has read.
        files: Folders and files of the samples that the case needs.
        given: Paths that the trained model is given, if it takes what it was trained on.
    """

    options: Sequence[str]
    mutated: Sequence[str]
    read: Callable[[Any], int]
    files: Sequence[str]
    tables: Sequence[str] = ()
    folders: Sequence[str] = ()
    given: Sequence[str] = ()


def examples(data: Any) -> int:
    return len(data.examples("all").entries)


def nodes_and_edges(data: Any) -> int:
    return len(data.graph.ids) + data.graph.edges.shape[1]


def interactions(data: Any) -> int:
    return len(data.content.items)


def captions(data: Any) -> int:
    content = data.content
    return sum(map(len, content.pictures.captions or ())) or len(content.pictures)


def _table(model: str, name: str, table: str, *more: str, files: Sequence[str] = (), **how: Any) -> Case:
    options = [f"model={model}", f"data={name}", f"data.table={table}", *more]
    return Case(options, [table], how.pop("read", examples), [table, *files], [table], given=[table], **how)


def _graph(nodes: str, given: Sequence[str] = ()) -> Case:
    files = [nodes, EDGES]
    return Case([*GRAPH, f"data.nodes={nodes}"], ["graph/*"], nodes_and_edges, files, files, given=given)


GRAPH = ["model=gat", "data=graph_files", "data.edges=graph/edges.csv", "data.directed=true"]
EDGES = "graph/edges.csv"
SMALL = ["data.height=8", "data.width=8"]
ALL_ITEMS = ["data.min_user_items=1", "data.min_item_users=1"]
TEXTS = "translation/phrases"
CASES: dict[str, Case] = {
    "graph": _graph("graph/nodes.csv", given=["graph"]),
    "graph of words": _graph("graph/nodes_sparse.csv"),
    "pictures": _table("resnet", "image_table", "vision/pictures.csv", *SMALL, files=["vision/pictures"]),
    "damaged pictures": Case(
        ["model=resnet", "data=image_table", "data.table=vision/pictures.csv", *SMALL],
        ["vision/pictures/*/*"],
        examples,
        ["vision"],
        ["vision/pictures.csv"],
    ),
    "folder of pictures": Case(
        ["model=resnet", "data=image_folder", "data.folder=vision/pictures", *SMALL],
        ["vision/pictures/*/*"],
        examples,
        ["vision/pictures"],
        folders=["vision/pictures"],
        given=["vision/pictures"],
    ),
    "interactions": _table("sasrec", "interactions", "recommendation/interactions.csv", *ALL_ITEMS, read=interactions),
    "interactions of Parquet": _table(
        "sasrec", "interactions", "recommendation/interactions.parquet", *ALL_ITEMS, read=interactions
    ),
    "reviews": _table("han", "text_table", "documents/reviews.csv"),
    "reviews of .gz": _table("han", "text_table", "documents/reviews.csv.gz"),
    "tickets": _table("han", "text_table", "documents/tickets.jsonl", "data.id=id", "data.targets=multi"),
    "letters": Case(
        ["model=han", "data=text_folder", "data.folder=documents/letters"],
        ["documents/letters/*/*"],
        examples,
        ["documents/letters"],
        folders=["documents/letters"],
        given=["documents/letters"],
    ),
    "phrases": _table("nmt", "text_pairs", f"{TEXTS}.tsv"),
    "lines of phrases": Case(
        ["model=nmt", "data=text_pairs", f"data.source_file={TEXTS}.de", f"data.target_file={TEXTS}.en"],
        [f"{TEXTS}.de", f"{TEXTS}.en"],
        examples,
        [f"{TEXTS}.de", f"{TEXTS}.en"],
        [f"{TEXTS}.de"],
    ),
    "notes": _table("nmt", "text_pairs", "translation/notes.jsonl", "data.source=document", "data.target=summary"),
    "captions": _table("captioner", "captions", "captioning/captions.csv", *SMALL, files=["captioning"], read=captions),
    "questions": _table(
        "coattention",
        "picture_questions",
        "answering/questions.csv",
        "data.folder=captioning/pictures",
        *SMALL,
        files=["captioning/pictures"],
    ),
    "passages": _table("bidaf", "passage_questions", "answering/passages.csv"),
    "hypotheses": _table("esim", "hypotheses", "answering/hypotheses.jsonl"),
    "recordings": _table("las", "audio_manifest", "speech/recordings.csv", files=["speech/clips"]),
    "damaged recordings": Case(
        ["model=las", "data=audio_manifest", "data.table=speech/recordings.csv"],
        ["speech/clips/*"],
        examples,
        ["speech/recordings.csv", "speech/clips"],
        ["speech/recordings.csv"],
    ),
    "parts of a recording": _table("las", "audio_manifest", "speech/talk.jsonl", files=["speech/talk.flac"]),
    "folder of recordings": Case(
        ["model=las", "data=audio_manifest", "data.folder=speech/words"],
        ["speech/words/*"],
        examples,
        ["speech/words"],
        folders=["speech/words"],
        given=["speech/words"],
    ),
    "features": _table(
        "las", "audio_manifest", "speech/features.csv", "data.features.kind=given", files=["speech/features"]
    ),
}


def prepare(folder: Path) -> None:
    """Writes samples that are made of others: Parquet, .gz, features, and pictures of one size."""
    import gzip

    import pandas as pd

    shutil.copytree(SAMPLES, folder)
    table = pd.read_csv(folder / "recommendation/interactions.csv")
    table.to_parquet(folder / "recommendation/interactions.parquet")
    (folder / "documents/reviews.csv.gz").write_bytes(gzip.compress((folder / "documents/reviews.csv").read_bytes()))
    (folder / "speech/features").mkdir()
    rows = ["path,text,split"]
    for number in range(9):
        x = np.random.default_rng(number).standard_normal((20 + number, 5))
        np.save(folder / f"speech/features/{number}.npy", x.astype(np.float32))
        rows.append(f"features/{number}.npy,word {'abc'[number % 3]},{('train', 'val', 'test')[number % 3]}")
    (folder / "speech/features.csv").write_text("\n".join(rows) + "\n")


@dataclass
class Outcome:
    """What came of one mutated input.

    Args:
        kind: read, refused, traceback, drop or hang.
        said: The message, warnings, or the traceback.
    """

    kind: str
    said: str = ""


@dataclass
class Bench:
    """The cases, composed once, with the states of models that were trained on them."""

    origin: Path
    configs: dict[str, Any] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)

    def config(self, name: str) -> Any:
        if name not in self.configs:
            self.configs[name] = compose([*CASES[name].options, "paths.cache=cache"])["data"]
            with contextlib.chdir(self.origin), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = build(self.configs[name], "data")
                data.setup()
                self.states[name] = data.state()
        return self.configs[name]

    def run(self, number: int, seed: int, work: Path) -> tuple[str, str, Outcome]:
        """Mutates and reads; returns the names of the case and of the mutations."""
        draw = random.Random(f"{seed} {number}")
        name = draw.choice(list(CASES))
        case, config = CASES[name], self.config(name)
        folder = work / str(number)
        for each in case.files:
            target = folder / each
            target.parent.mkdir(parents=True, exist_ok=True)
            if (self.origin / each).is_dir():
                shutil.copytree(self.origin / each, target, dirs_exist_ok=True)
            else:
                shutil.copy(self.origin / each, target)
        paths = sorted(path for pattern in case.mutated for path in folder.glob(pattern) if path.is_file())
        done = []
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            path = draw.choice(paths)
            if path.is_file():
                fitting = [each for each in MUTATIONS if each.fits(path)]
                mutation = draw.choice(fitting)
                mutation.apply(path, draw)
                done.append(f"{mutation.name} {path.name}")
        skips, is_input = draw.random() < 0.6, bool(case.given) and draw.random() < 0.35
        encoding = draw.choice(["latin-1", "cp1252", "utf-16"]) if draw.random() < 0.1 else None
        config = {**config, "on_bad_row": "skip" if skips else "error"}
        if encoding is not None and "encoding" in config and not is_input:
            config["encoding"] = encoding
        with contextlib.chdir(folder):
            outcome = self.outcome(case, name, config, is_input=is_input)
        shutil.rmtree(folder, ignore_errors=True)
        how = f"{', '.join(done)}; skip={skips}, input={is_input}, encoding={config.get('encoding')}"
        return name, how, outcome

    def outcome(self, case: Case, name: str, config: Any, *, is_input: bool) -> Outcome:
        with warnings.catch_warnings(record=True) as said, limited(SECONDS):
            warnings.simplefilter("always")
            try:
                data = build(config, "data")
                if is_input:
                    data = data.from_files([Path(each) for each in case.given], self.states[name])
                data.setup()
                make_all(data)
            except ZooError as error:
                return Outcome("refused", str(error))
            except TimeoutError:
                return Outcome("hang")
            except Exception:
                return Outcome("traceback", traceback.format_exc())
        messages = [str(each.message) for each in said if "zoo" in str(each.filename)]
        written = [rows_written(Path(each), config.get("encoding", "utf-8")) for each in case.tables]
        lowest, highest = (sum(each[side] for each in written) for side in (0, 1))
        for folder in case.folders:
            count = sum(map(_is_example, Path(folder).rglob("*")))
            lowest, highest = lowest + count, highest + count
        known, reported = case.read(data), sum(map(_count_reported, messages))
        counted = f"{known} read and {reported} reported of {lowest} to {highest}: {messages}"
        return Outcome("read" if lowest <= known + reported <= highest else "drop", counted)


def _is_example(path: Path) -> bool:
    """Whether a file or a link must be read or reported: all but folders, and transcripts of recordings."""
    is_transcript = "words" in path.parts and path.suffix.lower() == ".txt"
    return (path.is_symlink() or not path.is_dir()) and not is_transcript


def _count_reported(message: str) -> int:
    """Returns how many rows or files a warning says were left out."""
    counts = _SKIPPED.findall(message)
    for said in _LEFT_OUT.findall(message):
        counts += _FILES.findall(said)
    return sum(int(count.replace(",", "")) for count in counts)


def make_all(data: Any) -> None:
    """Makes every example, and a batch of each split."""
    splits = ["all"] if data.is_input else ["train", "val", "test", "all"]
    for split in splits:
        made = data.examples(split)
        entries = [made.entries[number] for number in range(len(made.entries))]
        if entries:
            made.collate(entries[:4])


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """A context that raises TimeoutError after so many seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="mutated inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--only", type=int, help="the number of one that is repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.count) if options.only is None else [options.only]
    counts: Counter[str] = Counter()
    by_case: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name, Path(os.devnull).open("w") as silence:
        work = Path(name)
        prepare(work / "samples")
        bench = Bench(work / "samples")
        for number in numbers:
            with contextlib.redirect_stderr(silence):
                case, how, outcome = bench.run(number, options.seed, work)
            counts[outcome.kind] += 1
            by_case.setdefault(case, Counter())[outcome.kind] += 1
            if outcome.kind not in ("read", "refused") or options.only is not None:
                print(f"{number} {case}: {how}\n  {outcome.kind}: {outcome.said}", flush=True)
    found = {
        "inputs": counts.total(),
        "readers": len(by_case),
        "tracebacks": counts["traceback"],
        "silent_drops": counts["drop"],
        "hangs": counts["hang"],
        "read": counts["read"],
        "refused": counts["refused"],
        "by_reader": {case: dict(each) for case, each in sorted(by_case.items())},
        "seed": options.seed,
        "command": f"python benchmarks/mutated_inputs.py --count {options.count} --seed {options.seed}",
        "commit": find_commit(),
    }
    print(json.dumps(found, indent=2))
    if options.out is not None:
        file(found, options.out)
    sys.exit(bool(counts["traceback"] or counts["drop"] or counts["hang"]))


if __name__ == "__main__":
    main()
