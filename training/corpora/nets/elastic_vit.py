"""The search space of AutoFormer (Chen et al. 2021): vision transformers in which each layer has widths of its own.

Its position embeddings are absolute, as in other vision transformers; those of AutoFormer are relative.
"""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.attention import HEAD, attend
from costmodel.training.corpora.nets.blocks import Residual, conv

__all__ = ["elastic_vit"]

_PATCH = 16


def elastic_vit(size: int, width: int, layers: tuple[tuple[int, float], ...]) -> nn.Module:
    """Builds a network of the vision transformer search space, with 1000 classes.

    Args:
        size: Side of the image in pixels; a multiple of 16.
        width: Width of the embedding.
        layers: For each layer, the number of attention heads and the ratio of the MLP's width to `width`.
    """
    blocks: list[nn.Module] = []
    for heads, ratio in layers:
        inner = int(width * ratio)
        mlp = (nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), _Attention(width, heads))))
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), *mlp)))
    return nn.Sequential(_Patches(size, width), *blocks, nn.LayerNorm(width), _Mean(), nn.Linear(width, 1000))


class _Patches(nn.Module):
    """A patch embedding: makes tokens from the patches of an image, with a class token in front."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.project = conv(3, width, _PATCH, _PATCH, padding=0, bias=True)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (size // _PATCH) ** 2, width))

    def forward(self, image: Tensor) -> Tensor:
        """Maps an image of shape [1, 3, size, size] to tokens of shape [1, patches + 1, width]."""
        patches = self.project(image).flatten(2).transpose(1, 2)
        return torch.cat([self.token, patches], 1) + self.positions


class _Attention(nn.Module):
    """Self-attention with one joint projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.split = nn.Linear(width, 3 * heads * HEAD)
        self.join = nn.Linear(heads * HEAD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to token vectors of the same shape."""
        query, key, value = self.split(x).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4).unbind()
        joined: Tensor = self.join(attend(query, key, value))
        return joined


class _Mean(nn.Module):
    """A module that takes the mean of all tokens but the first."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to their mean without the first token, [batch, width]."""
        return x[:, 1:].mean(1)
