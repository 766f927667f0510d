"""Text of recordings while they arrive, compared with greedy search over the whole, and for how long tokens wait.

    python benchmarks/streaming.py runs/.../checkpoints/best.ckpt --out streaming.json

It reads test recordings of the checkpoint's own data set in blocks of frames, as `zoo predict --stream` reads sound.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from trained import data_of, parsed

from zoo.io import write_text
from zoo.tasks.speech.streaming_decoder import Streaming, Token
from zoo.training.environment import find_commit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=100, metavar="N", help="the first N of the test split")
    parser.add_argument("--block", type=int, default=10, metavar="FRAMES", help="frames that arrive at once")
    parser.add_argument(
        "--lengths", type=float, nargs="+", metavar="SECONDS", help="measure recordings of these lengths"
    )
    options, module = parsed(parser)
    if options.lengths is not None:
        _show_lengths(module, data_of(module.about, options.root), options.lengths, options.block)
        return
    found = _measured(module, data_of(module.about, options.root), options.recordings, options.block)
    for name, value in found.items():
        print(f"{name:18}{value:.4g}")
    if options.out is not None:
        command = "python benchmarks/streaming.py runs/.../checkpoints/best.ckpt"
        command += f" --recordings {options.recordings} --block {options.block}"
        names, seed = module.about["config"]["names"], module.about["config"]["seed"]
        about = {"model": names, "seed": seed, **found, "command": command, "commit": find_commit()}
        write_text(options.out, json.dumps(about, indent=2) + "\n")


def _measured(module: Any, data: Any, recordings: int, block: int) -> dict[str, float]:
    """Returns the share of recordings whose texts are equal, and the frames that tokens waited for."""
    torch.set_num_threads(1)
    same, waited, frames, seconds = list[bool](), list[int](), 0, 0.0
    for batch in data.loader("test"):
        whole = module.write(batch, module.writing.greedy())
        for number in range(min(len(batch), recordings - len(same))):
            x = batch.source.features[number, : int(batch.source.lengths[number])]
            started = time.process_time()
            tokens = _streamed(module, x, block)
            seconds, frames = seconds + time.process_time() - started, frames + len(x)
            same.append(tuple(token.number for token in tokens) == whole[number][0].tokens)
            waited += [token.waited for token in tokens]
        if len(same) == recordings:
            break
    of_sound = frames * data.features.hop
    return {
        "recordings": len(same),
        "same_as_greedy": sum(same) / len(same),
        "tokens": len(waited),
        "mean_wait": sum(waited) / max(1, len(waited)),
        "longest_wait": max(waited, default=0),
        "seconds_of_sound": of_sound,
        "times_real_time": of_sound / seconds,
    }


def _show_lengths(module: Any, data: Any, lengths: list[float], block: int) -> None:
    """Prints the processor time of recordings of these lengths, which are test recordings one after another."""
    torch.set_num_threads(1)
    batches = [batch.source for batch in data.loader("test")]
    rows = [x[: int(length)] for each in batches for x, length in zip(each.features, each.lengths, strict=True)]
    sound = torch.cat(rows)
    for seconds in lengths:
        count = round(seconds / data.features.hop)
        x = sound.repeat(-(-count // len(sound)), 1)[:count]
        started = time.process_time()
        tokens = _streamed(module, x, block)
        print(f"{seconds:8g} s of sound: {len(tokens):,} tokens, {time.process_time() - started:.1f} s of a processor")


def _streamed(module: Any, x: torch.Tensor, block: int) -> list[Token]:
    streaming, found = Streaming(module.net, module.writing), list[Token]()
    for start in range(0, len(x), block):
        found += streaming.hear(x[start : start + block].numpy())
    return found + streaming.hear(x[:0].numpy(), last=True)


if __name__ == "__main__":
    main()
