"""SSD on VGG-16 (Liu et al. 2016): class probabilities and boxes, without non-maximum suppression."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import conv, conv_relu, rows_of_cells
from costmodel.training.corpora.nets.vgg import VGG16

__all__ = ["SSD", "SSD_300", "SSD_512", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The feature maps and default boxes of an SSD.

    Attributes:
        size: Side of the image in pixels.
        maps: Side of each feature map in cells.
        steps: Pixels of the image per cell of each feature map.
        scales: Side in pixels of the smaller square box of each feature map; the larger one has the geometric mean of
            this side and the next value. One more value at the end serves the last map.
        shapes: Number of default boxes per cell of each feature map.
        extras: For each pair of convolutions after VGG, the channels of the first one, the channels of the second one,
            and the kernel size, stride and padding of the second one.
    """

    size: int
    maps: tuple[int, ...]
    steps: tuple[int, ...]
    scales: tuple[float, ...]
    shapes: tuple[int, ...]
    extras: tuple[tuple[int, int, int, int, int], ...]


SSD_300 = Layout(
    300, (38, 19, 10, 5, 3, 1), (8, 16, 32, 64, 100, 300), (30, 60, 111, 162, 213, 264, 315), (4, 6, 6, 6, 4, 4),
    ((256, 512, 3, 2, 1), (128, 256, 3, 2, 1), (128, 256, 3, 1, 0), (128, 256, 3, 1, 0)),
)  # fmt: skip
SSD_512 = Layout(
    512, (64, 32, 16, 8, 4, 2, 1), (8, 16, 32, 64, 128, 256, 512),
    (20.48, 51.2, 133.12, 215.04, 296.96, 378.88, 460.8, 542.72), (4, 6, 6, 6, 6, 4, 4),
    ((256, 512, 3, 2, 1), (128, 256, 3, 2, 1), (128, 256, 3, 2, 1), (128, 256, 3, 2, 1), (128, 256, 4, 1, 1)),
)  # fmt: skip


class SSD(nn.Module):
    """An SSD, a detector that finds boxes in a single pass of the network.

    Args:
        layout: Feature maps and default boxes, for images of 300 x 300 or 512 x 512.
        classes: Number of classes, the background included.
    """

    def __init__(self, layout: Layout, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.shallow, self.deep = _vgg()
        self.norm = _L2Norm(512)
        self.extras = nn.ModuleList()
        sources = [512, 1024]
        for inner, outer, kernel, stride, padding in layout.extras:
            pair = conv_relu(sources[-1], inner, 1), conv_relu(inner, outer, kernel, stride, padding=padding)
            self.extras.append(nn.Sequential(*pair))
            sources.append(outer)
        heads = list(zip(sources, layout.shapes, strict=True))
        self.locate = nn.ModuleList(conv(ins, 4 * shapes, bias=True) for ins, shapes in heads)
        self.classify = nn.ModuleList(conv(ins, classes * shapes, bias=True) for ins, shapes in heads)
        self.register_buffer("priors", torch.tensor([list(_priors(layout))]), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps an image to class probabilities and the corners of boxes.

        Shapes:
            x: [1, 3, size, size]; result: probabilities [1, boxes, classes], corners [1, boxes, 4].
        """
        x = self.shallow(x)
        maps = [self.norm(x)]
        x = self.deep(x)
        maps.append(x)
        for extra in self.extras:
            x = extra(x)
            maps.append(x)
        scores = torch.cat(
            [rows_of_cells(head(m), self.classes) for head, m in zip(self.classify, maps, strict=True)], 1
        )
        offsets = torch.cat([rows_of_cells(head(m), 4) for head, m in zip(self.locate, maps, strict=True)], 1)
        return scores.softmax(-1), self._boxes(offsets)

    def _boxes(self, offsets: Tensor) -> Tensor:
        priors = self.get_buffer("priors")
        centre = priors[..., :2] + offsets[..., :2] * 0.1 * priors[..., 2:]
        half = priors[..., 2:] * torch.exp(offsets[..., 2:] * 0.2) / 2
        return torch.cat([centre - half, centre + half], -1)


class _L2Norm(nn.Module):
    """ParseNet's L2 normalisation: gives the channel vector of each position the length 1, then scales each channel.

    The scales are learnt and begin at 20.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), 20.0))

    def forward(self, x: Tensor) -> Tensor:
        """Returns feature maps of the shape of `x`, [1, channels, height, width], with normalised channel vectors."""
        length: Tensor = x.norm(dim=1, keepdim=True)
        return self.scale[None, :, None, None] * (x / (length + 1e-10))


def _vgg() -> tuple[nn.Module, nn.Module]:
    """Returns VGG-16 in two parts: up to conv4_3, and the rest, with the fully connected layers as convolutions."""
    layers: list[nn.Module] = []
    ins = 3
    for stage, (channels, count) in enumerate(VGG16):
        if stage:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        if stage == len(VGG16) - 1:
            shallow, layers = nn.Sequential(*layers[:-1]), layers[-1:]
        for _ in range(count):
            layers.append(conv_relu(ins, channels))
            ins = channels
    deep = nn.Sequential(*layers, nn.MaxPool2d(3, 1, 1), conv_relu(512, 1024, dilation=6), conv_relu(1024, 1024, 1))
    return shallow, deep


def _priors(layout: Layout) -> Iterator[tuple[float, float, float, float]]:
    """Yields the centre's x and y, the width and the height of each default box, as fractions of the image's side."""
    for i, side in enumerate(layout.maps):
        small, large = layout.scales[i] / layout.size, layout.scales[i + 1] / layout.size
        middle = math.sqrt(small * large)
        forms = [(small, small), (middle, middle)]
        for ratio in (2, 3)[: layout.shapes[i] // 2 - 1]:
            root = math.sqrt(ratio)
            forms += [(small * root, small / root), (small / root, small * root)]
        step = layout.steps[i] / layout.size
        for row in range(side):
            for column in range(side):
                for width, height in forms:
                    yield (column + 0.5) * step, (row + 0.5) * step, width, height
