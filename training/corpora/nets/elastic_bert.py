"""The spaces of DynaBERT (Hou et al. 2020) and HAT (Wang et al. 2020): text encoders whose layers differ in width."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.attention import HEAD, attend
from costmodel.training.corpora.nets.blocks import Residual

__all__ = ["elastic_bert"]

_EPSILON = 1e-12


def elastic_bert(vocabulary: int, length: int, width: int, layers: tuple[tuple[int, int], ...]) -> nn.Module:
    """A network of the space that tells two classes apart.

    Args:
        vocabulary: How many tokens there are.
        length: Of the text, in tokens.
        width: Of the embedding.
        layers: Heads and FFN ratio of each.
    """
    blocks: list[nn.Module] = []
    for heads, ratio in layers:
        ffn = nn.Sequential(nn.Linear(width, width * ratio), nn.GELU(), nn.Linear(width * ratio, width))
        blocks += [Residual(branch, after=_norm(width)) for branch in (_Attention(width, heads), ffn)]
    head = (_First(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
    return nn.Sequential(_Embedding(vocabulary, length, width), _norm(width), *blocks, *head)


def _norm(width: int) -> nn.Module:
    return nn.LayerNorm(width, _EPSILON)


class _Embedding(nn.Module):
    """Of tokens and their positions."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(1, length, width))

    def forward(self, ids: Tensor) -> Tensor:
        """Has shape [batch, tokens, width]."""
        embedded: Tensor = self.tokens(ids) + self.positions
        return embedded


class _Attention(nn.Module):
    """Queries, keys and values of a projection each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.split = nn.ModuleList(nn.Linear(width, heads * HEAD) for _ in range(3))
        self.join = nn.Linear(heads * HEAD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Has the shape of `x`, [batch, tokens, width]."""
        query, key, value = (project(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for project in self.split)
        joined: Tensor = self.join(attend(query, key, value))
        return joined


class _First(nn.Module):
    """The first token, which stands for all."""

    def forward(self, x: Tensor) -> Tensor:
        """Has shape [batch, width]."""
        return x[:, 0]
