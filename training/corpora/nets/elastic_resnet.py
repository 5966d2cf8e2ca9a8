"""The ResNet-50 search space of Once-for-All (Cai et al. 2020)."""

from torch import nn

from costmodel.training.corpora.nets.blocks import Residual, classifier, conv_bn, conv_bn_relu
from costmodel.training.corpora.nets.mobilenet_v3_space import divisible

__all__ = ["elastic_resnet"]

_CHANNELS = (256, 512, 1024, 2048)


def elastic_resnet(stem: float, deep_stem: bool, stages: tuple[tuple[float, tuple[float, ...]], ...]) -> nn.Module:
    """Builds a network of the ResNet-50 search space, with 1000 classes.

    Args:
        stem: Width multiplier of the stem.
        deep_stem: Whether the stem contains a residual block.
        stages: For each stage, its width multiplier and the expansion ratio of each of its blocks.
    """
    thin, ins = divisible(32 * stem), divisible(64 * stem)
    layers: list[nn.Module] = [
        conv_bn_relu(3, thin, 3, 2), *([Residual(conv_bn_relu(thin, thin))] if deep_stem else []),
        conv_bn_relu(thin, ins), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    for stage, (channels, (width, expansions)) in enumerate(zip(_CHANNELS, stages, strict=True)):
        outs = divisible(channels * width)
        for block, expansion in enumerate(expansions):
            stride = 2 if stage and not block else 1
            inner = divisible(outs * expansion)
            branch = nn.Sequential(
                conv_bn_relu(ins, inner, 1), conv_bn_relu(inner, inner, 3, stride), conv_bn(inner, outs, 1)
            )
            layers.append(Residual(branch, None if block else _shortcut(ins, outs, stride), after=nn.ReLU()))
            ins = outs
    return nn.Sequential(*layers, classifier(ins, 1000)[:-1])


def _shortcut(ins: int, outs: int, stride: int) -> nn.Module:
    pool = [nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)] if stride > 1 else []
    return nn.Sequential(*pool, *conv_bn(ins, outs, 1))
