"""Stacked hourglasses (Newell et al. 2016): face alignment (FAN) and volumetric face reconstruction (VRN)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual, Sum, conv, conv_bn_relu, upsample

__all__ = ["FaceAlignment", "volumetric"]

_DEPTH = 4


class FaceAlignment(nn.Module):
    """FAN (Bulat and Tzimiropoulos 2017) for faces of 256 x 256: 4 hourglasses, the last one giving 68 heat maps."""

    def __init__(self, stacks: int = 4, landmarks: int = 68) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_bn_relu(3, 64, 7, 2, bias=True), _Hierarchical(64, 128), nn.AvgPool2d(2), _Hierarchical(128, 128),
            _Hierarchical(128, 256),
        )  # fmt: skip
        self.stacks = nn.ModuleList(
            nn.Sequential(
                _hourglass(_DEPTH, _hierarchical, nn.AvgPool2d(2)), _hierarchical(),
                conv_bn_relu(256, 256, 1, bias=True),
            )
            for _ in range(stacks)
        )  # fmt: skip
        self.maps = nn.ModuleList(conv(256, landmarks, 1, bias=True) for _ in range(stacks))
        self.features_back = nn.ModuleList(conv(256, 256, 1, bias=True) for _ in range(stacks - 1))
        self.maps_back = nn.ModuleList(conv(landmarks, 256, 1, bias=True) for _ in range(stacks - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Maps images, [batch, 3, 256, 256], to a heat map of each landmark, [batch, landmarks, 64, 64]."""
        x = self.stem(x)
        for i, (stack, to_maps) in enumerate(zip(self.stacks, self.maps, strict=True)):
            features = stack(x)
            maps: Tensor = to_maps(features)
            if i < len(self.features_back):
                x = x + self.features_back[i](features) + self.maps_back[i](maps)
        return maps


class _Hierarchical(nn.Module):
    """Bulat's hierarchical residual block, which adds to its input the joined outputs of three chained convolutions."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        half, quarter = outs // 2, outs // 4
        self.first = _activated(ins, half)
        self.second = _activated(half, quarter)
        self.third = _activated(quarter, quarter)
        self.shortcut = _activated(ins, outs, 1) if ins != outs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, ins, height, width] to [batch, outs, height, width]."""
        first = self.first(x)
        second = self.second(first)
        added: Tensor = torch.cat([first, second, self.third(second)], 1) + self.shortcut(x)
        return added


def volumetric() -> nn.Module:
    """Returns unguided VRN (Jackson et al. 2017), which turns an image of 192 x 192 into a volume of 192 x 192 x 200.

    It is made of two hourglasses.
    """
    return nn.Sequential(
        conv_bn_relu(3, 64, 7, 2, bias=True), _bottleneck(64, 128), nn.MaxPool2d(2), _bottleneck(128, 128),
        _bottleneck(128, 256), _stack(), _stack(),
        conv(256, 200, 1, bias=True), upsample(4, "bilinear"), nn.Sigmoid(),
    )  # fmt: skip


def _stack() -> nn.Module:
    hourglass = _hourglass(_DEPTH, _bottlenecks, nn.MaxPool2d(2))
    return Residual(nn.Sequential(hourglass, _bottlenecks(), conv_bn_relu(256, 256, 1, bias=True), conv(256, 256, 1)))


def _hourglass(depth: int, block: Callable[[], nn.Module], pool: nn.Module) -> nn.Module:
    """Returns an hourglass of `depth` nested levels: each halves the size, doubles it again and adds a shortcut."""
    inner = _hourglass(depth - 1, block, pool) if depth > 1 else block()
    return Sum(block(), nn.Sequential(pool, block(), inner, block(), upsample()))


def _hierarchical() -> nn.Module:
    return _Hierarchical(256, 256)


def _bottlenecks() -> nn.Module:
    return nn.Sequential(*(_bottleneck(256, 256) for _ in range(4)))


def _bottleneck(ins: int, outs: int) -> nn.Module:
    half = outs // 2
    branch = nn.Sequential(_activated(ins, half, 1), _activated(half, half), _activated(half, outs, 1))
    return Residual(branch, None if ins == outs else conv(ins, outs, 1, bias=True))


def _activated(ins: int, outs: int, kernel: int = 3) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(ins), nn.ReLU(), conv(ins, outs, kernel))
