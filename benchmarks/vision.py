"""Times vision networks against timm, torchvision and vit-pytorch: the same weights, interleaved.

    python benchmarks/vision.py                                   # all workloads, two threads
    python benchmarks/vision.py --workloads vit_small_pictures
    python benchmarks/vision.py --quick                           # a few turns on small batches: does it run?

Each workload copies our weights to every network and refuses to time a network whose logits differ. A training step is
forward, cross-entropy, backward and AdamW; inference is one pass without gradients. A workload in bfloat16 runs under
autocast, as with `trainer.precision=bf16-mixed`, with ours in float32 beside it. The roofline of a step is the time of
its matrix products at the rate that this processor reaches in one large product of that dtype.

The normalisation in the spatial gate of timm's CBAM and two norms of vit-pytorch are removed, because the papers do not
have them. Freed memory is kept between steps for all networks, as `zoo train` does (`--allocator default`: for none).
Peers are installed by benchmarks/peers.sh; missing ones are reported and left out. The output has medians and their
ratios to ours.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filing import command, file
from measuring import build_available
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from zoo.attention import CBAM, AttentionFactory, ScaledDot, Softmax, SqueezeExcitation
from zoo.memory import disable_malloc_trim
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.vit import ViT
from zoo.training.environment import find_commit

OURS = "ours"
SINGLE = "ours, float32"
CLASSES = 10
LARGEST_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Transformer:
    """The sizes of a ViT; the feed-forward networks are four times as wide as a token."""

    side: int
    patch: int
    dim: int
    layers: int
    heads: int
    batch: int
    dtype: torch.dtype = torch.float32

    def networks(self) -> dict[str, Callable[[], nn.Module]]:
        return {
            OURS: self.ours,
            "timm": partial(_timm_vit, self),
            "torchvision": partial(_torchvision_vit, self),
            "vit-pytorch": partial(_vit_pytorch, self),
        }

    def ours(self) -> nn.Module:
        return ViT(
            channels=3,
            height=self.side,
            width=self.side,
            classes=CLASSES,
            attend=AttentionFactory(score=ScaledDot, normalizer=Softmax),
            patch=self.patch,
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            hidden=4 * self.dim,
        )


@dataclass(frozen=True)
class Residual:
    """The sizes of a ResNet-18 with a 3x3 stem for pictures of 32 x 32, and a gate in each block."""

    gate: str
    side: int = 32
    batch: int = 64
    dtype: torch.dtype = torch.float32

    def networks(self) -> dict[str, Callable[[], nn.Module]]:
        return {
            OURS: self.ours,
            "timm": partial(_timm_resnet, self.gate),
            "timm, channels_last": partial(_timm_resnet, self.gate, channels_last=True),
        }

    def ours(self) -> nn.Module:
        gate = {"se": SqueezeExcitation, "cbam": CBAM}[self.gate]
        net = ResNet(channels=3, height=self.side, width=self.side, classes=CLASSES, depth=18, stem="small", gate=gate)
        return net.to(memory_format=torch.channels_last)


Workload = Transformer | Residual
WORKLOADS: dict[str, Workload] = {
    "se_resnet18": Residual("se"),
    "cbam_resnet18": Residual("cbam"),
    "vit_small_pictures": Transformer(side=32, patch=4, dim=192, layers=9, heads=12, batch=64),
    "vit_small_pictures_bf16": Transformer(
        side=32, patch=4, dim=192, layers=9, heads=12, batch=64, dtype=torch.bfloat16
    ),
    "vit_tiny": Transformer(side=224, patch=16, dim=192, layers=12, heads=3, batch=8),
}


def main() -> None:
    options = _options()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    if options.allocator == "keeping":
        disable_malloc_trim()
    result: dict[str, Any] = {"workloads": {}}
    for name in options.workloads:
        batch = 4 if options.quick else WORKLOADS[name].batch
        result["workloads"][name] = _measured(WORKLOADS[name], batch, 3 if options.quick else options.repeats)
        _show(name, result["workloads"][name])
    result |= {
        "threads": options.threads,
        "allocator": options.allocator,
        "torch": torch.__version__,
        "command": command(),
        "commit": find_commit(),
    }
    file(result, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=30, help="turns of each network")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--allocator", choices=("keeping", "default"), default="keeping", help="of freed memory")
    parser.add_argument("--quick", action="store_true", help="three turns on batches of 4")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file: --out=PATH")
    return parser.parse_args()


def _measured(workload: Workload, batch: int, repeats: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(batch, 3, workload.side, workload.side, generator=generator)
    labels = torch.randint(0, CLASSES, (batch,), generator=generator)
    networks, differences = _equal(workload, pixels)
    inputs = {name: _as_stored(network, pixels) for name, network in networks.items()}
    inference = {name: _inference(network, inputs[name], workload.dtype) for name, network in networks.items()}
    training = {name: _training(network, inputs[name], labels, workload.dtype) for name, network in networks.items()}
    if workload.dtype != torch.float32:
        inference[SINGLE] = _inference(networks[OURS], inputs[OURS], torch.float32)
        training[SINGLE] = _training(networks[OURS], inputs[OURS], labels, torch.float32)
    roofline = _roofline(networks[OURS], inputs[OURS], labels, workload.dtype)
    inference, training = (_interleaved(each, repeats) for each in (inference, training))
    return {
        "batch": batch,
        "dtype": str(workload.dtype).removeprefix("torch."),
        "training_roofline_ms": roofline,
        "training_ms": training,
        "inference_ms": inference,
        "training_ratio": _ratios(training),
        "inference_ratio": _ratios(inference),
        "largest_difference": differences,
    }


def _equal(workload: Workload, pixels: Tensor) -> tuple[dict[str, nn.Module], dict[str, float]]:
    """Returns all available networks with our weights, and the largest difference of their logits from ours."""
    torch.manual_seed(0)
    ours = workload.ours()
    _spread(ours)
    expected = _logits(ours, pixels)
    networks, differences = {OURS: ours}, {}
    peers = build_available({name: make for name, make in workload.networks().items() if name != OURS})
    for name, network in peers.items():
        network.load_state_dict(_renamed(ours.state_dict(), NAMES[type(workload), name.split(",")[0]], network))
        difference = (_logits(network, pixels) - expected).abs().max().item() / expected.abs().max().item()
        if not difference <= LARGEST_DIFFERENCE:
            raise SystemExit(f"{name} does not compute what ours computes: logits differ by {difference:.1e} of them")
        networks[name], differences[name] = network, difference
    return networks, differences


@torch.no_grad()
def _spread(network: nn.Module) -> None:
    """Randomises parameters that are zero or one, so that a weight that was not copied changes the logits."""
    for name, parameter in network.named_parameters():
        if parameter.dim() < 2 or not parameter.any():
            parameter.add_(0.1 * torch.randn_like(parameter))
        if name == "head.weight":
            parameter.mul_(10.0)


@torch.no_grad()
def _logits(network: nn.Module, pixels: Tensor) -> Tensor:
    return network.eval()(_as_stored(network, pixels))


def _as_stored(network: nn.Module, pixels: Tensor) -> Tensor:
    """Converts pixels to the memory format of the first convolution."""
    kernels = (each for each in network.parameters() if each.dim() == 4)
    is_last = any(each.is_contiguous(memory_format=torch.channels_last) for each in kernels)
    return pixels.to(memory_format=torch.channels_last) if is_last else pixels


def _training(network: nn.Module, pixels: Tensor, labels: Tensor, dtype: torch.dtype) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)

    def step() -> None:
        network.train()
        optimizer.zero_grad()
        with _autocast(dtype):
            loss = F.cross_entropy(network(pixels), labels)
        loss.backward()
        optimizer.step()

    return step


def _inference(network: nn.Module, pixels: Tensor, dtype: torch.dtype) -> Callable[[], None]:
    def run() -> None:
        network.eval()
        with torch.inference_mode(), _autocast(dtype):
            network(pixels)

    return run


def _autocast(dtype: torch.dtype) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)


def _roofline(network: nn.Module, pixels: Tensor, labels: Tensor, dtype: torch.dtype) -> float:
    """Returns the milliseconds of a step's matrix products at the best rate of a large product in that dtype."""
    with FlopCounterMode(display=False) as counted:
        F.cross_entropy(network.train()(pixels), labels).backward()
    network.zero_grad()
    side, seconds = 2048, []
    x = torch.randn(1, side, 1, side, dtype=dtype).contiguous(memory_format=torch.channels_last)
    weight, square = torch.randn(side, side, 1, 1, dtype=dtype), torch.randn(side, side, dtype=dtype)
    for product in (partial(F.conv2d, x, weight), partial(torch.mm, square, square)):
        for _ in range(6):
            started = time.perf_counter()
            product()
            seconds.append(time.perf_counter() - started)
    return round(counted.get_total_flops() / (2 * side**3 / min(seconds)) * 1e3, 2)


def _interleaved(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Returns median milliseconds; the networks take turns, so that other load on the machine affects them alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        # the second one starts with warm caches, so the order alternates too
        for name in sorted(runs, reverse=bool(turn % 2)):
            started = time.perf_counter()
            runs[name]()
            if turn >= 2:
                times[name].append((time.perf_counter() - started) * 1e3)
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def _ratios(milliseconds: dict[str, float]) -> dict[str, float]:
    found = {name: round(each / milliseconds[OURS], 3) for name, each in milliseconds.items() if name != OURS}
    peers = [ratio for name, ratio in found.items() if name != SINGLE]
    return found | ({"fastest peer": min(peers)} if peers else {})


def _timm_vit(of: Transformer) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=of.side,
        patch_size=of.patch,
        embed_dim=of.dim,
        depth=of.layers,
        num_heads=of.heads,
        num_classes=CLASSES,
    )


def _torchvision_vit(of: Transformer) -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(
        image_size=of.side,
        patch_size=of.patch,
        num_layers=of.layers,
        num_heads=of.heads,
        hidden_dim=of.dim,
        mlp_dim=4 * of.dim,
        num_classes=CLASSES,
    )


def _vit_pytorch(of: Transformer) -> nn.Module:
    """Makes vit-pytorch's ViT with the paper's biases of queries, keys and values, and without two additional norms."""
    from vit_pytorch import ViT as Peer

    network = Peer(
        image_size=of.side,
        patch_size=of.patch,
        num_classes=CLASSES,
        dim=of.dim,
        depth=of.layers,
        heads=of.heads,
        dim_head=of.dim // of.heads,
        mlp_dim=4 * of.dim,
    )
    network.to_patch_embedding[1] = network.to_patch_embedding[3] = nn.Identity()
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
        if hasattr(module, "to_qkv"):
            module.to_qkv = nn.Linear(of.dim, 3 * of.dim)
    return network


def _timm_resnet(gate: str, channels_last: bool = False) -> nn.Module:
    from timm.layers.cbam import CbamModule
    from timm.layers.squeeze_excite import SEModule
    from timm.models.resnet import BasicBlock
    from timm.models.resnet import ResNet as Peer

    layer = partial(SEModule, rd_divisor=1) if gate == "se" else partial(CbamModule, mlp_bias=True)
    network = Peer(BasicBlock, (2, 2, 2, 2), num_classes=CLASSES, block_args={"attn_layer": layer})
    network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    for module in network.modules():
        if isinstance(module, CbamModule):
            module.spatial.conv.bn = nn.Identity()
    return network.to(memory_format=torch.channels_last) if channels_last else network


_TIMM_VIT = {
    r"tokens\.class_token": "cls_token",
    r"tokens\.position\.embedding\.vectors": "pos_embed",
    r"tokens\.project": "patch_embed.proj",
    r"layers\.(\d+)\.mixed\.norm": r"blocks.\1.norm1",
    r"layers\.(\d+)\.fed\.norm": r"blocks.\1.norm2",
    r"layers\.(\d+)\.mixer\.out": r"blocks.\1.attn.proj",
    r"layers\.(\d+)\.mixer\.qkv": r"blocks.\1.attn.qkv",
    r"layers\.(\d+)\.feed_forward\.expand": r"blocks.\1.mlp.fc1",
    r"layers\.(\d+)\.feed_forward\.contract": r"blocks.\1.mlp.fc2",
}
_TORCHVISION_VIT = {
    r"tokens\.class_token": "class_token",
    r"tokens\.position\.embedding\.vectors": "encoder.pos_embedding",
    r"tokens\.project": "conv_proj",
    r"layers\.(\d+)\.mixed\.norm": r"encoder.layers.encoder_layer_\1.ln_1",
    r"layers\.(\d+)\.fed\.norm": r"encoder.layers.encoder_layer_\1.ln_2",
    r"layers\.(\d+)\.mixer\.out": r"encoder.layers.encoder_layer_\1.self_attention.out_proj",
    r"layers\.(\d+)\.mixer\.qkv\.": r"encoder.layers.encoder_layer_\1.self_attention.in_proj_",
    r"layers\.(\d+)\.feed_forward\.expand": r"encoder.layers.encoder_layer_\1.mlp.0",
    r"layers\.(\d+)\.feed_forward\.contract": r"encoder.layers.encoder_layer_\1.mlp.3",
    r"^norm": "encoder.ln",
    r"^head": "heads.head",
}
_VIT_PYTORCH = {
    r"tokens\.class_token": "cls_token",
    r"tokens\.position\.embedding\.vectors": "pos_embedding",
    r"tokens\.project": "to_patch_embedding.2",
    r"layers\.(\d+)\.mixed\.norm": r"transformer.layers.\1.0.norm",
    r"layers\.(\d+)\.fed\.norm": r"transformer.layers.\1.1.net.0",
    r"layers\.(\d+)\.mixer\.out": r"transformer.layers.\1.0.to_out.0",
    r"layers\.(\d+)\.mixer\.qkv": r"transformer.layers.\1.0.to_qkv",
    r"layers\.(\d+)\.feed_forward\.expand": r"transformer.layers.\1.1.net.1",
    r"layers\.(\d+)\.feed_forward\.contract": r"transformer.layers.\1.1.net.4",
    r"^norm": "transformer.norm",
    r"^head": "mlp_head",
}
_TIMM_RESNET = {
    r"gate\.(channel\.)?squeeze": r"se.\1fc1",
    r"gate\.(channel\.)?excite": r"se.\1fc2",
    r"gate\.spatial\.conv": "se.spatial.conv.conv",
    r"^head": "fc",
}
NAMES: dict[tuple[type, str], dict[str, str]] = {
    (Transformer, "timm"): _TIMM_VIT,
    (Transformer, "torchvision"): _TORCHVISION_VIT,
    (Transformer, "vit-pytorch"): _VIT_PYTORCH,
    (Residual, "timm"): _TIMM_RESNET,
}
"""Parameter names of each peer by our names."""


def _renamed(weights: dict[str, Tensor], names: dict[str, str], of: nn.Module) -> dict[str, Tensor]:
    """Renames and reshapes our weights for a peer; peers hold queries, keys and values in one tensor."""
    joined = {name: weight for name, weight in weights.items() if not re.search(r"mixer\.(query|key|value)\.", name)}
    for name in (name for name in weights if ".mixer.query." in name):
        parts = [weights[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
        joined[name.replace(".query.", ".qkv.")] = torch.cat(parts)
    found, shapes = {}, {name: tensor.shape for name, tensor in of.state_dict().items()}
    for name, weight in joined.items():
        for ours, theirs in names.items():
            name = re.sub(ours, theirs, name)
        if name == "to_patch_embedding.2.weight":  # the peer flattens a patch with channels last
            weight = weight.permute(0, 2, 3, 1)
        found[name] = weight.reshape(shapes[name])
    return found


def _show(name: str, found: dict[str, Any]) -> None:
    print(f"{name}, batch {found['batch']}")
    print(f"  {'':22}{'training ms':>12}{'inference ms':>14}{'training':>10}{'inference':>11}")
    for each, training in found["training_ms"].items():
        ratios = (found[key].get(each, 1.0) for key in ("training_ratio", "inference_ratio"))
        print(
            "  {:22}{:>12.1f}{:>14.1f}{:>9.2f}x{:>10.2f}x".format(each, training, found["inference_ms"][each], *ratios)
        )


if __name__ == "__main__":
    main()
