"""Measures what the kernels for kinds of CPU gain end to end: training steps and decoding, with and without them.

    python benchmarks/cpu_kernels.py                  # all models, two threads, processor time
    python benchmarks/cpu_kernels.py --models ViT HAN --repeats 9

Each model is the default of its domain, on its default data and with its default batch. The sides take turns: all
kernels of `zoo.attention.cpu`, none of them, and all but one. The gain of a kernel is the time without it as a multiple
of that with all; 1.00 is no gain.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from filing import command, file
from measuring import CLOCKS, interleaved, parsed, timing_options
from steps import training

from zoo.attention.cpu import KERNELS, use_cpu_kernels
from zoo.config import compose
from zoo.memory import disable_malloc_trim
from zoo.tasks.base import Task
from zoo.training.environment import find_commit
from zoo.training.run_config import RunConfig
from zoo.training.setup import seed_generators, setup_data, setup_module


class Case(NamedTuple):
    """What is measured.

    Args:
        overrides: Words of the command that trains the model.
        kernels: Kernels that may be chosen in it.
        decodes: Whether texts are written, instead of a training step.
        batches: Number of batches of a turn, which have several lengths.
    """

    overrides: tuple[str, ...]
    kernels: tuple[str, ...]
    decodes: bool = False
    batches: int = 3


BFLOAT16 = "trainer.precision=bf16-mixed"
LONG = ("model=sasrec", "data.users=2000", "data.shortest=150", "data.longest=200", "data.length=200")
"""Histories as long as those of MovieLens in the paper."""
CASES = {
    "ViT": Case(("model=vit",), ("softmax",)),
    "ViT, bfloat16": Case(("model=vit", BFLOAT16), ("softmax",)),
    "SASRec": Case(("model=sasrec",), ("causal", "softmax")),
    "SASRec, 200 items": Case(LONG, ("causal", "softmax"), batches=1),
    "SASRec, 200 items, dropout of weights": Case((*LONG, "attention.dropout=0.2"), ("causal", "softmax"), batches=1),
    "SASRec, 200 items, bfloat16": Case((*LONG, BFLOAT16), ("causal", "softmax"), batches=1),
    "HAN": Case(("model=han",), ("tanh", "recurrence")),
    "NMT": Case(("model=nmt",), ("tanh", "recurrence")),
    "NMT, Luong": Case(("model=nmt", "decoder=luong"), ("tanh", "recurrence")),
    "NMT, Luong, translates": Case(("model=nmt", "decoder=luong"), ("tanh", "recurrence"), True, 1),
    "NMT, translates": Case(("model=nmt",), ("tanh", "recurrence"), True, 1),
    "Transformer NMT": Case(("model=transformer_nmt",), ("causal", "softmax")),
    "LAS": Case(("model=las",), ("tanh", "recurrence")),
    "LAS, transcribes": Case(("model=las",), ("tanh", "recurrence"), True, 1),
}


def main() -> None:
    parser = timing_options(__doc__, repeats=15, peak=1)
    parser.set_defaults(clock="processor")
    parser.add_argument("--models", nargs="+", choices=tuple(CASES), default=list(CASES), metavar="MODEL")
    options = parsed(parser)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    disable_malloc_trim()
    result: dict[str, Any] = {"models": {}}
    for name in options.models:
        found = result["models"][name] = measure(CASES[name], options.repeats, CLOCKS[options.clock])
        print(f"{name:28} {json.dumps(found)}", flush=True)
    result |= {"clock": options.clock, "threads": options.threads, "repeats": options.repeats}
    result |= {"torch": torch.__version__, "command": command(), "commit": find_commit()}
    file(result, options.out)


def measure(case: Case, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Returns milliseconds with all kernels and with none, and the gain of all and of each."""
    run = prepare(case)
    sides = {"all": tuple(KERNELS), "none": ()}
    sides |= {name: tuple(each for each in KERNELS if each != name) for name in case.kernels}
    times = interleaved({side: partial(run_with, run, kernels) for side, kernels in sides.items()}, repeats, clock)
    return {
        "milliseconds": {side: times[side] for side in ("all", "none")},
        "gain": round(times["none"] / times["all"], 2),
        "gains": {name: round(times[name] / times["all"], 2) for name in case.kernels},
    }


def prepare(case: Case) -> Callable[[], None]:
    """Returns a turn: training steps on some batches, or texts that are written for them."""
    config = RunConfig(compose.compose(list(case.overrides)))
    seed_generators(config)
    data = setup_data(config)
    module, _ = setup_module(config, data)
    batches = list(islice(iter(data.train_dataloader() if not case.decodes else data.loader("val")), case.batches))
    if case.decodes:
        module.eval()
        predict = module.predictor()
        return partial(decode, predict, batches)
    loss = partial(compute_loss, is_half=BFLOAT16 in case.overrides)
    return partial(run_all, [training(loss, module, batch) for batch in batches])


def compute_loss(module: Task, batch: Any, *, is_half: bool) -> torch.Tensor:
    """Computes the loss of the task's training step, in the precision of its run."""
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        found: Any = module.training_step(batch, 0)
    return found["loss"] if isinstance(found, dict) else found  # type: ignore[no-any-return]


def decode(predict: Callable[[Any], Any], batches: list[Any]) -> None:
    with torch.inference_mode():
        for batch in batches:
            predict(batch)


def run_all(steps: list[Callable[[], None]]) -> None:
    for step in steps:
        step()


def run_with(run: Callable[[], None], kernels: tuple[str, ...]) -> None:
    with use_cpu_kernels(*kernels):
        run()


if __name__ == "__main__":
    main()
