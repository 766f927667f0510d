"""Heat over a picture: how much each cell of a net's grid has to do with what the net says.

| how              | what it is                                                       | nets                          |
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

from zoo.attention import Attend, MultiHead, SpatialGate, record, sites
from zoo.attention.weightless.linear import KernelAttention
from zoo.maps.rollout import gradient_rollout, rollout
from zoo.tasks.vision.nets.picture_net import GridNet, PictureNet, TokenNet

How = Literal[
    "rollout", "gradient_rollout", "class_attention", "pooling", "spatial_gate", "cam", "gradient_cam", "saliency"
]
# Weights at a time: 256 MB of fp32 for the maps of all layers.
_NUMBERS = 1 << 26


class Look(NamedTuple):
    """The results of one pass over pictures.

    Args:
        logits: Of the classes.
        heat: Where the net looked, on its own grid of cells; none is negative, and each picture sums to 1.
    """

    logits: Float[Tensor, "b classes"]
    heat: Float[Tensor, "b r c"]


def look(
    net: PictureNet, pixels: Float[Tensor, "b ch h w"], how: How, *, classes: Int[Tensor, " b"] | None = None
) -> Look:
    """Passes over a batch, with the scored map of the same pass; maps that need a gradient take a backward pass too.

    A picture without any heat (no cell speaks for the class of a CAM, say) is 0 everywhere.

    Args:
        how: See the table above. `refusal` says beforehand what a net cannot give.
        classes: Of what class, for maps that are of one; the predicted one if not given.
    """
    why_not = refusal(net, how)
    if why_not:
        raise ValueError(f"{how}: {why_not}")
    found = _METHODS[how].look(net, pixels, classes)
    heat = found.heat.detach()
    total = heat.sum((1, 2), keepdim=True)
    return Look(found.logits.detach(), heat / total.masked_fill(total == 0.0, 1.0))


def heat(
    net: PictureNet, pixels: Float[Tensor, "b ch h w"], how: How, *, classes: Int[Tensor, " b"] | None = None
) -> Float[Tensor, "b r c"]:
    """Where a net looks: see `look`. So many pictures at a time that the maps of all layers fit into memory."""
    size, parts = at_once(net, pixels), []
    for start in range(0, len(pixels), size):
        of = None if classes is None else classes[start : start + size]
        parts.append(look(net, pixels[start : start + size], how, classes=of).heat)
    return torch.cat(parts)


def at_once(net: PictureNet, pixels: Float[Tensor, "b ch h w"]) -> int:
    """So many pictures that the maps of all layers fit into memory."""
    if not isinstance(net, TokenNet):
        return max(1, len(pixels))
    rows, columns = net.grid(pixels.shape[2], pixels.shape[3])
    heads = sum(module.heads for module in net.modules() if isinstance(module, MultiHead))
    return max(1, _NUMBERS // int(max(1, heads) * (net.extra + rows * columns) ** 2))


def refusal(net: PictureNet, how: str) -> str | None:
    """Why a net cannot give this map, in one sentence; None where it can."""
    if how not in _METHODS:
        return f"there is no such map, write one of {', '.join(get_args(How))}"
    why_not = _METHODS[how].refusal(net)
    if why_not is None:
        return None
    others = [name for name, method in _METHODS.items() if method.refusal(net) is None]
    return f"{why_not}; write {' or '.join(others)}" if others else why_not


def usual(net: PictureNet) -> How | None:
    """The map that says most of a net: rollout, or that of a class; None if it has none of them.

    A spatial gate says less than the class map of its net: much that it lets through does not count.
    """
    order: tuple[How, ...] = ("rollout", "cam", "gradient_cam")
    return next((how for how in order if refusal(net, how) is None), None)


def gold_cells(gold: Bool[Tensor, "b h w"], grid: tuple[int, int]) -> Bool[Tensor, "b r*c"]:
    """Which cells of a grid are gold: those with at least half the gold pixels, by share, of the cell with most.

    A picture that the grid does not divide is shared out by area, as adaptive pooling does.
    """
    share = F.adaptive_avg_pool2d(gold.float(), grid).flatten(1)
    most = share.amax(1, keepdim=True)
    return (share >= most / 2) & (share > 0)


class _Method(NamedTuple):
    look: Callable[[Any, Tensor, Tensor | None], Look]
    refusal: Callable[[PictureNet], str | None]


def _rollout(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Look:
    with torch.no_grad(), record(net, implied=True) as maps:
        logits = net(pixels)
    product = rollout(maps[site].dense().float().mean(1) for site in _layers(net))
    pooled = None if net.pool_site is None else maps[net.pool_site].weights.float().mean(1)
    return Look(logits, _read_out(net, product, pooled, pixels))


def _gradient_rollout(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Look:
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
    return Look(logits, _read_out(net, product, None if net.pool_site is None else relevant[net.pool_site], pixels))


def _class_attention(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Look:
    last = _layers(net)[-1]
    with torch.no_grad(), record(net, layers=[last], implied=True) as maps:
        logits = net(pixels)
    return Look(logits, _of_cells(net, maps[last].dense().float().mean(1)[:, 0], pixels))


def _pooling_weights(net: TokenNet, pixels: Tensor, classes: Tensor | None) -> Look:
    assert net.pool_site is not None
    with torch.no_grad(), record(net, layers=[net.pool_site]) as maps:
        logits = net(pixels)
    return Look(logits, _of_cells(net, maps[net.pool_site].weights.float().mean((1, 2)), pixels))


def _spatial_gate(net: PictureNet, pixels: Tensor, classes: Tensor | None) -> Look:
    """Of the last block, whose cells the head averages; what earlier gates let through, later ones see."""
    last = _spatial_gates(net)[-1]
    with torch.no_grad(), record(net, layers=[last]) as maps:
        logits = net(pixels)
    return Look(logits, maps[last].weights.float())


def _cam(net: PictureNet, pixels: Tensor, classes: Tensor | None) -> Look:
    """relu(sum_k w_ck f_k(cell)) (Zhou et al. 2016, eq. 2): the sum over cells, without the ReLU, is the logit."""
    with torch.no_grad():
        features = net.features(pixels).float()
        if features.shape[1] != net.head.in_features:
            raise ValueError(
                f"cam: the head reads {net.head.in_features} numbers and not the mean of {features.shape[1]} features"
            )
        by_class = torch.einsum("bdrc,kd->bkrc", features, net.head.weight.float())
        logits = by_class.mean((2, 3)) + (0.0 if net.head.bias is None else net.head.bias.float())
        of = logits.argmax(-1) if classes is None else classes
        return Look(logits, by_class[torch.arange(len(of), device=of.device), of].relu())


def _gradient_cam(net: PictureNet, pixels: Tensor, classes: Tensor | None) -> Look:
    """relu(sum_k a_k f_k(cell)), a_k the mean over cells of the logit's gradient (Selvaraju et al. 2017, eq. 1-2)."""
    found: list[Tensor] = []
    assert net.last_map is not None
    with _gradients(pixels) as pixels:
        with net.get_submodule(net.last_map).register_forward_hook(lambda _, __, out: found.append(out)):
            logits = net(pixels)
        (gradient,) = torch.autograd.grad(_score(logits, classes), found)
    weights = gradient.float().mean((2, 3), keepdim=True)
    return Look(logits, (weights * found[0].detach().float()).sum(1).relu())


def _saliency(net: GridNet, pixels: Tensor, classes: Tensor | None) -> Look:
    """max_channels |gradient of the logit at a pixel| (Simonyan et al. 2014, section 3.1), its mean over each cell.

    Where windows cover a whole map, what was seen in one cell is found in all of them: evidence by cell then says
    little, but which pixels it depends on is still to be seen.
    """
    with _gradients(pixels) as pixels:
        logits = net(pixels)
        (gradient,) = torch.autograd.grad(_score(logits, classes), pixels)
    grid = net.grid(pixels.shape[2], pixels.shape[3])
    return Look(logits, F.adaptive_avg_pool2d(gradient.float().abs().amax(1), grid))


_METHODS: dict[str, _Method] = {
    "rollout": _Method(_rollout, lambda net: _refused_product(net, (Attend, KernelAttention))),
    "gradient_rollout": _Method(_gradient_rollout, lambda net: _refused_product(net, (Attend,))),
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
    """Pixels with gradients, wherever this is called from: parameters may be frozen, and gradients switched off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield pixels.detach().clone().requires_grad_(True)


def _score(logits: Float[Tensor, "b classes"], classes: Int[Tensor, " b"] | None) -> Float[Tensor, ""]:
    """The sum of the logits of these classes, or of the predicted ones."""
    of = logits.argmax(-1) if classes is None else classes.clone()
    return logits.gather(1, of[:, None]).sum()


def _refused_product(net: PictureNet, kinds: tuple[type, ...]) -> str | None:
    if not isinstance(net, TokenNet):
        return "the net has no tokens that stay in place from layer to layer, so their maps cannot be multiplied"
    return _refused_sites(net, _layers(net), kinds)


def _refused_class_token(net: PictureNet) -> str | None:
    if not isinstance(net, TokenNet) or net.class_site is None:
        return "the net has no class token"
    return _refused_sites(net, _layers(net)[-1:], (Attend, KernelAttention))


def _refused_sites(net: PictureNet, names: Sequence[str], kinds: tuple[type, ...]) -> str | None:
    if not names:
        return "the net has no attention"
    for name in names:
        site = net.get_submodule(name)
        if not isinstance(site, kinds):
            return f"{name} is {type(site).__name__}, which has no weights that this map could be made of"
    return None


def _layers(net: TokenNet) -> list[str]:
    """The sites at which tokens attend to each other, in order."""
    return [site for site in sites(net) if site != net.pool_site]


def _spatial_gates(net: PictureNet) -> list[str]:
    return [name for name, module in net.named_modules() if isinstance(module, SpatialGate)]


def _read_out(
    net: TokenNet, product: Float[Tensor, "b n n"], pooled: Float[Tensor, "b 1 n"] | None, pixels: Tensor
) -> Float[Tensor, "b r c"]:
    """Of the cells, what the head reads: the pooled tokens, the class token, or the mean of the cells."""
    if pooled is not None:
        tokens = (pooled @ product)[:, 0]
    else:
        tokens = product[:, 0] if net.class_site is not None else product[:, net.extra :].mean(1)
    return _of_cells(net, tokens, pixels)


def _of_cells(net: TokenNet, tokens: Float[Tensor, "b n"], pixels: Tensor) -> Float[Tensor, "b r c"]:
    return tokens[:, net.extra :].reshape(len(tokens), *net.grid(pixels.shape[2], pixels.shape[3]))
