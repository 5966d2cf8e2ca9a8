"""Image networks that only the wide corpus has: convolutional classifiers from LeNet to RepVGG, and HRNet."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import (
    Concat,
    Residual,
    SqueezeExcite,
    classifier,
    conv,
    conv_bn,
    conv_bn_relu,
    conv_relu,
)

__all__ = ["HrNet", "densenet", "ghostnet", "lenet", "repvgg", "shufflenet_v2", "xception"]


def lenet(classes: int) -> nn.Module:
    """Returns LeNet-5 (LeCun et al. 1998), with its tanh and average pools, for grey images of 32 x 32."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(16, 120, 5), nn.Tanh(), nn.Flatten(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, classes),
    )  # fmt: skip


def densenet(blocks: tuple[int, ...], growth: int, classes: int, *, small: bool = False) -> nn.Module:
    """Returns DenseNet-BC (Huang et al. 2016), an image classifier.

    Args:
        blocks: Number of layers of each dense block: (6, 12, 24, 16) is DenseNet-121.
        growth: Channels that each layer adds.
        classes: Number of classes.
        small: Whether the stem keeps the height and width, as for images of 32 x 32.
    """
    ins = 2 * growth
    stem = [conv(3, ins)] if small else [conv_bn_relu(3, ins, 7, 2), nn.MaxPool2d(3, 2, 1)]
    layers: list[nn.Module] = [*stem]
    for i, count in enumerate(blocks):
        for _ in range(count):
            grown = nn.Sequential(
                nn.BatchNorm2d(ins), nn.ReLU(), conv_bn_relu(ins, 4 * growth, 1), conv(4 * growth, growth)
            )
            layers.append(Concat(nn.Identity(), grown))
            ins += growth
        if i < len(blocks) - 1:
            layers += [nn.BatchNorm2d(ins), nn.ReLU(), conv(ins, ins // 2, 1), nn.AvgPool2d(2)]
            ins //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(ins), nn.ReLU(), classifier(ins, classes))


class _Shuffled(nn.Module):
    """A ShuffleNet V2 block (Ma et al. 2018): convolves half of the channels, then shuffles the two halves together."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        half = outs // 2
        self.stride = stride
        inner = half if stride == 1 else ins
        self.branch = nn.Sequential(
            conv_bn_relu(inner, half, 1), conv_bn(half, half, 3, stride, groups=half), conv_bn_relu(half, half, 1)
        )
        self.shortcut = (
            nn.Identity() if stride == 1
            else nn.Sequential(conv_bn(ins, ins, 3, stride, groups=ins), conv_bn_relu(ins, half, 1))
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, ins, height, width] to [batch, outs, height / stride, width / stride]."""
        kept, seen = x.chunk(2, 1) if self.stride == 1 else (x, x)
        joined = torch.cat([self.shortcut(kept), self.branch(seen)], 1)
        batch, channels, high, wide = joined.shape
        return joined.view(batch, 2, channels // 2, high, wide).transpose(1, 2).reshape(batch, channels, high, wide)


def shufflenet_v2(channels: tuple[int, int, int], classes: int) -> nn.Module:
    """Returns ShuffleNet V2 (Ma et al. 2018), for images of 224 x 224.

    Its 0.5x variant has the channels (48, 96, 192), its 1.0x variant (116, 232, 464).
    """
    layers: list[nn.Module] = [conv_bn_relu(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    ins = 24
    for outs, blocks in zip(channels, (4, 8, 4), strict=True):
        for block in range(blocks):
            layers.append(_Shuffled(ins, outs, 1 if block else 2))
            ins = outs
    return nn.Sequential(*layers, conv_bn_relu(ins, 1024, 1), classifier(1024, classes))


def _ghost(ins: int, outs: int, *, relu: bool = True) -> nn.Module:
    """Returns a Ghost module: a convolution makes half of the channels, a cheap depthwise one derives the others."""
    half = outs // 2
    cheap, last = conv_bn(half, half, groups=half), nn.ReLU() if relu else nn.Identity()
    return nn.Sequential(
        conv_bn(ins, half, 1), last, Concat(nn.Identity(), nn.Sequential(cheap, last)),
    )  # fmt: skip


# (kernel, expanded channels, channels, squeeze-and-excitation, stride) of each block: table 1 of the paper.
_GHOSTNET = (
    (3, 16, 16, 0, 1), (3, 48, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1),
    (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1), (3, 184, 80, 0, 1), (3, 480, 112, 1, 1),
    (3, 672, 112, 1, 1), (5, 672, 160, 1, 2), (5, 960, 160, 0, 1), (5, 960, 160, 1, 1), (5, 960, 160, 0, 1),
    (5, 960, 160, 1, 1),
)  # fmt: skip


def ghostnet(classes: int) -> nn.Module:
    """Returns GhostNet 1.0 (Han et al. 2019), for images of 224 x 224."""
    layers: list[nn.Module] = [conv_bn_relu(3, 16, 3, 2)]
    ins = 16
    for kernel, inner, outs, squeezed, stride in _GHOSTNET:
        parts = [_ghost(ins, inner)]
        if stride > 1:
            parts.append(conv_bn(inner, inner, kernel, stride, groups=inner))
        if squeezed:
            parts.append(SqueezeExcite(inner, inner // 4, nn.Hardsigmoid()))
        branch = nn.Sequential(*parts, _ghost(inner, outs, relu=False))
        shortcut = None
        if stride > 1 or ins != outs:
            shortcut = nn.Sequential(conv_bn(ins, ins, kernel, stride, groups=ins), conv_bn(ins, outs, 1))
        layers.append(Residual(branch, shortcut))
        ins = outs
    return nn.Sequential(
        *layers, conv_bn_relu(160, 960, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(960, 1280), nn.ReLU(), nn.Linear(1280, classes),
    )  # fmt: skip


def _separable(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(conv(ins, ins, groups=ins), conv_bn(ins, outs, 1))


def xception(middle: int, classes: int) -> nn.Module:
    """Returns Xception (Chollet 2016), an image classifier.

    It has `middle` blocks in its middle flow; the original has 8.
    """
    layers: list[nn.Module] = [conv_bn_relu(3, 32, 3, 2), conv_bn_relu(32, 64)]
    ins = 64
    for outs in (128, 256, 728, *[728] * middle, 1024):
        grows = outs != ins
        inner = ins if outs == 1024 else outs
        parts = [nn.ReLU(), _separable(ins, inner), nn.ReLU(), _separable(inner, outs)]
        parts += [nn.MaxPool2d(3, 2, 1)] if grows else [nn.ReLU(), _separable(outs, outs)]
        layers.append(Residual(nn.Sequential(*parts), conv_bn(ins, outs, 1, 2) if grows else None))
        ins = outs
    return nn.Sequential(
        *layers, _separable(1024, 1536), nn.ReLU(), _separable(1536, 2048), nn.ReLU(), classifier(2048, classes)
    )


def repvgg(channels: tuple[int, ...], classes: int) -> nn.Module:
    """Returns RepVGG (Ding et al. 2021) as it is deployed, with merged branches, for images of 224 x 224.

    The channels (48, 48, 96, 192, 1280) make it RepVGG-A0.
    """
    layers: list[nn.Module] = []
    ins = 3
    for outs, blocks in zip(channels, (1, 2, 4, 14, 1), strict=True):
        for block in range(blocks):
            layers.append(conv_relu(ins, outs, 3, 1 if block else 2))
            ins = outs
    return nn.Sequential(*layers, classifier(ins, classes))


class _Exchange(nn.Module):
    """A stage of HRNet (Wang et al. 2019): branches at several resolutions, then an exchange between the resolutions.

    Each output is the sum of all branches, resized to the output's resolution.
    """

    def __init__(self, widths: list[int], new: int | None) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(Residual(_two(width), after=nn.ReLU()) for _ in range(2))) for width in widths
        )
        targets = widths if new is None else [*widths, new]
        self.ways = nn.ModuleList(
            nn.ModuleList(_way(source, target, widths, targets) for source in range(len(widths)))
            for target in range(len(targets))
        )

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Maps a list of feature maps, one per resolution, to new ones, and one more if the stage adds a resolution."""
        seen = [branch(x) for branch, x in zip(self.branches, maps, strict=True)]
        made = []
        for ways in self.ways:
            assert isinstance(ways, nn.ModuleList)
            parts = [way(x) for way, x in zip(ways, seen, strict=True)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            made.append(torch.relu(total))
        return made


def _two(width: int) -> nn.Module:
    return nn.Sequential(conv_bn_relu(width, width), conv_bn(width, width))


def _way(source: int, target: int, sources: list[int], targets: list[int]) -> nn.Module:
    """Returns layers from one resolution to another: a resize to a higher one, strided convolutions to a lower one."""
    ins, outs = sources[source], targets[target]
    if source == target:
        return nn.Identity()
    if source > target:
        return nn.Sequential(conv_bn(ins, outs, 1), nn.Upsample(scale_factor=2 ** (source - target)))
    steps: list[nn.Module] = [conv_bn_relu(ins, ins, 3, 2) for _ in range(target - source - 1)]
    return nn.Sequential(*steps, conv_bn(ins, outs, 3, 2))


class HrNet(nn.Module):
    """HRNet for segmentation: keeps feature maps at up to four resolutions, and joins them at the highest."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        widths = [width << i for i in range(4)]
        self.stem = nn.Sequential(conv_bn_relu(3, 64, 3, 2), conv_bn_relu(64, 64, 3, 2), conv_bn_relu(64, width))
        self.stages = nn.ModuleList(_Exchange(widths[: i + 1], widths[i + 1] if i < 3 else None) for i in range(4))
        self.resizes = nn.ModuleList(nn.Upsample(scale_factor=1 << i, mode="bilinear") for i in range(1, 4))
        self.head = nn.Sequential(conv_bn_relu(sum(widths), sum(widths), 1), conv(sum(widths), classes, 1, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        """Maps images, [batch, 3, height, width], to class scores, [batch, classes, height / 4, width / 4]."""
        maps = [self.stem(x)]
        for stage in self.stages:
            maps = stage(maps)
        finest = [maps[0], *(resize(m) for resize, m in zip(self.resizes, maps[1:], strict=True))]
        scores: Tensor = self.head(torch.cat(finest, 1))
        return scores
