"""Co-attention: two inputs that attend to each other.

Goes: a module of its own.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.attend import Attend
from zoo.attention.normalisers.soft import Softmax
from zoo.attention.scores.pairwise import Dot
from zoo.attention.supports.dense import DenseSupport


class CoAttention(nn.Module):
    """C = tanh(Q W V); each input is pooled with weights that depend on the other (Lu et al. 2016, eq. 3-5).

    H_v = tanh(V W_v + C^T (Q W_q)), H_q = tanh(Q W_q + C (V W_v)); weights softmax(H_v w_v) and softmax(H_q w_q).
    Positions are rows here and columns in the paper.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs.
        hidden: Width of H_v and H_q, the paper's k. Default: `dim`.
    """

    def __init__(self, *, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        self.affinity = nn.Linear(dim, dim, bias=False)
        self.of_first = nn.Linear(dim, hidden, bias=False)
        self.of_second = nn.Linear(dim, hidden, bias=False)
        self.query_first = nn.Parameter(torch.randn(hidden) * hidden**-0.5)
        self.query_second = nn.Parameter(torch.randn(hidden) * hidden**-0.5)
        self.first = Attend(Dot(), Softmax())
        self.second = Attend(Dot(), Softmax())

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """Returns one vector for each input, zeros for an empty one. Masks are True at real positions."""
        first, second = _cleaned(first, first_mask), _cleaned(second, second_mask)
        # padding was set to zero and these maps have no bias, so it adds nothing to the sums of the other input
        affinity = torch.tanh(self.affinity(second) @ first.mT)
        mine, other = self.of_first(first), self.of_second(second)
        key_first = torch.tanh(mine + affinity.mT @ other)
        key_second = torch.tanh(other + affinity @ mine)
        return (
            _read(self.first, self.query_first, key_first, first, first_mask),
            _read(self.second, self.query_second, key_second, second, second_mask),
        )


class TwoWayAttention(nn.Module):
    """L = A W B^T; A attends to B with the softmax of its rows, and B to A with the softmax of its columns.

    See Xiong et al. 2017, section 2.2; there W and a tanh belong to the question encoder, and each input has an
    additional sentinel. Each direction is dot-product attention on its own, so L itself is never stored.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.affinity = nn.Linear(dim, dim, bias=False)
        self.first = Attend(Dot(), Softmax())
        self.second = Attend(Dot(), Softmax())

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b m d"]]:
        """Returns the context of each position of `first` in `second`, and the reverse; zeros at padding."""
        first, second = _cleaned(first, first_mask), _cleaned(second, second_mask)
        mapped = self.affinity(first)
        read_first = _between(self.first, mapped, second, second, first_mask, second_mask)
        read_second = _between(self.second, second, mapped, first, second_mask, first_mask)
        return read_first, read_second


def _cleaned(x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b n d"]:
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, x.new_zeros(()))


def _read(
    attend: Attend,
    query: Float[Tensor, " k"],
    key: Float[Tensor, "b n k"],
    value: Float[Tensor, "b n d"],
    mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b d"]:
    support = DenseSupport() if mask is None else DenseSupport.from_key_mask(mask)
    one = query.to(key.dtype).expand(len(key), 1, 1, -1)
    return attend(one, key.unsqueeze(1), value.unsqueeze(1), support)[0].flatten(1)  # type: ignore[no-any-return]


def _between(
    attend: Attend,
    query: Float[Tensor, "b n d"],
    key: Float[Tensor, "b m d"],
    value: Float[Tensor, "b m d"],
    query_mask: Bool[Tensor, "b n"] | None,
    key_mask: Bool[Tensor, "b m"] | None,
) -> Float[Tensor, "b n d"]:
    permitted = None if key_mask is None else key_mask[:, None, None, :]
    if query_mask is not None:
        rows = query_mask[:, None, :, None]
        permitted = rows if permitted is None else rows & permitted
    inputs = (x.unsqueeze(1) for x in (query, key, value))
    return attend(*inputs, DenseSupport(permitted))[0].squeeze(1)  # type: ignore[no-any-return]
