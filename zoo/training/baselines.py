"""`zoo baseline`: simple answers on the splits and by the metrics of a run, and what the end of a run says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.config import checks, compose
from zoo.errors import ConfigError
from zoo.io import write_text
from zoo.tasks.base import Task, TaskData
from zoo.training import summary
from zoo.training.run_config import RunConfig
from zoo.training.setup import build_task, seed_generators, setup_data, silence_lightning

Result = Mapping[str, Any]
"""Name, metrics and seconds of a baseline."""


def compose_with_model(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the configuration of a command, with a model that fits if it names none."""
    keys = {override.partition("=")[0] for override in overrides}
    if keys & {"model", "experiment"}:
        return compose.compose(overrides)
    data = compose.get_value(overrides, "data")
    if data is None:
        raise ConfigError("say which data: zoo baseline data=NAME ..., with the options of zoo train")
    models = checks.find_models(data)
    if not models:
        raise ConfigError(f"data={data}: no model is trained on such data; say which: model=NAME")
    return compose.compose([f"model={models[0]}", *overrides])


def run(overrides: Sequence[str]) -> Path:
    """Measures all baselines, prints them, and writes them to a JSON file."""
    silence_lightning()
    tree = compose_with_model(overrides)
    checks.check(tree)
    config = RunConfig(tree)
    seed_generators(config)
    data = setup_data(config)
    module = build_task(config, data)
    name = tree["names"]["data"]
    results = list(measure(module, data))
    if not results:
        raise ConfigError(f"there is no baseline for data={name}")
    result = {"data": name, "command": f"zoo baseline {' '.join(overrides)}", "baselines": results}
    folder = Path(tree["run_dir"] or Path(tree["paths"]["runs"]) / f"baseline-{name}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "baseline.json"
    write_text(path, json.dumps(result, indent=2) + "\n")
    summary.show_rows(
        [{"": row["name"], **_select_shown(row["metrics"]), "seconds": row["seconds"]} for row in results],
        f"on {name}",
    )
    print(f"In {path}")
    return path


def measure(module: Task, data: TaskData, *, only_cheap: bool = False) -> Iterator[Result]:
    """Yields the results of the baselines of a model's data."""
    for baseline in module.baselines(data):
        if baseline.is_cheap or not only_cheap:
            start = time.process_time()
            metrics = baseline.measure()
            yield {"name": baseline.name, "metrics": dict(metrics), "seconds": round(time.process_time() - start, 1)}


def describe(module: Task, result: Mapping[str, Any], baselines: Sequence[Result]) -> Iterator[str]:
    """Yields a sentence for each baseline that a model does not beat by the metric that chooses its weights.

    Args:
        module: The model.
        result: The metrics of the run.
        baselines: Their results.
    """
    metric = f"test/{module.primary.partition('/')[2]}"
    popular = {key.replace("popularity_", ""): value for key, value in result.items() if "/popularity_" in key}
    for baseline in [*baselines, {"name": "popularity", "metrics": popular, "seconds": 0.0}]:
        value, score = baseline["metrics"].get(metric), result.get(metric)
        if value is None or score is None:
            continue
        if (score < value) if module.primary_mode == "max" else (score > value):
            yield (
                f"{baseline['name']} does better ({metric} {value:.4f} against {score:.4f} of the model), at the cost "
                f"of {baseline['seconds']:.1f} s of processor time"
            )
        elif score == value:
            yield f"the model is no better than {baseline['name']}: {metric} {score:.4f} of both"


def _select_shown(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics of the test split, or of val if it has no examples."""
    tests = {name: value for name, value in metrics.items() if name.startswith("test/")}
    return tests or dict(metrics)
