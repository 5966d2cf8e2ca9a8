"""A search space of text encoders in which each layer has widths of its own.

It follows DynaBERT (Hou et al. 2020) and HAT (Wang et al. 2020).
"""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.attention import HEAD, attend
from costmodel.training.corpora.nets.blocks import Residual

__all__ = ["elastic_bert"]

_EPSILON = 1e-12


def elastic_bert(vocabulary: int, length: int, width: int, layers: tuple[tuple[int, int], ...]) -> nn.Module:
    """Builds a network of the text encoder search space, which classifies texts into two classes.

    Args:
        vocabulary: Number of tokens in the vocabulary.
        length: Length of the text in tokens.
        width: Width of the embedding.
        layers: For each layer, the number of attention heads and the ratio of the feed-forward width to `width`.
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
    """The sum of token and position embeddings."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(1, length, width))

    def forward(self, ids: Tensor) -> Tensor:
        """Maps token ids of shape [batch, tokens] to embeddings of shape [batch, tokens, width]."""
        embedded: Tensor = self.tokens(ids) + self.positions
        return embedded


class _Attention(nn.Module):
    """Self-attention with separate projections for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.split = nn.ModuleList(nn.Linear(width, heads * HEAD) for _ in range(3))
        self.join = nn.Linear(heads * HEAD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to token vectors of the same shape."""
        query, key, value = (project(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for project in self.split)
        joined: Tensor = self.join(attend(query, key, value))
        return joined


class _First(nn.Module):
    """A module that selects the first token, which represents the whole text."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to that of the first token, [batch, width]."""
        return x[:, 0]
