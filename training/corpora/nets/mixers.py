"""Image classifiers on patches without attention: MLP-Mixer, ResMLP, gMLP, ConvMixer."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual, classifier
from costmodel.training.corpora.nets.layers import Permuted, Tokens, feed_forward, mlp

__all__ = ["convmixer", "gmlp", "mlp_mixer", "resmlp"]


class _Mean(nn.Module):
    """A classification head: a fully connected layer on the mean of all tokens."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.classify = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to class scores of shape [batch, classes]."""
        scores: Tensor = self.classify(x.mean(1))
        return scores


def mlp_mixer(size: int, patch: int, width: int, depth: int, classes: int) -> nn.Module:
    """Returns MLP-Mixer (Tolstikhin et al. 2021) for images of `size` x `size` in patches of `patch` x `patch`."""
    count = (size // patch) ** 2
    layers: list[nn.Module] = []
    for _ in range(depth):
        between = mlp(count, width // 2, count, activation=nn.GELU)
        layers += [Residual(nn.Sequential(nn.LayerNorm(width), Permuted(between))), feed_forward(width, 4 * width)]
    return nn.Sequential(Tokens(width, patch), *layers, nn.LayerNorm(width), _Mean(width, classes))


class _Affine(nn.Module):
    """A learnt scale and shift for each channel, which ResMLP has instead of normalisations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`, of shape [batch, tokens, channels], with its channels scaled and shifted."""
        return x * self.scale + self.shift_bias


def resmlp(size: int, patch: int, width: int, depth: int, classes: int) -> nn.Module:
    """Returns ResMLP (Touvron et al. 2021) for images of `size` x `size` in patches of `patch` x `patch`."""
    count = (size // patch) ** 2
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [
            Residual(nn.Sequential(_Affine(width), Permuted(nn.Linear(count, count)), _Affine(width))),
            Residual(nn.Sequential(_Affine(width), *mlp(width, 4 * width, width, activation=nn.GELU), _Affine(width))),
        ]
    return nn.Sequential(Tokens(width, patch), *layers, _Affine(width), _Mean(width, classes))


class _SpatialGate(nn.Module):
    """The spatial gating unit (Liu et al. 2021): multiplies half of the channels by the other half.

    That other half is first mixed across the tokens by a linear layer.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.LayerNorm(width), Permuted(nn.Linear(count, count)))

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, 2 * width] to [batch, tokens, width]."""
        kept, mixed = x.chunk(2, -1)
        gated: Tensor = kept * self.mix(mixed)
        return gated


def gmlp(size: int, patch: int, width: int, depth: int, classes: int) -> nn.Module:
    """Returns gMLP (Liu et al. 2021) for images of `size` x `size` in patches of `patch` x `patch`."""
    count = (size // patch) ** 2
    layers = [
        Residual(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 6 * width), nn.GELU(), _SpatialGate(count, 3 * width),
                nn.Linear(3 * width, width),
            )
        )
        for _ in range(depth)
    ]  # fmt: skip
    return nn.Sequential(Tokens(width, patch), *layers, nn.LayerNorm(width), _Mean(width, classes))


def convmixer(width: int, depth: int, kernel: int, patch: int, classes: int) -> nn.Module:
    """Returns ConvMixer (Trockman and Kolter 2022) for images in patches of `patch` x `patch`."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, patch, patch), nn.GELU(), nn.BatchNorm2d(width)]
    for _ in range(depth):
        around = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        layers += [
            Residual(nn.Sequential(around, nn.GELU(), nn.BatchNorm2d(width))),
            nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width),
        ]  # fmt: skip
    return nn.Sequential(*layers, classifier(width, classes))
