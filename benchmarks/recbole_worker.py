"""Runs RecBole's SASRec in a separate process and interpreter, on commands of benchmarks/recommendation.py.

    PYTHON recbole_worker.py '{"pairs": "ml-1m.txt", "folder": "/tmp/x", "loss": "CE", ...}'

It reads one JSON object per line and answers with one. RecBole switches anomaly detection on when it is imported; here
it is switched off. RecBole 1.2.1 needs numpy<2, pandas<3, scipy<1.14 and setuptools<81.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # keep RecBole's output out of the answers

import torch  # noqa: E402
from recbole.config import Config  # noqa: E402
from recbole.data import create_dataset, data_preparation  # noqa: E402
from recbole.data.dataloader import FullSortEvalDataLoader  # noqa: E402
from recbole.utils import get_model, get_trainer, init_seed  # noqa: E402


class Worker:
    """Holds a RecBole model, its trainer and its data."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        _write_table(Path(options["pairs"]), Path(options["folder"]) / "ml" / "ml.inter")
        sampled = options["loss"] == "BPR"
        config = Config(
            model="SASRec",
            dataset="ml",
            config_dict={
                "data_path": options["folder"],
                "checkpoint_dir": options["folder"],
                "USER_ID_FIELD": "user_id",
                "ITEM_ID_FIELD": "item_id",
                "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
                "MAX_ITEM_LIST_LENGTH": options["length"],
                "loss_type": options["loss"],
                "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1} if sampled else None,
                "eval_args": {
                    "split": {"LS": "valid_and_test"},
                    "order": "TO",
                    "group_by": None,
                    "mode": "full",
                },
                "metrics": ["NDCG", "Hit"],
                "topk": [10],
                "valid_metric": "NDCG@10",
                "hidden_size": options["dim"],
                "inner_size": options["dim"],
                "n_layers": options["layers"],
                "n_heads": 1,
                "hidden_dropout_prob": options["dropout"],
                "attn_dropout_prob": options["dropout"],
                "train_batch_size": options["batch"],
                "learning_rate": options["rate"],
                "use_gpu": False,
                "show_progress": False,
                "state": "ERROR",
                "worker": 0,
                "seed": options["seed"],
                "reproducibility": False,
            },
        )
        self.config = config
        torch.autograd.set_detect_anomaly(False)
        init_seed(config["seed"], False)
        dataset = create_dataset(config)
        self.train_data, self.valid_data, _ = data_preparation(config, dataset)
        self.model = get_model("SASRec")(config, self.train_data.dataset)
        self.trainer = get_trainer(config["MODEL_TYPE"], "SASRec")(config, self.model)
        self.batches = iter(())

    def ready(self) -> dict[str, Any]:
        """Returns the sizes of model and data."""
        return {
            "targets": len(self.train_data.dataset),
            "users": len(self.valid_data.dataset),
            "parameters": sum(each.numel() for each in self.model.parameters()),
            "anomaly detection": torch.is_anomaly_enabled(),
            "torch": torch.__version__,
        }

    def train(self, steps: int) -> dict[str, Any]:
        """Returns the seconds of each step without its loader, and of both together."""
        self.model.train()
        seconds, targets, began = [], 0, time.perf_counter()
        for _ in range(steps):
            batch = self._next()
            started = time.perf_counter()
            self.trainer.optimizer.zero_grad()
            loss = self.model.calculate_loss(batch)
            loss.backward()
            self.trainer.optimizer.step()
            seconds.append(time.perf_counter() - started)
            targets += len(batch)
            if not math.isfinite(loss.item()):
                raise ValueError("the loss is not finite")
        return {"seconds": seconds, "targets": targets, "with_loader": time.perf_counter() - began}

    def evaluate(self, users: int) -> dict[str, Any]:
        """Ranks all items for the validation users in batches, with RecBole's trainer."""
        self.config["eval_batch_size"] = users
        loader = FullSortEvalDataLoader(self.config, self.valid_data.dataset, None)
        started = time.perf_counter()
        found = self.trainer.evaluate(loader, load_best_model=False, show_progress=False)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "users": len(self.valid_data.dataset), "ndcg@10": float(found["ndcg@10"])}

    def _next(self) -> Any:
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.train_data)
            return next(self.batches)


def _write_table(pairs: Path, table: Path) -> None:
    """Writes RecBole's format; the number of a line replaces its timestamp, which the file does not have."""
    table.parent.mkdir(parents=True, exist_ok=True)
    with pairs.open() as lines, table.open("w") as out:
        out.write("user_id:token\titem_id:token\ttimestamp:float\n")
        for place, line in enumerate(lines):
            user, item = line.split()
            out.write(f"{user}\t{item}\t{place}\n")


def main() -> None:
    worker = Worker(json.loads(sys.argv[1]))
    commands = {"train": worker.train, "evaluate": worker.evaluate}
    _say(worker.ready())
    for line in sys.stdin:
        command = json.loads(line)
        _say(commands[command.pop("do")](**command))


def _say(answer: dict[str, Any]) -> None:
    _ANSWERS.write(json.dumps(answer) + "\n")
    _ANSWERS.flush()


if __name__ == "__main__":
    main()
