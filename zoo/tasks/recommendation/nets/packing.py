"""The last row of each user of a packed batch, whose attention need not be that of all rows."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import MultiHead
from zoo.tasks.packing import Packing, mix_sequences


def mixed_last(
    mixer: nn.Module, query: Float[Tensor, "n d"], source: Float[Tensor, "n d"], packing: Packing
) -> Float[Tensor, "b d"]:
    """The last row of each user of what `mix_sequences` returns: where it can be, the queries of these rows alone.

    Padding is then in front, so that each query stands at the last key. A site that narrows its support may count keys
    from the first, and a mixer reads one row after the other: they are given all.
    """
    if not isinstance(mixer, MultiHead) or getattr(mixer.attend, "restrict", None) is not None:
        return mix_sequences(mixer, query, source, packing)[packing.last]
    queries = mixer.query(query[packing.last])
    parts = (packing.to_groups(x, front=True) for x in (mixer.key(source), mixer.value(source)))
    users = [torch.tensor(group.sequences, device=packing.device) for group in packing.groups]
    context = [
        mixer.between(queries[of].unsqueeze(1), key, value, packing.last_support(group)).squeeze(1)
        for of, group, key, value in zip(users, packing.groups, *parts, strict=True)
    ]
    return cast("Tensor", mixer.out(torch.cat(context)[torch.cat(users).argsort()]))
