"""The MobileNetV3 search space of Once-for-All (Cai et al. 2020)."""

from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual, classifier, conv, conv_bn

__all__ = ["divisible", "mobilenet_v3_space"]

# (channels, first stride, activation, squeeze-and-excitation) of each stage.
_STAGES = (
    (24, 2, nn.ReLU, False), (40, 2, nn.ReLU, True), (80, 2, nn.Hardswish, False),
    (112, 1, nn.Hardswish, True), (160, 2, nn.Hardswish, True),
)  # fmt: skip


def mobilenet_v3_space(width: float, stages: tuple[tuple[tuple[int, int], ...], ...]) -> nn.Module:
    """Build a network of the space with 1000 classes.

    Args:
        width: Width multiplier of all channels.
        stages: Kernel and expansion of each block of the five stages.
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
        *([_SqueezeExcite(inner)] if excited else []),
        conv_bn(inner, outs, 1),
    )  # fmt: skip


class _SqueezeExcite(nn.Module):
    """Squeeze-and-excitation: scales channels by weights computed from the whole image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        thin = divisible(channels // 4)
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(channels, thin, 1, bias=True), nn.ReLU(),
            conv(thin, channels, 1, bias=True), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`."""
        weighed: Tensor = x * self.weigh(x)
        return weighed


def divisible(channels: float) -> int:
    """Returns the nearest multiple of eight that is at most a tenth below `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
