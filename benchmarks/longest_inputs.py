"""Peak memory and the last sentence of commands that are given one input far longer than all others.

python benchmarks/longest_inputs.py --only nmt: --out results/longest-inputs-nmt/0.json

Every command runs in a process of its own, one after another, and is ended above `--most` GB. A domain adds cases with
a function that `CASES` lists.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shlex
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile
from filing import file
from PIL import Image

from zoo.training.environment import find_commit

SEVERAL, WORDS = 5_000, 100_000
SIDE = 10_000
MILLION = 1_000_000
HOURS = 2
_WRITTEN = 50_000
"""Words of a text on the command line, where Linux takes no argument of more than 128 KiB."""
_WAIT = 0.05


@dataclass(frozen=True)
class Case:
    """A command whose memory is measured.

    Args:
        name: Name of the case.
        command: Words after `zoo`; `{folder}` stands for the folder of its files.
        files: Writes the files into a folder.
        before: Commands that are run first, such as a training on short inputs; equal ones of several cases run once.
    """

    name: str
    command: Sequence[str]
    files: Callable[[Path], None]
    before: Sequence[Sequence[str]] = ()


def words(count: int, seed: int = 0, *, stops: bool = False) -> str:
    """Returns a text of so many words of one letter, and perhaps a full stop after every twentieth."""
    draw = random.Random(seed)
    found = [draw.choice(string.ascii_lowercase) for _ in range(count)]
    return " ".join(f"{word}." if stops and number % 20 == 19 else word for number, word in enumerate(found))


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, fieldnames=list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


def trained(model: str, data: str, *options: str, name: str) -> list[str]:
    """Returns the command that trains a model for an epoch on short inputs, into the folder `{folder}/NAME`."""
    return [
        *("train", f"model={model}", f"data={data}", "data.max_epochs=1", "trainer=cpu"),
        *(*options, f"run_dir={{folder}}/{name}"),
    ]


def texts(model: str, data: str, row: Callable[[int, int], dict[str, Any]], *options: str) -> Iterator[Case]:
    """Yields the cases of a model that reads tables of texts.

    Args:
        model, data: Names in a configuration.
        row: `(number, words) -> cells` makes the row of an example of so many words.
        options: More options of the training.
    """

    def files(folder: Path) -> None:
        splits = ("train",) * 20 + ("val",) * 4 + ("test",) * 4
        short = [{**row(number, 8), "split": split} for number, split in enumerate(splits)]
        write_table(folder / "short.tsv", short)
        write_table(folder / "long.tsv", [row(1, WORDS)])
        for count in (SEVERAL, WORDS):
            write_table(folder / f"{count}.tsv", [*short, {**row(1, count), "split": "train"}])
        write_table(folder / "even.tsv", [{**row(n, 600), "split": s} for n, s in enumerate(("train",) * 240 + splits)])

    before = [trained(model, data, "data.table={folder}/short.tsv", "data.num_workers=0", *options, name=model)]
    checkpoint = f"{{folder}}/{model}/checkpoints/best.ckpt"
    check = ("check", f"model={model}", f"data={data}", *options)
    for count in (SEVERAL, WORDS):
        name = f"{model}: check, one of {count:,} words among short ones"
        yield Case(name, [*check, f"data.table={{folder}}/{count}.tsv"], files)
    yield Case(f"{model}: check, 240 of 600 words", [*check, "data.table={folder}/even.tsv"], files)
    given = ("{folder}/long.tsv",)
    yield Case(f"{model}: predict", ["predict", checkpoint, *given], files, before)
    maps = ("maps", checkpoint, *given, "--out", f"{{folder}}/maps_{model}")
    yield Case(f"{model}: maps", maps, files, before)
    yield Case(f"{model}: faithfulness", faithfulness(maps), files, before)


def faithfulness(maps: Sequence[str]) -> list[str]:
    """Returns a command `zoo maps`, whose last word is its folder, that measures faithfulness into another one."""
    return [*maps[:-1], f"{maps[-1]}_faithfulness", "--faithfulness", "1", "--pictures", "0"]


def pairs(number: int, count: int) -> dict[str, Any]:
    return {"source": words(count, number), "target": words(count, number + 1)}


def documents(number: int, count: int) -> dict[str, Any]:
    return {"text": words(count, number, stops=True), "label": ("good", "bad")[number % 2]}


def passages(number: int, count: int) -> dict[str, Any]:
    text = words(count, number)
    return {"context": f"z9 {text}", "question": words(8, number + 1), "answer": "z9"}


def hypotheses(number: int, count: int) -> dict[str, Any]:
    label = ("yes", "no")[number % 2]
    return {"premise": words(count, number), "hypothesis": words(count, number + 1), "label": label}


def of_texts() -> Iterator[Case]:
    """Yields the cases of models of texts."""
    for model in ("nmt", "transformer_nmt"):
        cases = list(texts(model, "text_pairs", pairs))
        yield from cases
        at = f"{{folder}}/{model}/checkpoints/best.ckpt"
        yield Case(f"{model}: --text", ["predict", at, "--text", words(_WRITTEN)], cases[0].files, cases[-1].before)
    for model in ("han", "han_transformer", "flat_attention", "long_document"):
        cases = list(texts(model, "text_table", documents))
        yield from cases
        at = f"{{folder}}/{model}/checkpoints/best.ckpt"
        yield Case(f"{model}: --text", ["predict", at, "--text", words(_WRITTEN)], cases[0].files, cases[-1].before)
    yield from texts("bidaf", "passage_questions", passages)
    yield from texts("esim", "hypotheses", hypotheses)


def of_pictures() -> Iterator[Case]:
    """Yields the cases of pictures of 10,000 x 10,000."""

    def files(folder: Path) -> None:
        rows = []
        for number, split in enumerate(("train",) * 8 + ("val",) * 4 + ("test",) * 4):
            Image.new("RGB", (48, 48), ("red", "green")[number % 2]).save(folder / f"{number}.png")
            caption = ("a red picture", "a green picture")[number % 2]
            row = {"path": f"{number}.png", "image": f"{number}.png", "label": f"{number % 2}", "caption": caption}
            rows.append({**row, "split": split})
        Image.new("RGB", (SIDE, SIDE), "blue").save(folder / "large.png", compress_level=1)
        write_table(folder / "short.tsv", rows)
        write_table(folder / "one.tsv", [*rows, {**rows[0], "path": "large.png", "image": "large.png"}])

    for model, data in (("se_resnet", "image_table"), ("vit", "image_table"), ("captioner", "captions")):
        sizes = ("data.height=48", "data.width=48")
        before = [trained(model, data, "data.table={folder}/short.tsv", *sizes, name=model)]
        checkpoint, given = f"{{folder}}/{model}/checkpoints/best.ckpt", "{folder}/large.png"
        check = ("check", f"model={model}", f"data={data}", "data.table={folder}/one.tsv", *sizes)
        yield Case(f"{model}: check, one of {SIDE:,} x {SIDE:,}", check, files, before)
        training = trained(model, data, "data.table={folder}/one.tsv", *sizes, name=f"{model}_large")
        yield Case(f"{model}: training, one of {SIDE:,} x {SIDE:,}", training, files, before)
        yield Case(f"{model}: predict", ["predict", checkpoint, given], files, before)
        maps = ("maps", checkpoint, given, "--out", f"{{folder}}/maps_{model}")
        yield Case(f"{model}: maps", maps, files, before)
        yield Case(f"{model}: faithfulness", faithfulness(maps), files, before)


def of_graphs() -> Iterator[Case]:
    """Yields the cases of a graph in which one node has a million neighbours."""

    def files(folder: Path) -> None:
        for name, count in (("small", 2_000), ("large", MILLION + 1)):
            (folder / name).mkdir()
            with open(folder / name / "nodes.csv", "w", encoding="utf-8") as opened:
                opened.write("id,label,split,a,b\n")
                for number in range(count):
                    known = f"{'xy'[number % 2]},{('train', 'val', 'test')[number % 3]}" if number < 600 else ","
                    opened.write(f"n{number},{known},{number % 7},{number % 2}\n")
            with open(folder / name / "edges.csv", "w", encoding="utf-8") as opened:
                opened.write("source,target\n" + "".join(f"n{number},n0\n" for number in range(1, count)))

    def own(name: str) -> tuple[str, str]:
        return f"data.nodes={{folder}}/{name}/nodes.csv", f"data.edges={{folder}}/{name}/edges.csv"

    before = [trained("gat", "graph_files", *own("small"), name="gat")]
    given = ("{folder}/gat/checkpoints/best.ckpt", "{folder}/large")
    maps, hub = ("maps", *given, "--ids", "n0", "--out", "{folder}/maps_gat"), "a hub of a million"
    training = trained("gat", "graph_files", *own("large"), name="hub")
    yield Case(f"gat: check, {hub}", ["check", "model=gat", "data=graph_files", *own("large")], files, before)
    yield Case(f"gat: training, {hub}", training, files, before)
    yield Case(f"gat: predict, {hub}", ["predict", *given, "--out", "{folder}/hub.csv"], files, before)
    yield Case(f"gat: maps, {hub}", maps, files, before)
    yield Case(f"gat: faithfulness, {hub}", faithfulness(maps), files, before)


def of_histories() -> Iterator[Case]:
    """Yields the cases of a user with a million items."""

    def files(folder: Path) -> None:
        draw = random.Random(0)
        short = [f"u{user},i{draw.randrange(40)},{at}\n" for user in range(60) for at in range(8)]
        long = [
            f"long,i{draw.randrange(39)},{at}\n" for at in range(MILLION)
        ]  # of 40 items, one is left to be a negative
        for name, rows in (("short", short), ("one", short + long), ("long", long)):
            (folder / f"{name}.csv").write_text("user,item,timestamp\n" + "".join(rows), encoding="utf-8")

    for model in ("sasrec", "din"):
        before = [trained(model, "interactions", "data.table={folder}/short.csv", name=model)]
        given = (f"{{folder}}/{model}/checkpoints/best.ckpt", "{folder}/long.csv")
        one = ("data=interactions", "data.table={folder}/one.csv")
        maps = ("maps", *given, "--out", f"{{folder}}/maps_{model}")
        yield Case(f"{model}: check, a history of a million", ["check", f"model={model}", *one], files, before)
        training = trained(model, "interactions", one[1], name=f"{model}_long")
        yield Case(f"{model}: training, a history of a million", training, files, before)
        yield Case(f"{model}: predict, a history of a million", ["predict", *given, "--seen"], files, before)
        yield Case(f"{model}: maps, a history of a million", maps, files, before)
        yield Case(
            f"{model}: faithfulness, a history of a million",
            faithfulness(maps),
            files,
            before,
        )
        items = ",".join(f"i{number % 40}" for number in range(25_000))
        yield Case(f"{model}: --history", ["predict", given[0], "--history", items, "--seen"], files, before)


def of_sounds() -> Iterator[Case]:
    """Yields the cases of two hours of sound."""

    def files(folder: Path) -> None:
        rows, draw = [], np.random.default_rng(0)
        for number, split in enumerate(("train",) * 8 + ("val",) * 4 + ("test",) * 4):
            soundfile.write(folder / f"{number}.wav", draw.normal(scale=0.1, size=8000), 8000)
            rows.append({"path": f"{number}.wav", "text": ("yes", "no")[number % 2], "split": split})
        with soundfile.SoundFile(folder / "long.wav", "w", 8000, 1) as sound:
            for _ in range(HOURS * 60):
                sound.write(draw.normal(scale=0.1, size=60 * 8000))
        write_table(folder / "short.tsv", rows)
        write_table(folder / "one.tsv", [*rows, {**rows[0], "path": "long.wav"}])

    own = ("data.table={folder}/short.tsv",)
    before = [trained("las", "audio_manifest", *own, name="las")]
    stream = [*own, "attention=mocha", "model.net.listener.bidirectional=false", "data.features.normalise=global"]
    given = ("{folder}/las/checkpoints/best.ckpt", "{folder}/long.wav")
    check = ("check", "model=las", "data=audio_manifest", "data.table={folder}/one.tsv")
    maps = ("maps", *given, "--out", "{folder}/maps_las")
    yield Case(f"las: check, one of {HOURS} hours", check, files, before)
    yield Case(f"las: predict, {HOURS} hours", ["predict", *given], files, before)
    yield Case(f"las: maps, {HOURS} hours", maps, files, before)
    yield Case(
        f"las: --stream, {HOURS} hours",
        ["predict", "{folder}/stream/checkpoints/best.ckpt", "--stream", "{folder}/long.wav"],
        files,
        [trained("las", "audio_manifest", *stream, name="stream")],
    )


CASES: Sequence[Callable[[], Iterator[Case]]] = (of_texts, of_pictures, of_graphs, of_histories, of_sounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--most", type=float, default=3.0, help="GB of memory above which a command is ended")
    parser.add_argument("--seconds", type=float, default=600.0, help="seconds after which a command is ended")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures: --out=PATH")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        prepared: dict[str, Path] = {}
        for case in (case for cases in CASES for case in cases() if options.only in case.name):
            folder = Path(name) / str(len(prepared))
            key = repr((case.files.__qualname__, case.before or case.name))
            if key in prepared:
                folder = prepared[key]
            else:
                folder.mkdir()
                case.files(folder)
                for command in case.before:
                    ran = _run(_filled(command, folder), 10 * options.most, options.seconds)
                    assert ran["exit"] == 0, (case.name, ran)
                prepared[key] = folder
            ran = _run(_filled(case.command, folder), options.most, options.seconds)
            said = {name: ran[name].replace(f"{folder}/", "") for name in ("command", "said")}
            found.append({"case": case.name, **ran, **said})
            print("{case}: {peak_gb:.2f} GB, exit {exit}: {said}".format(**found[-1]), flush=True)
    command = shlex.join(["python", *(word for word in sys.argv if not word.startswith("--out"))])
    file({"cases": found, "command": command, "commit": find_commit()}, options.out)


def _filled(command: Sequence[str], folder: Path) -> list[str]:
    return [word.replace("{folder}", str(folder)) for word in command]


def _run(command: Sequence[str], most: float, seconds: float) -> dict[str, Any]:
    """Runs a command; returns its peak of memory, with that of its own processes, its exit code and last sentence."""
    started, peak, why = time.monotonic(), 0, ""
    with tempfile.TemporaryFile("w+") as said:
        run = [sys.executable, "-m", "zoo", *command]
        process = subprocess.Popen(run, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            if peak > most * 1e9 or time.monotonic() - started > seconds:
                why = f"ended above {most:g} GB" if peak > most * 1e9 else f"ended after {seconds:g} s"
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(_WAIT)
        code = process.wait()
        said.seek(0)
        lines = said.read().strip().splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    shown = " ".join(f"{word[:40]}..." if len(word) > 200 else word for word in command)
    return {
        "command": f"zoo {shown}",
        "peak_gb": round(peak / 1e9, 2),
        "seconds": round(time.monotonic() - started, 1),
        "exit": code,
        "said": why or last[:1000],
    }


def _resident(number: int) -> int:
    try:
        own = psutil.Process(number)
        return sum(each.memory_info().rss for each in (own, *own.children(recursive=True)))
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
