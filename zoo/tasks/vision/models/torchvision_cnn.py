"""torchvision's convolutional classifiers with gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
import torchvision
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.models import get_model, list_models

from zoo.errors import did_you_mean
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.types import PositiveInt, validate_ranges


class _Family(NamedTuple):
    """Settings of the models whose names have one prefix.

    Args:
        at: Pattern of the modules that gates follow by default.
        kinds: Classes of these modules. Default: any.
        last_map: The module whose output the classifier reads.
    """

    at: str
    kinds: tuple[str, ...]
    last_map: str


_FAMILIES = {
    "alexnet": _Family("features.*", ("ReLU",), "features"),
    "convnext": _Family("features.*.*", ("CNBlock",), "features"),
    "densenet": _Family("features.denseblock*", (), "features"),
    "efficientnet": _Family("features.*.*", ("MBConv", "FusedMBConv"), "features"),
    "googlenet": _Family("inception*", (), "inception5b"),
    "inception": _Family("Mixed_*", (), "Mixed_7c"),
    "mnasnet": _Family("layers.*.*", ("_InvertedResidual",), "layers"),
    "mobilenet": _Family("features.*", ("InvertedResidual",), "features"),
    "regnet": _Family("trunk_output.*.*", ("ResBottleneckBlock",), "trunk_output"),
    "resnet18": _Family("layer?.*.bn2", (), "layer4"),
    "resnet34": _Family("layer?.*.bn2", (), "layer4"),
    "resnet": _Family("layer?.*.bn3", (), "layer4"),
    "resnext": _Family("layer?.*.bn3", (), "layer4"),
    "shufflenet": _Family("stage?.*", (), "conv5"),
    "vgg": _Family("features.*", ("ReLU",), "features"),
    "wide_resnet": _Family("layer?.*.bn3", (), "layer4"),
}
"""By default a gate is at the end of each residual branch, after each block, or in nets without blocks, each ReLU."""


def backbones() -> tuple[str, ...]:
    """Returns the names of torchvision's convolutional classifiers that end with a linear layer (not SqueezeNet)."""
    return tuple(name for name in list_models(module=torchvision.models) if name.startswith(tuple(_FAMILIES)))


@validate_ranges
class TorchvisionCNN(ImageClassifierNet):
    """A classifier of torchvision with a gate after some of its modules.

    The backbone keeps torchvision's parameter names, so that its weights load unchanged. For the same reason gates are
    in a module of their own, `gates`, and forward hooks call them: a wrapper would change names, and a child would be
    called by modules that call all their children. The last layer is `head`. Auxiliary classifiers are removed.

    Args:
        channels: Number of channels of the pictures, for the first convolution.
        height, width: Size of the pictures, which the backbone must be able to take.
        classes: Number of classes.
        backbone: One of `backbones()`.
        gate: `(channels) -> Module`.
        at: Patterns of the qualified names of modules that gates follow (`features.denseblock?`). Each part between
            dots is matched on its own: `layer1.*` matches the blocks of a stage, but not their modules. Default: the
            residual branches, blocks or ReLUs of the family.
    """

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        backbone: str,
        gate: Callable[..., nn.Module] = nn.Identity,
        at: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        family = _family(backbone)
        self.backbone = _make_backbone(backbone, channels, classes)
        self.head, self._head_name = _remove_head(self.backbone, classes)
        names = _match(self.backbone, backbone, at) if at is not None else _usual(self.backbone, family)
        outputs = _outputs(self.backbone, backbone, (2, channels, height, width))
        self.last_map = f"backbone.{family.last_map}"
        self.averages = not _has_layers_behind(self.backbone, family.last_map, list(outputs))
        self.gates = nn.ModuleDict()
        for name in names:
            made = gate(channels=_channels(name, outputs))
            self.gates[name.replace(".", "-")] = (
                made  # names of modules must not contain dots, and torchvision's contain no hyphens
            )
            self.backbone.get_submodule(name).register_forward_hook(_GateHook(made))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.head(self.backbone(x))
        return logits

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        """Computes the last map; if `averages`, the logits are `head` of its mean over the cells."""
        found: list[Tensor] = []
        assert self.last_map is not None
        with self.get_submodule(self.last_map).register_forward_hook(lambda _, __, out: found.append(out)):
            self.backbone(x)
        return found[0]

    def layer_groups(self) -> list[str]:
        """See `ImageClassifierNet`; the gates are second to last, before the head."""
        found = []
        for name, child in self.backbone.named_children():
            trunk = name in ("features", "layers", "trunk_output")
            parts = {f"{name}.{part}": inner for part, inner in child.named_children()} if trunk else {name: child}
            found += [f"backbone.{part}" for part, inner in parts.items() if any(True for _ in inner.parameters())]
        return [*found, *(["gates"] if any(True for _ in self.gates.parameters()) else []), "head"]

    def rename_weights(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Renames torchvision's weights of the backbone for this net."""
        head = f"{self._head_name}."
        auxiliary = ("AuxLogits.", "aux1.", "aux2.")
        return {
            f"head.{name.removeprefix(head)}" if name.startswith(head) else f"backbone.{name}": weight
            for name, weight in weights.items()
            if not name.startswith(auxiliary)
        }


class _GateHook:
    """A forward hook that gates the output of a module. Unlike a closure, it is copied together with its gate."""

    def __init__(self, gate: nn.Module) -> None:
        self.gate = gate

    def __call__(self, module: nn.Module, given: Any, output: Tensor) -> Tensor:
        gated: Tensor = self.gate(output)
        return gated


def _family(backbone: str) -> _Family:
    known = backbones()
    if backbone not in known:
        raise ValueError(
            f"backbone={backbone!r} is none of torchvision's convolutional nets. {did_you_mean(backbone, known)}"
        )
    prefixes = [prefix for prefix in _FAMILIES if backbone.startswith(prefix)]
    return _FAMILIES[max(prefixes, key=len)]


def _make_backbone(backbone: str, channels: int, classes: int) -> nn.Module:
    plain = {"aux_logits": False, "init_weights": True} if backbone in ("googlenet", "inception_v3") else {}
    # RegNets compute their widths with tensors, which have no values on meta
    device = torch.get_default_device()
    with torch.device("cpu") if backbone.startswith("regnet") else nullcontext():
        made: nn.Module = get_model(backbone, weights=None, num_classes=classes, **plain)
        if channels != 3:
            _take_channels(made, channels)
    return made.to(device)


def _take_channels(backbone: nn.Module, channels: int) -> None:
    name, old = next((n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d))
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    backbone.set_submodule(name, new)


def _remove_head(backbone: nn.Module, classes: int) -> tuple[nn.Linear, str]:
    """Replaces the last layer by the identity, and returns it with its name."""
    name, head = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Linear)][-1]
    assert head.out_features == classes, f"{name} is not the last layer"
    backbone.set_submodule(name, nn.Identity())
    return head, name


def _usual(backbone: nn.Module, family: _Family) -> list[str]:
    return [
        name
        for name, module in backbone.named_modules()
        if _fits(name, family.at) and (not family.kinds or type(module).__name__ in family.kinds)
    ]


def _match(backbone: nn.Module, called: str, patterns: Sequence[str]) -> list[str]:
    names = [name for name, _ in backbone.named_modules() if name]
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            raise ValueError(f"at: no module of {called} is called {pattern!r}. {did_you_mean(pattern, names)}")
    return [name for name in names if any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


@torch.no_grad()
def _outputs(backbone: nn.Module, called: str, shape: tuple[int, ...]) -> dict[str, list[Any]]:
    """Returns module -> its outputs, one for each call, as meta tensors, in the order in which modules finish."""
    outputs: dict[str, list[Any]] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: outputs.setdefault(name, []).append(out))
        for name, module in backbone.named_modules()
    ]
    was_training = backbone.training
    backbone.eval()
    state = {**dict(backbone.named_parameters()), **dict(backbone.named_buffers())}
    weightless = {name: tensor.to("meta") for name, tensor in state.items()}
    try:
        torch.func.functional_call(backbone, weightless, (torch.empty(shape, device="meta"),))
    except RuntimeError as error:
        size = f"{shape[2]}x{shape[3]}"
        raise ValueError(f"{called} cannot take pictures of {size} pixels, make them larger: {error}") from error
    finally:
        backbone.train(was_training)
        for hook in hooks:
            hook.remove()
    return outputs


def _channels(name: str, outputs: Mapping[str, list[Any]]) -> int:
    found = outputs.get(name, [])
    if len(found) != 1:
        raise ValueError(f"at: {name} runs {len(found)} times for a picture; a gate can follow a module that runs once")
    if not isinstance(found[0], Tensor) or found[0].dim() != 4:
        given = tuple(found[0].shape) if isinstance(found[0], Tensor) else type(found[0]).__name__
        raise ValueError(f"at: {name} gives {given}; a gate needs a map of (batch, channels, height, width)")
    return found[0].shape[1]


def _has_layers_behind(backbone: nn.Module, last_map: str, ran: Sequence[str]) -> bool:
    behind = ran[ran.index(last_map) + 1 :]
    return any(list(backbone.get_submodule(name).parameters(recurse=False)) for name in behind)
