"""Heat over a picture: how much each place of a net's grid has to do with what the net says.

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

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Attend, MultiHead, Pooling, SpatialGate, record, sites
from zoo.attention.weightless.linear import KernelAttention
from zoo.maps.rollout import gradient_rollout, rollout

How = Literal[
    "rollout", "gradient_rollout", "class_attention", "pooling", "spatial_gate", "cam", "gradient_cam", "saliency"
]
# Weights at a time: 256 MB of fp32 for the maps of all layers.
_NUMBERS = 1 << 26


def heat(
    net: nn.Module, pixels: Float[Tensor, "b ch h w"], how: How, *, classes: Int[Tensor, " b"] | None = None
) -> Float[Tensor, "b r c"]:
    """Where a net looks, on its own grid; no place is negative, and each picture sums to 1.

    A picture without any heat (no place speaks for the class of a CAM, say) is 0 everywhere.

    Args:
        how: See the table above. `refusal` says beforehand what a net cannot give.
        classes: Of what class, for maps that are of one; the predicted one if not given.
    """
    why_not = refusal(net, how)
    if why_not:
        raise ValueError(f"{how}: {why_not}")
    size, parts = _at_once(net, pixels), []
    for start in range(0, len(pixels), size):
        of = None if classes is None else classes[start : start + size]
        parts.append(_METHODS[how].heat(net, pixels[start : start + size], of))
    found = torch.cat(parts).detach()
    total = found.sum((1, 2), keepdim=True)
    return found / total.masked_fill(total == 0.0, 1.0)


def refusal(net: nn.Module, how: str) -> str | None:
    """Why a net cannot give this map, in one sentence; None where it can."""
    if how not in _METHODS:
        return f"there is no such map, write one of {', '.join(get_args(How))}"
    why_not = _METHODS[how].refusal(net)
    if why_not is None:
        return None
    others = [name for name, method in _METHODS.items() if method.refusal(net) is None]
    return f"{why_not}; write {' or '.join(others)}" if others else why_not


def usual(net: nn.Module) -> How | None:
    """The map that says most of a net: rollout, or that of a class; None if it has none of them.

    A spatial gate says less than the class map of its net: much that it lets through does not count.
    """
    order: tuple[How, ...] = ("rollout", "cam", "gradient_cam")
    return next((how for how in order if refusal(net, how) is None), None)


def gold_places(gold: Bool[Tensor, "b h w"], grid: tuple[int, int]) -> Bool[Tensor, "b r*c"]:
    """Which places of a grid are gold: those with at least half the gold pixels, by share, of the place with most.

    A picture that the grid does not divide is shared out by area, as adaptive pooling does.
    """
    share = F.adaptive_avg_pool2d(gold.float(), grid).flatten(1)
    most = share.amax(1, keepdim=True)
    return (share >= most / 2) & (share > 0)


def is_of_tokens(net: nn.Module) -> bool:
    """Whether tokens of a picture stay in place from layer to layer."""
    return hasattr(net, "grid") and hasattr(net, "extra") and not hasattr(net, "windows")


def has_class_token(net: Any) -> bool:
    """Whether the head reads a token of its own, the first one."""
    return getattr(net, "class_site", None) is not None


def pooling_site(net: nn.Module) -> str | None:
    """The site of sequence pooling."""
    found = [f"{name}.attend" for name, module in net.named_modules() if isinstance(module, Pooling)]
    return found[0] if found else None


class _Method(NamedTuple):
    heat: Callable[[Any, Tensor, Tensor | None], Tensor]
    refusal: Callable[[Any], str | None]


def _rollout(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    with torch.no_grad(), record(net, implied=True) as maps:
        net(pixels)
    product = rollout(maps[site].dense().float().mean(1) for site in _layers(net))
    pool = pooling_site(net)
    return _read_out(net, product, None if pool is None else maps[pool].weights.float().mean(1), pixels)


def _gradient_rollout(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    # Gradients are needed wherever this is called from, and of the pixels, as parameters may be frozen.
    with torch.inference_mode(False), torch.enable_grad():
        pixels = pixels.detach().clone().requires_grad_(True)
        with record(net, grad=True) as maps:
            logits = net(pixels)
        classes = logits.argmax(-1) if classes is None else classes.clone()
        pool = pooling_site(net)
        found = {site: maps[site] for site in (*_layers(net), *([pool] if pool else []))}
        score = logits.gather(1, classes[:, None]).sum()
        gradients = torch.autograd.grad(score, [each.weights for each in found.values()])
    relevant = {
        site: replace(each, weights=(gradient * each.weights.detach()).relu()).dense().float().mean(1)
        for (site, each), gradient in zip(found.items(), gradients, strict=True)
    }
    product = gradient_rollout(relevant[site] for site in _layers(net))
    return _read_out(net, product, None if pool is None else relevant[pool], pixels)


def _class_attention(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    last = _layers(net)[-1]
    with torch.no_grad(), record(net, layers=[last], implied=True) as maps:
        net(pixels)
    return _of_patches(net, maps[last].dense().float().mean(1)[:, 0], pixels)


def _pooling_weights(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    site = pooling_site(net)
    assert site is not None
    with torch.no_grad(), record(net, layers=[site]) as maps:
        net(pixels)
    return _of_patches(net, maps[site].weights.float().mean((1, 2)), pixels)


def _spatial_gate(net: nn.Module, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    """Of the last block, whose places the head averages; what earlier gates let through, later ones see."""
    last = _spatial_gates(net)[-1]
    with torch.no_grad(), record(net, layers=[last]) as maps:
        net(pixels)
    return maps[last].weights.float()


def _cam(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    """relu(sum_k w_ck f_k(place)) (Zhou et al. 2016, eq. 2): the sum over places, without the ReLU, is the logit."""
    with torch.no_grad():
        features = net.features(pixels).float()
        if features.shape[1] != net.head.in_features:
            raise ValueError(
                f"cam: the head reads {net.head.in_features} numbers and not the mean of {features.shape[1]} features"
            )
        by_class = torch.einsum("bdrc,kd->bkrc", features, net.head.weight.float())
        if classes is None:
            bias = 0.0 if net.head.bias is None else net.head.bias.float()
            classes = (by_class.mean((2, 3)) + bias).argmax(-1)
        return by_class[torch.arange(len(classes), device=classes.device), classes].relu()


def _gradient_cam(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    """relu(sum_k a_k f_k(place)), a_k the mean over places of the logit's gradient (Selvaraju et al. 2017, eq. 1-2)."""
    found: list[Tensor] = []
    with torch.inference_mode(False), torch.enable_grad():
        pixels = pixels.detach().clone().requires_grad_(True)
        with net.get_submodule(net.last_map).register_forward_hook(lambda _, __, out: found.append(out)):
            logits = net(pixels)
        classes = logits.argmax(-1) if classes is None else classes.clone()
        (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), found)
    weights = gradient.float().mean((2, 3), keepdim=True)
    return (weights * found[0].detach().float()).sum(1).relu()


def _saliency(net: Any, pixels: Tensor, classes: Tensor | None) -> Float[Tensor, "b r c"]:
    """max_channels |gradient of the logit at a pixel| (Simonyan et al. 2014, section 3.1), its mean over each place.

    Where windows cover a whole map, what was seen at one place is found at all of them: evidence by place then says
    little, but which pixels it depends on is still to be seen.
    """
    with torch.inference_mode(False), torch.enable_grad():
        pixels = pixels.detach().clone().requires_grad_(True)
        logits = net(pixels)
        classes = logits.argmax(-1) if classes is None else classes.clone()
        (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), pixels)
    return F.adaptive_avg_pool2d(gradient.float().abs().amax(1), net.grid(*pixels.shape[-2:]))


_METHODS: dict[str, _Method] = {
    "rollout": _Method(_rollout, lambda net: _refused_product(net, (Attend, KernelAttention))),
    "gradient_rollout": _Method(_gradient_rollout, lambda net: _refused_product(net, (Attend,))),
    "class_attention": _Method(_class_attention, lambda net: _refused_class_token(net)),
    "pooling": _Method(_pooling_weights, lambda net: None if pooling_site(net) else "the net has no sequence pooling"),
    "spatial_gate": _Method(_spatial_gate, lambda net: None if _spatial_gates(net) else "the net has no spatial gate"),
    "cam": _Method(_cam, lambda net: _refused_cam(net)),
    "gradient_cam": _Method(
        _gradient_cam, lambda net: None if hasattr(net, "last_map") else "the net has no last map of features"
    ),
    "saliency": _Method(_saliency, lambda net: None if hasattr(net, "grid") else "the net has no grid of patches"),
}


def _refused_product(net: nn.Module, kinds: tuple[type, ...]) -> str | None:
    if not is_of_tokens(net):
        return "the net has no tokens that stay in place from layer to layer, so their maps cannot be multiplied"
    return _refused_sites(net, _layers(net), kinds)


def _refused_class_token(net: Any) -> str | None:
    if not is_of_tokens(net) or not has_class_token(net):
        return "the net has no class token"
    return _refused_sites(net, _layers(net)[-1:], (Attend, KernelAttention))


def _refused_sites(net: nn.Module, names: Sequence[str], kinds: tuple[type, ...]) -> str | None:
    if not names:
        return "the net has no attention"
    for name in names:
        site = net.get_submodule(name)
        if not isinstance(site, kinds):
            return f"{name} is {type(site).__name__}, which has no weights that this map could be made of"
    return None


def _refused_cam(net: Any) -> str | None:
    if not hasattr(net, "features") or not isinstance(getattr(net, "head", None), nn.Linear):
        return "the net has no features with a linear head"
    if has_class_token(net) or pooling_site(net) or not getattr(net, "averages", True):
        return "the head does not read the mean of the features"
    return None


def _layers(net: nn.Module) -> list[str]:
    """The sites at which tokens attend to each other, in order."""
    return [site for site in sites(net) if site != pooling_site(net)]


def _spatial_gates(net: nn.Module) -> list[str]:
    return [name for name, module in net.named_modules() if isinstance(module, SpatialGate)]


def _read_out(
    net: Any, product: Float[Tensor, "b n n"], pooled: Float[Tensor, "b 1 n"] | None, pixels: Tensor
) -> Float[Tensor, "b r c"]:
    """Of the patches, what the head reads: the pooled tokens, the class token, or the mean of the patches."""
    if pooled is not None:
        tokens = (pooled @ product)[:, 0]
    else:
        tokens = product[:, 0] if has_class_token(net) else product[:, net.extra :].mean(1)
    return _of_patches(net, tokens, pixels)


def _of_patches(net: Any, tokens: Float[Tensor, "b n"], pixels: Tensor) -> Float[Tensor, "b r c"]:
    return tokens[:, net.extra :].reshape(len(tokens), *net.grid(*pixels.shape[-2:]))


def _at_once(net: Any, pixels: Tensor) -> int:
    """So many pictures that the maps of all layers fit into memory."""
    if not is_of_tokens(net):
        return max(1, len(pixels))
    rows, columns = net.grid(*pixels.shape[-2:])
    heads = sum(module.heads for module in net.modules() if isinstance(module, MultiHead))
    return max(1, _NUMBERS // int(max(1, heads) * (net.extra + rows * columns) ** 2))
