"""Heat maps: how much each cell of a net's grid contributes to the net's output, by one of these methods.

| method           | definition                                                       | nets                          |
|------------------|------------------------------------------------------------------|-------------------------------|
| rollout          | attention of all layers multiplied (Abnar & Zuidema 2020)        | tokens of one grid: ViT, CCT  |
| gradient_rollout | the same, weighted by the gradient of a class (Chefer et al. 2021) | the same                    |
| class_attention  | the class token's attention in the last layer                    | ViT with a class token        |
| pooling          | the weights of sequence pooling (Hassani et al. 2021)            | CCT                           |
| spatial_gate     | the spatial gate of the last block (Woo et al. 2018)             | CBAM                          |
| cam              | class activation map (Zhou et al. 2016)                          | head after a mean of features |
| gradient_cam     | the same, whatever follows the last map (Selvaraju et al. 2017)  | convolutional nets            |
| saliency         | the gradient of a class at the pixels (Simonyan et al. 2014)     | patches on a grid: Swin       |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import Attention, MultiheadAttention, SpatialGate, record, sites
from zoo.attention.linear.kernel_attention import KernelAttention
from zoo.maps.rollout import gradient_rollout, rollout
from zoo.nn.images.classifier import GridNet, ImageClassifierNet, TokenNet

How = Literal[
    "rollout", "gradient_rollout", "class_attention", "pooling", "spatial_gate", "cam", "gradient_cam", "saliency"
]
# Maximum number of weights in memory: 256 MB of float32 for the maps of all layers.
_NUMBERS = 1 << 26


class Explanation(NamedTuple):
    """The results of one pass over pictures.

    Args:
        logits: Logits of the classes.
        heat: Non-negative heat on the net's grid of cells; the sum over the cells of each picture is 1.
    """

    logits: Float[Tensor, "b classes"]
    heat: Float[Tensor, "b r c"]


def explanation(
    net: ImageClassifierNet, pixels: Float[Tensor, "b ch h w"], how: How, *, classes: Int[Tensor, " b"] | None = None
) -> Explanation:
    """Computes logits and heat in one forward pass, and for methods with gradients one backward pass.

    The heat of a picture may be 0 everywhere: a CAM is, if no cell is evidence for the class.

    Args:
        net: The net.
        pixels: A batch of normalised pictures.
        how: The method, see the table above. It must be one that `refusal` accepts for this net.
        classes: The class of each picture whose evidence is computed, for methods that have one. Default: the predicted
            class.
    """
    why_not = refusal(net, how)
    if why_not:
        raise ValueError(f"{how}: {why_not}")
    found = _METHODS[how].explain(net, pixels, classes)
    heat = found.heat.detach()
    total = heat.sum((1, 2), keepdim=True)
    return Explanation(found.logits.detach(), heat / total.masked_fill(total == 0.0, 1.0))


def heat(
    net: ImageClassifierNet, pixels: Float[Tensor, "b ch h w"], how: How, *, classes: Int[Tensor, " b"] | None = None
) -> Float[Tensor, "b r c"]:
    """Computes heat as `explanation` does, for as many pictures at a time as memory allows."""
    size, parts = pictures_at_once(net, pixels), []
    for start in range(0, len(pixels), size):
        of = None if classes is None else classes[start : start + size]
        parts.append(explanation(net, pixels[start : start + size], how, classes=of).heat)
    return torch.cat(parts)


def pictures_at_once(net: ImageClassifierNet, pixels: Float[Tensor, "b ch h w"]) -> int:
    """Returns the number of pictures whose maps of all layers fit into memory."""
    if not isinstance(net, TokenNet):
        return max(1, len(pixels))
    rows, columns = net.grid(pixels.shape[2], pixels.shape[3])
    heads = sum(module.heads for module in net.modules() if isinstance(module, MultiheadAttention))
    return max(1, _NUMBERS // int(max(1, heads) * (net.extra + rows * columns) ** 2))


def refusal(net: ImageClassifierNet, how: str) -> str | None:
    """Returns why a method is not defined for a net, or None if it is."""
    if how not in _METHODS:
        return f"there is no such map, write one of {', '.join(get_args(How))}"
    why_not = _METHODS[how].refusal(net)
    if why_not is None:
        return None
    others = [name for name, method in _METHODS.items() if method.refusal(net) is None]
    return f"{why_not}; write {' or '.join(others)}" if others else why_not


def default_map(net: ImageClassifierNet) -> How | None:
    """Returns the default method for a net: rollout, or a class activation map; None if it has neither.

    A spatial gate explains less than the class activation map of the same net: it also opens for features that do not
    contribute to the class.
    """
    order: tuple[How, ...] = ("rollout", "cam", "gradient_cam")
    return next((how for how in order if refusal(net, how) is None), None)


def gold_cells(gold: Bool[Tensor, "b h w"], grid: tuple[int, int]) -> Bool[Tensor, "b r*c"]:
    """Returns the gold cells of a grid: those whose share of gold pixels is at least half the greatest share.

    Cells that share pixels, because the grid does not divide the picture, are as in adaptive pooling.
    """
    share = F.adaptive_avg_pool2d(gold.float(), grid).flatten(1)
    most = share.amax(1, keepdim=True)
    return (share >= most / 2) & (share > 0)


class _Method(NamedTuple):
    explain: Callable[[Any, Tensor, Tensor | None], Explanation]
    refusal: Callable[[ImageClassifierNet], str | None]


def _rollout(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    with torch.no_grad(), record(net, implied=True) as maps:
        logits = net(pixels)
    product = rollout(maps[site].dense().float().mean(1) for site in _layers(net))
    pooled = None if net.pool_site is None else maps[net.pool_site].weights.float().mean(1)
    return Explanation(logits, _read_out(net, product, pooled, pixels))


def _gradient_rollout(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    with _gradients(pixels) as pixels:
        with record(net, grad=True) as maps:
            logits = net(pixels)
        found = {site: maps[site] for site in sites(net)}
        gradients = torch.autograd.grad(_score(logits, classes), [each.weights for each in found.values()])
    relevant = {
        site: replace(each, weights=(gradient * each.weights.detach()).relu()).dense().float().mean(1)
        for (site, each), gradient in zip(found.items(), gradients, strict=True)
    }
    product = gradient_rollout(relevant[site] for site in _layers(net))
    return Explanation(
        logits, _read_out(net, product, None if net.pool_site is None else relevant[net.pool_site], pixels)
    )


def _class_attention(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    last = _layers(net)[-1]
    with torch.no_grad(), record(net, layers=[last], implied=True) as maps:
        logits = net(pixels)
    return Explanation(logits, _to_cells(net, maps[last].dense().float().mean(1)[:, 0], pixels))


def _pooling_weights(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    assert net.pool_site is not None
    with torch.no_grad(), record(net, layers=[net.pool_site]) as maps:
        logits = net(pixels)
    return Explanation(logits, _to_cells(net, maps[net.pool_site].weights.float().mean((1, 2)), pixels))


def _spatial_gate(net: ImageClassifierNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    """Returns the gate of the last block, whose cells the head averages; it includes the effect of earlier gates."""
    last = _spatial_gates(net)[-1]
    with torch.no_grad(), record(net, layers=[last]) as maps:
        logits = net(pixels)
    return Explanation(logits, maps[last].weights.float())


def _cam(net: ImageClassifierNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    """relu(sum_k w_ck f_k(cell)) (Zhou et al. 2016, eq. 2); its mean without the ReLU is the logit less its bias."""
    with torch.no_grad():
        features = net.features(pixels).float()
        if features.shape[1] != net.head.in_features:
            raise ValueError(
                f"cam: the head reads {net.head.in_features} numbers and not the mean of {features.shape[1]} features"
            )
        by_class = torch.einsum("bdrc,kd->bkrc", features, net.head.weight.float())
        logits = by_class.mean((2, 3)) + (0.0 if net.head.bias is None else net.head.bias.float())
        of = logits.argmax(-1) if classes is None else classes
        return Explanation(logits, by_class[torch.arange(len(of), device=of.device), of].relu())


def _gradient_cam(net: ImageClassifierNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    """relu(sum_k a_k f_k(cell)), a_k the mean over cells of the logit's gradient (Selvaraju et al. 2017, eq. 1-2)."""
    found: list[Tensor] = []
    assert net.last_map is not None
    with _gradients(pixels) as pixels:
        with net.get_submodule(net.last_map).register_forward_hook(lambda _, __, out: found.append(out)):
            logits = net(pixels)
        (gradient,) = torch.autograd.grad(_score(logits, classes), found)
    weights = gradient.float().mean((2, 3), keepdim=True)
    return Explanation(logits, (weights * found[0].detach().float()).sum(1).relu())


def _saliency(net: GridNet, pixels: Tensor, classes: Tensor | None) -> Explanation:
    """max_channels |gradient of the logit at a pixel| (Simonyan et al. 2014, section 3.1), its mean over each cell.

    If a window covers the whole map, the features of a cell depend on all cells, so that a class activation map says
    little. The gradient still shows which pixels the logit depends on.
    """
    with _gradients(pixels) as pixels:
        logits = net(pixels)
        (gradient,) = torch.autograd.grad(_score(logits, classes), pixels)
    grid = net.grid(pixels.shape[2], pixels.shape[3])
    return Explanation(logits, F.adaptive_avg_pool2d(gradient.float().abs().amax(1), grid))


_METHODS: dict[str, _Method] = {
    "rollout": _Method(_rollout, lambda net: _refused_product(net, (Attention, KernelAttention))),
    "gradient_rollout": _Method(_gradient_rollout, lambda net: _refused_product(net, (Attention,))),
    "class_attention": _Method(_class_attention, lambda net: _refused_class_token(net)),
    "pooling": _Method(
        _pooling_weights,
        lambda net: None if isinstance(net, TokenNet) and net.pool_site else "the net has no sequence pooling",
    ),
    "spatial_gate": _Method(_spatial_gate, lambda net: None if _spatial_gates(net) else "the net has no spatial gate"),
    "cam": _Method(_cam, lambda net: None if net.averages else "the head does not read the mean of the features"),
    "gradient_cam": _Method(_gradient_cam, lambda net: None if net.last_map else "the net has no last map of features"),
    "saliency": _Method(_saliency, lambda net: None if isinstance(net, GridNet) else "the net has no grid of patches"),
}


@contextmanager
def _gradients(pixels: Tensor) -> Iterator[Tensor]:
    """Yields pixels that require gradients, with gradients enabled even if the caller has disabled them."""
    with torch.inference_mode(False), torch.enable_grad():
        yield pixels.detach().clone().requires_grad_(True)


def _score(logits: Float[Tensor, "b classes"], classes: Int[Tensor, " b"] | None) -> Float[Tensor, ""]:
    """Returns the sum of the logits of these classes, or of the predicted ones."""
    of = logits.argmax(-1) if classes is None else classes.clone()
    return logits.gather(1, of[:, None]).sum()


def _refused_product(net: ImageClassifierNet, kinds: tuple[type, ...]) -> str | None:
    if not isinstance(net, TokenNet):
        return "the net has no tokens that stay in place from layer to layer, so their maps cannot be multiplied"
    return _refused_sites(net, _layers(net), kinds)


def _refused_class_token(net: ImageClassifierNet) -> str | None:
    if not isinstance(net, TokenNet) or net.class_site is None:
        return "the net has no class token"
    return _refused_sites(net, _layers(net)[-1:], (Attention, KernelAttention))


def _refused_sites(net: ImageClassifierNet, names: Sequence[str], kinds: tuple[type, ...]) -> str | None:
    if not names:
        return "the net has no attention"
    for name in names:
        site = net.get_submodule(name)
        if not isinstance(site, kinds):
            return f"{name} is {type(site).__name__}, which has no weights that this map could be made of"
    return None


def _layers(net: TokenNet) -> list[str]:
    """Returns the sites at which tokens attend to each other, in order."""
    return [site for site in sites(net) if site != net.pool_site]


def _spatial_gates(net: ImageClassifierNet) -> list[str]:
    return [name for name, module in net.named_modules() if isinstance(module, SpatialGate)]


def _read_out(
    net: TokenNet, product: Float[Tensor, "b n n"], pooled: Float[Tensor, "b 1 n"] | None, pixels: Tensor
) -> Float[Tensor, "b r c"]:
    """Returns the heat of the head's input: the pooled tokens, the class token, or the mean of the cells."""
    if pooled is not None:
        tokens = (pooled @ product)[:, 0]
    else:
        tokens = product[:, 0] if net.class_site is not None else product[:, net.extra :].mean(1)
    return _to_cells(net, tokens, pixels)


def _to_cells(net: TokenNet, tokens: Float[Tensor, "b n"], pixels: Tensor) -> Float[Tensor, "b r c"]:
    return tokens[:, net.extra :].reshape(len(tokens), *net.grid(pixels.shape[2], pixels.shape[3]))
