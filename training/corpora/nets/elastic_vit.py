"""The search space of AutoFormer (Chen et al. 2021): vision transformers with widths for each layer.

Unlike AutoFormer's, the positions are absolute rather than relative, as in any other vision transformer.
"""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.attention import HEAD, attend
from costmodel.training.corpora.nets.blocks import Residual, conv

__all__ = ["elastic_vit"]

_PATCH = 16


def elastic_vit(size: int, width: int, layers: tuple[tuple[int, float], ...]) -> nn.Module:
    """Build a network of the space with 1000 classes.

    Args:
        size: Side of the image in pixels; a multiple of 16.
        width: Width of the embedding.
        layers: Heads and MLP ratio of each layer.
    """
    blocks: list[nn.Module] = []
    for heads, ratio in layers:
        inner = int(width * ratio)
        mlp = (nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), _Attention(width, heads))))
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), *mlp)))
    return nn.Sequential(_Patches(size, width), *blocks, nn.LayerNorm(width), _Mean(), nn.Linear(width, 1000))


class _Patches(nn.Module):
    """Splits an image into patch tokens, with a class token in front."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.project = conv(3, width, _PATCH, _PATCH, padding=0, bias=True)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (size // _PATCH) ** 2, width))

    def forward(self, image: Tensor) -> Tensor:
        """Returns a tensor of shape [1, tokens, width]."""
        patches = self.project(image).flatten(2).transpose(1, 2)
        return torch.cat([self.token, patches], 1) + self.positions


class _Attention(nn.Module):
    """Self-attention with one joint projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.split = nn.Linear(width, 3 * heads * HEAD)
        self.join = nn.Linear(heads * HEAD, width)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`, [batch, tokens, width]."""
        query, key, value = self.split(x).unflatten(-1, (3, -1, HEAD)).permute(2, 0, 3, 1, 4).unbind()
        joined: Tensor = self.join(attend(query, key, value))
        return joined


class _Mean(nn.Module):
    """The mean of all tokens but the first."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of shape [batch, width]."""
        return x[:, 1:].mean(1)
