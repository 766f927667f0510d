"""Gives the parts of older configurations the names that they have today, and offers one for a name that is unknown.

Before format 3 a configuration named the modules of parts; since then it names what packages export, so that files may
move. Names that were changed since format 3 stand in `NAMES`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from zoo.errors import did_you_mean
from zoo.validation import ValidationError

DEEPEST = 64
"""Levels of nesting that a checkpoint may have."""
_MODULES = {
    "zoo.tasks.graph": "data module net",
    "zoo.tasks.vision": "cct data module resnet swin torchvision_cnn transforms vit",
    "zoo.tasks.recommendation": "click data din losses next_item protocol sasrec",
}
"""Package -> modules that are no longer part of its public names."""
_PUBLIC = {f"{package}.{module}.": f"{package}." for package, modules in _MODULES.items() for module in modules.split()}
_PUBLIC |= dict.fromkeys(("zoo.callbacks.", "zoo.loggers.", "zoo.optimisation."), "zoo.training.")
_PREFIX = "|".join([*map(re.escape, _PUBLIC), r"zoo\.attention\.[a-z_]+\."])
_OLD_MODULE = re.compile(rf"(?<![\w.])(?:{_PREFIX})(?=[A-Za-z]\w*(?![\w.]))")
NAMES = {
    "zoo.training.Average": "zoo.training.EMA",
    "zoo.training.Keeper": "zoo.training.CheckpointAndStop",
    "zoo.training.Optimisation": "zoo.optim.OptimizerConfig",
    "zoo.training.Schedule": "zoo.optim.LRSchedule",
    "zoo.attention.Attend": "zoo.attention.Attention",
    "zoo.attention.AttendFactory": "zoo.attention.AttentionFactory",
    "zoo.attention.SiteFactory": "zoo.attention.MechanismFactory",
    "zoo.attention.MultiHead": "zoo.attention.MultiheadAttention",
    "zoo.attention.SourceAttention": "zoo.attention.CrossAttention",
    "zoo.attention.TwoScores": "zoo.attention.ScorePair",
    "zoo.attention.NormalisedAdditive": "zoo.attention.NormalizedAdditive",
    "zoo.attention.Unnormalised": "zoo.attention.Unnormalized",
    "zoo.attention.RenormalisedDropout": "zoo.attention.RenormalizedDropout",
    "zoo.attention.HeadDisagreement": "zoo.attention.HeadSimilarity",
    "zoo.attention.Passing": "zoo.attention.NoStopPenalty",
    "zoo.attention.Memory": "zoo.attention.KVCache",
    "zoo.tasks.generation.Bahdanau": "zoo.nn.Bahdanau",
    "zoo.tasks.generation.InputFeeding": "zoo.nn.InputFeeding",
    "zoo.tasks.generation.Luong": "zoo.nn.Luong",
    "zoo.tasks.generation.Longest": "zoo.tasks.seq2seq.MaxLength",
    "zoo.tasks.generation.Reward": "zoo.tasks.seq2seq.ReinforceLoss",
    "zoo.tasks.generation.ScheduledSampling": "zoo.tasks.seq2seq.ScheduledSampling",
    "zoo.tasks.pictures.BackboneEncoder": "zoo.nn.BackboneEncoder",
    "zoo.tasks.pictures.PlainCNN": "zoo.nn.PlainCNN",
    "zoo.tasks.speech.ConvolutionalListener": "zoo.tasks.speech.ConvRNNEncoder",
    "zoo.tasks.speech.PyramidalListener": "zoo.tasks.speech.PyramidalRNNEncoder",
    "zoo.tasks.speech.TransformerListener": "zoo.tasks.speech.TransformerSpeechEncoder",
    "zoo.tasks.answering.CoAttentionAnswerer": "zoo.tasks.answering.HieCoAtt",
    "zoo.tasks.answering.HypothesisJudge": "zoo.tasks.answering.NLIClassifier",
    "zoo.tasks.answering.SpanReader": "zoo.tasks.answering.ExtractiveQA",
    "zoo.tasks.answering.PictureAnswerer": "zoo.tasks.answering.VQAClassifier",
    "zoo.tasks.recommendation.CandidateRanker": "zoo.tasks.recommendation.CTRTask",
    "zoo.tasks.recommendation.NextItem": "zoo.tasks.recommendation.NextItemTask",
}
"""Public name of format 3 or before -> public name today."""
_OLD_NAME = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, NAMES))})(?![\w.])")


def find_successor(target: str) -> str | None:
    """Returns the public name that took the place of an older one."""
    return NAMES.get(target)


_OPTIONS = {
    "callbacks.keeper.every_seconds": "callbacks.checkpoint.save_every_seconds",
    "callbacks.keeper": "callbacks.checkpoint",
    "attention.normalise": "attention.normalizer",
    "optimisation.rates": "optimization.lr_multipliers",
    "optimisation": "optimization",
    "scheduler.factor": "scheduler.gamma",
    "scheduler.floor": "scheduler.min_lr_ratio",
}
"""Option of format 3 or before -> option today; so it is with all options below it."""
_KEYS = {"optimisation": "optimization"}
"""Section, and argument of every task -> its name today."""
_ARGUMENTS = {
    "zoo.training.CheckpointAndStop": {"every_seconds": "save_every_seconds"},
    "zoo.optim.OptimizerConfig": {"rates": "lr_multipliers"},
    "zoo.attention.Attention": {"normalise": "normalizer"},
    "zoo.attention.AttentionFactory": {"normalise": "normalizer"},
    "zoo.attention.TargetAttention": {"normalise": "normalizer"},
    "zoo.optim.LRSchedule": {"factor": "gamma", "floor": "min_lr_ratio"},
}
"""Part -> its arguments whose names have changed."""


def find_option(key: str) -> str | None:
    """Returns the option that took the place of an older one; None if it has its name still."""
    for old, new in _OPTIONS.items():
        if key == old or key.startswith(f"{old}."):
            return f"{new}{key[len(old) :]}"
    return None


def iter_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Yields the dotted keys of a tree, those of mappings too."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from iter_keys(value, f"{prefix}{key}.")


def suggest_key(key: str, known_keys: Collection[str]) -> str:
    """Returns a sentence that offers a known key: its successor, or one with a similar last word or whole name."""
    if (successor := find_option(key)) in known_keys:
        return f"It is now {successor!r}."
    visible = {name for name in known_keys if not name.startswith("hydra") and "_target_" not in name}
    last_word = key.rsplit(".", 1)[-1]
    for name in sorted(visible):
        if name.rsplit(".", 1)[-1] == last_word:
            return f"Did you mean {name!r}?"
    siblings = {name for name in visible if name.rpartition(".")[0] == key.rpartition(".")[0]} or visible
    ends = {name.rsplit(".", 1)[-1]: name for name in sorted(visible, reverse=True)}
    closest = max(ends, key=lambda end: _compare_words(end, last_word))
    if _compare_words(closest, last_word) > max(0.7, *(_compare_words(name, key) for name in siblings)):
        return f"Did you mean {ends[closest]!r}?"
    return did_you_mean(key, siblings)


def _compare_words(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()


def upgrade_config(config: Any) -> Any:
    """Returns a stored configuration with the names of today: of its parts, of its options, and of its overrides."""
    config = _rename_arguments(upgrade_targets(config))
    if not isinstance(config, Mapping):
        return config
    callbacks, overrides = config.get("callbacks"), config.get("overrides")
    if isinstance(callbacks, Mapping) and "keeper" in callbacks:
        new_callbacks = {"checkpoint" if name == "keeper" else name: node for name, node in callbacks.items()}
        config = {**config, "callbacks": new_callbacks}
    if isinstance(overrides, list):
        config = {**config, "overrides": [_upgrade_override(override) for override in overrides]}
    return config


def _rename_arguments(node: Any) -> Any:
    if isinstance(node, Mapping):
        target = node.get("_target_")
        names = _KEYS | (_ARGUMENTS.get(target, {}) if isinstance(target, str) else {})
        return {names.get(key, key): _rename_arguments(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_rename_arguments(value) for value in node]
    return node


def _upgrade_override(override: Any) -> Any:
    key, separator, value = override.partition("=") if isinstance(override, str) else ("", "", "")
    successor = find_option(key)
    return override if successor is None else f"{successor}{separator}{value}"


def upgrade_targets(node: Any, depth: int = 0) -> Any:
    """Returns a configuration in which every part has its public name of today, also inside overrides."""
    if depth > DEEPEST:
        raise ValidationError(f"a configuration is nested more than {DEEPEST} levels deep")
    if isinstance(node, str):
        public = _OLD_MODULE.sub(lambda old: _PUBLIC.get(old[0], "zoo.attention."), node)
        return _OLD_NAME.sub(lambda old: NAMES[old[0]], public)
    if isinstance(node, Mapping):
        return {key: upgrade_targets(value, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [upgrade_targets(value, depth + 1) for value in node]
    return node
