"""The MobileNetV3 search space of Once-for-All (Cai et al. 2020)."""

from torch import nn

from costmodel.training.corpora.nets.blocks import (
    Residual,
    SqueezeExcite,
    classifier,
    conv,
    conv_bn,
)

__all__ = ["divisible", "mobilenet_v3_space"]

# (channels, first stride, activation, squeeze-and-excitation) of each stage.
_STAGES = (
    (24, 2, nn.ReLU, False), (40, 2, nn.ReLU, True), (80, 2, nn.Hardswish, False),
    (112, 1, nn.Hardswish, True), (160, 2, nn.Hardswish, True),
)  # fmt: skip


def mobilenet_v3_space(width: float, stages: tuple[tuple[tuple[int, int], ...], ...]) -> nn.Module:
    """Builds a network of the MobileNetV3 search space, with 1000 classes.

    Args:
        width: Width multiplier of all channels.
        stages: For each of the five stages, the kernel size and expansion ratio of each of its blocks.
    """
    ins, wide, last = (divisible(width * channels) for channels in (16, 960, 1280))
    layers: list[nn.Module] = [
        conv_bn(3, ins, 3, 2), nn.Hardswish(), Residual(_bottleneck(ins, ins, 3, 1, 1, nn.ReLU, excited=False))
    ]  # fmt: skip
    for (channels, first, activation, excited), blocks in zip(_STAGES, stages, strict=True):
        outs = divisible(width * channels)
        for block, (kernel, expansion) in enumerate(blocks):
            stride = 1 if block else first
            branch = _bottleneck(ins, outs, kernel, stride, expansion, activation, excited=excited)
            layers.append(Residual(branch) if block else branch)
            ins = outs
    pool, flatten, dense, _ = classifier(last, 1000)
    return nn.Sequential(
        *layers, conv_bn(ins, wide, 1), nn.Hardswish(), pool, conv(wide, last, 1), nn.Hardswish(), flatten, dense
    )


def _bottleneck(
    ins: int, outs: int, kernel: int, stride: int, expansion: int, activation: type[nn.Module], *, excited: bool
) -> nn.Sequential:
    inner = ins * expansion
    return nn.Sequential(
        *([conv_bn(ins, inner, 1), activation()] if expansion > 1 else []),
        conv_bn(inner, inner, kernel, stride, groups=inner), activation(),
        *([SqueezeExcite(inner, divisible(inner // 4), nn.Hardsigmoid())] if excited else []),
        conv_bn(inner, outs, 1),
    )  # fmt: skip


def divisible(channels: float) -> int:
    """Returns the multiple of 8 nearest to `channels`, or the next higher one if that is below 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
