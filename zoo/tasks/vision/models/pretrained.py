"""Weights that torchvision publishes, with the parameter names of our nets.

`torchvision:resnet50` names the default weights of a model, `torchvision:resnet50:IMAGENET1K_V1` others. Each family of
nets has a function that renames the entries of a state dict, independent of files and nets.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum, get_model, get_model_weights

from zoo.data.download import fetch
from zoo.errors import ConfigError, DataError, did_you_mean
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.swin import Swin
from zoo.tasks.vision.models.torchvision_cnn import TorchvisionCNN, backbones
from zoo.tasks.vision.models.vit import ViT

State = Mapping[str, Tensor]

log = logging.getLogger(__name__)


def load_published(name: str, net: nn.Module) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Loads published weights for a net, and the names of the labels of its head.

    Parameters that torchvision's net does not have (gates, other mechanisms) are missing. Weights have their published
    sizes: the caller interpolates positions (`net.resize_parameter`) and matches the rows of the head by label.

    Args:
        name: `torchvision:MODEL`, or `torchvision:MODEL:WEIGHTS`.
        net: The net that the weights are for.

    Returns:
        Weights by parameter name, and label names in the order of the head's rows.

    Raises:
        ConfigError: There are no such weights, or they do not fit this net.
        OfflineError: The file cannot be downloaded. The message says which file to place where.
        DataError: The file is not the published one.
    """
    model, weights = _weights(name)
    family = _family(net)
    if model not in family.models:
        raise ConfigError(f"init={name}: this net is a {type(net).__name__}. {did_you_mean(model, family.models)}")
    file = _file(weights)
    state = _check_weights(_read(file), model, weights, file)
    renamed = net.rename_weights(state) if isinstance(net, TorchvisionCNN) else family.rename(state)
    strange = sorted(set(renamed) - set(net.state_dict()))
    if strange:
        raise ConfigError(f"init={name}: this net has no {strange[0]}; write {family.models[model]}")
    log.info("%s was trained with %s", name, _describe_preprocessing(model, weights))
    return renamed, tuple(weights.meta["categories"])


def resnet_names(state: State) -> dict[str, Tensor]:
    """Renames weights of torchvision's ResNet for `ResNet`: only the last layer differs."""
    return {_replace_prefix(name, {"fc.": "head."}): weight for name, weight in state.items()}


def vit_names(state: State) -> dict[str, Tensor]:
    """Renames weights of torchvision's VisionTransformer for `ViT`, which projects queries, keys and values apart."""
    known = {
        "class_token": "tokens.class_token",
        "conv_proj.": "tokens.project.",
        "encoder.ln.": "norm.",
        "heads.head.": "head.",
    }
    block = {
        "ln_1.": "mixed.norm.",
        "self_attention.out_proj.": "mixer.out.",
        "ln_2.": "fed.norm.",
        "mlp.0.": "feed_forward.expand.",
        "mlp.3.": "feed_forward.contract.",
    }
    renamed: dict[str, Tensor] = {}
    for name, weight in state.items():
        if name == "encoder.pos_embedding":
            renamed["tokens.position.embedding.vectors"] = weight[0]
        elif found := re.fullmatch(r"encoder\.layers\.encoder_layer_(\d+)\.(.+)", name):
            layer, rest = f"layers.{found[1]}", found[2]
            if rest.startswith("self_attention.in_proj_"):
                renamed |= _split(f"{layer}.mixer", rest.removeprefix("self_attention.in_proj_"), weight)
            else:
                renamed[f"{layer}.{_replace_prefix(rest, block)}"] = weight
        else:
            renamed[_replace_prefix(name, known)] = weight
    return renamed


def swin_names(state: State) -> dict[str, Tensor]:
    """Renames weights of torchvision's SwinTransformer, which numbers blocks by stage, for `Swin`, which does not."""
    block = {
        "norm1.": "mixed.norm.",
        "attn.proj.": "mixer.out.",
        "norm2.": "fed.norm.",
        "mlp.0.": "feed_forward.expand.",
        "mlp.3.": "feed_forward.contract.",
    }
    merge = {"reduction.": "reduce."}
    renamed: dict[str, Tensor] = {}
    seen: dict[str, int] = {}
    for name, weight in state.items():
        stage, _, rest = name.removeprefix("features.").partition(".")
        if not name.startswith("features.") or stage == "0":
            renamed[_replace_prefix(name, {"features.0.": "patches."})] = weight
        elif int(stage) % 2 == 0:  # a merge; its number counts the blocks before it
            renamed[f"merges.{len(seen)}.{_replace_prefix(rest, merge)}"] = weight
        else:
            number, _, rest = rest.partition(".")
            layer = f"layers.{seen.setdefault(f'{stage}.{number}', len(seen))}"
            if rest.startswith("attn.qkv."):
                renamed |= _split(f"{layer}.mixer", rest.removeprefix("attn.qkv."), weight)
            elif rest == "attn.relative_position_bias_table":
                side = round(len(weight) ** 0.5)
                renamed[f"{layer}.mixer.attend.position.table"] = weight.T.reshape(-1, side, side)
            elif rest != "attn.relative_position_index":  # computed from the window
                renamed[f"{layer}.{_replace_prefix(rest, block)}"] = weight
    return renamed


class _Family(NamedTuple):
    """Models of torchvision, each with the options of a net that equals it, and a function that renames weights."""

    models: Mapping[str, str]
    rename: Callable[[State], dict[str, Tensor]] = dict


_HUGE = "model.net.dim=1280 model.net.layers=32 model.net.heads=16 model.net.hidden=5120"
_FAMILIES: dict[type[nn.Module], _Family] = {
    ResNet: _Family({f"resnet{depth}": f"model.size=resnet{depth}" for depth in (18, 34, 50, 101, 152)}, resnet_names),
    ViT: _Family(
        {
            "vit_b_16": "model.size=base model.net.patch=16",
            "vit_b_32": "model.size=base model.net.patch=32",
            "vit_l_16": "model.size=large model.net.patch=16",
            "vit_l_32": "model.size=large model.net.patch=32",
            "vit_h_14": f"{_HUGE} model.net.patch=14",
        },
        vit_names,
    ),
    Swin: _Family({f"swin_{size[0]}": f"model.size={size}" for size in ("tiny", "small", "base")}, swin_names),
    TorchvisionCNN: _Family({backbone: f"model.backbone={backbone}" for backbone in backbones()}),
}
_CENTRED = ("googlenet", "inception_v3")
"""Models with pixels from -1 to 1; torchvision converts ImageNet's normalisation within these nets."""


def _family(net: nn.Module) -> _Family:
    for kind, family in _FAMILIES.items():
        if isinstance(net, kind):
            return family
    kinds = ", ".join(kind.__name__ for kind in _FAMILIES)
    raise ConfigError(f"there are published weights for {kinds}; this net is a {type(net).__name__}")


def _weights(name: str) -> tuple[str, WeightsEnum]:
    """Returns the name of torchvision's model, and its weights, for `torchvision:MODEL[:WEIGHTS]`."""
    source, _, rest = name.partition(":")
    model, _, version = rest.partition(":")
    if source != "torchvision":
        raise ConfigError(f"init={name}: published weights are torchvision's, write torchvision:resnet50, say")
    known = [each for family in _FAMILIES.values() for each in family.models]
    if model not in known:
        raise ConfigError(f"init={name}: there is no model {model!r}. {did_you_mean(model, known)}")
    versions = get_model_weights(model)
    if version and version not in versions.__members__:
        raise ConfigError(
            f"init={name}: {model} has no weights {version!r}. {did_you_mean(version, versions.__members__)}"
        )
    return model, versions[version or "DEFAULT"]


def _file(weights: WeightsEnum) -> Path:
    """Returns the file in torchvision's own cache, downloaded if missing; its name ends with the start of its hash."""
    name = weights.url.rpartition("/")[2]
    found = torch.hub.HASH_REGEX.search(name)
    return fetch(
        weights.url,
        Path(torch.hub.get_dir(), "checkpoints", name),
        sha256=found[1] if found else None,
        root="$TORCH_HOME to the folder that holds hub/checkpoints",
    )


def _read(file: Path) -> Any:
    """Reads tensors; any other object in the file is refused before it is created."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{file} is damaged, or holds other things than weights ({reason}). Delete it, and it is downloaded anew."
        ) from error


def _check_weights(state: Any, model: str, weights: WeightsEnum, file: Path) -> dict[str, Tensor]:
    """Loads the weights into torchvision's own net, which also converts the names in older files."""
    options: dict[str, Any] = {}
    if model.startswith("vit"):
        options["image_size"] = weights.meta["min_size"][0]
    if model in _CENTRED:
        options["init_weights"] = False
    # RegNets compute their widths with tensors, which have no values on meta
    with torch.device("cpu" if model.startswith("regnet") else "meta"):
        net = get_model(model, weights=None, **options)
    try:
        if model.startswith("densenet"):  # files have norm.1 where nets have norm1
            state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2", name): x for name, x in state.items()}
        net.load_state_dict(state, assign=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} does not hold the weights of torchvision's {model}. Delete it, and it is downloaded anew."
        ) from error
    return dict(net.state_dict())


def _describe_preprocessing(model: str, weights: WeightsEnum) -> str:
    """Returns the options that preprocess pictures as in the training of the published weights."""
    used = weights.transforms()
    mean, std = ([0.5] * 3, [0.5] * 3) if model in _CENTRED else (used.mean, used.std)
    numbers = {"mean": mean, "std": std}
    shown = " ".join(f"data.{name}=[{','.join(map(str, values))}]" for name, values in numbers.items())
    return f"data.height={used.crop_size[0]} data.width={used.crop_size[0]} {shown}"


def _split(site: str, kind: str, weight: Tensor) -> dict[str, Tensor]:
    """Splits one projection of queries, keys and values into three."""
    parts = zip(("query", "key", "value"), weight.chunk(3), strict=True)
    return {f"{site}.{part}.{kind}": each for part, each in parts}


def _replace_prefix(name: str, prefixes: Mapping[str, str]) -> str:
    """Replaces the first matching prefix of a name."""
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
