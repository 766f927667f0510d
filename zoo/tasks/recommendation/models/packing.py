"""Attention of the last row of each sequence in a packed batch, without that of the other rows."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import MultiheadAttention
from zoo.nn.packing import Packing, mix_sequences


def mix_last(
    mixer: nn.Module, query: Float[Tensor, "n d"], source: Float[Tensor, "n d"], packing: Packing
) -> Float[Tensor, "b d"]:
    """Returns the last row of each user in the result of `mix_sequences`; if possible, it computes these queries only.

    Padding is then at the start, so that each query is at the last key. All rows are computed for attention that
    restricts its support, which may count keys from the first one, for attention that depends on that of earlier
    queries, and for mixers other than `MultiheadAttention`.
    """
    if (
        not isinstance(mixer, MultiheadAttention)
        or mixer.attend.is_stateful
        or getattr(mixer.attend, "restrict", None) is not None
    ):
        return mix_sequences(mixer, query, source, packing)[packing.last]
    queries = mixer.query(query[packing.last])
    parts = (packing.to_groups(x, front=True) for x in (mixer.key(source), mixer.value(source)))
    users = [torch.tensor(group.sequences, device=packing.device) for group in packing.groups]
    context = [
        mixer.attend_projected(queries[of].unsqueeze(1), key, value, packing.last_support(group)).squeeze(1)
        for of, group, key, value in zip(users, packing.groups, *parts, strict=True)
    ]
    return cast("Tensor", mixer.out(torch.cat(context)[torch.cat(users).argsort()]))
