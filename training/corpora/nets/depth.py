"""Depth estimation by an hourglass of Inception modules (Chen et al. 2016).

The paper is "Single-image depth perception in the wild".
"""

from torch import nn

from costmodel.training.corpora.nets.blocks import Concat, Sum, conv, conv_bn_relu, upsample

__all__ = ["depth_in_the_wild"]


def depth_in_the_wild() -> nn.Module:
    """Builds the depth network of Chen et al. 2016 for images of 320 x 240.

    The functions `_a` to `_f` build its modules, which have these letters in table 1 of that paper.
    """
    return nn.Sequential(conv_bn_relu(3, 128, 7, bias=True), _half_size(), conv(64, 1, bias=True))


def _half_size() -> nn.Module:
    return Sum(_lower(_b(), _b(), _quarter_size(), _inception(128, 32, 64, (3, 5, 7)), _a(32)), _a(64))


def _quarter_size() -> nn.Module:
    return Sum(
        _lower(_b(), _d(), _eighth_size(), _e(), _inception(256, 32, 32, (3, 5, 7))),
        nn.Sequential(_b(), _inception(128, 32, 64, (3, 7, 11))),
    )


def _eighth_size() -> nn.Module:
    return Sum(nn.Sequential(_e(), _f()), _lower(_e(), _e(), _sixteenth_size(), _e(), _f()))


def _sixteenth_size() -> nn.Module:
    return Sum(nn.Sequential(_e(), _e()), _lower(_e(), _e(), _e()))


def _lower(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.MaxPool2d(2), *layers, upsample())


def _a(inner: int) -> nn.Module:
    return _inception(128, 16, inner, (3, 7, 11))


def _b() -> nn.Module:
    return _inception(128, 32, 32, (3, 5, 7))


def _d() -> nn.Module:
    return _inception(128, 64, 32, (3, 5, 7))


def _e() -> nn.Module:
    return _inception(256, 64, 32, (3, 5, 7))


def _f() -> nn.Module:
    return _inception(256, 64, 64, (3, 7, 11))


def _inception(ins: int, outs: int, inner: int, kernels: tuple[int, ...]) -> nn.Module:
    """Returns parallel branches of `outs` channels each: a 1 x 1 convolution, and one branch for each kernel size."""
    return Concat(
        conv_bn_relu(ins, outs, 1, bias=True),
        *(
            nn.Sequential(conv_bn_relu(ins, inner, 1, bias=True), conv_bn_relu(inner, outs, kernel, bias=True))
            for kernel in kernels
        ),
    )
