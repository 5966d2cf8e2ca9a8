"""The DARTS search space (Liu et al. 2019), the same as NASNet's: networks made of cells of four nodes.

The sides of the images must be divisible by 32.
"""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Concat, classifier, conv, conv_bn, conv_bn_relu

__all__ = ["darts_space"]

_Nodes = tuple[tuple[tuple[str, int], ...], ...]


def darts_space(cells: int, channels: int, normal: _Nodes, reduction: _Nodes) -> nn.Module:
    """Builds a network of the DARTS search space, with the stem for ImageNet and 1000 classes.

    Args:
        cells: Number of cells; those at one third and at two thirds of the depth halve the height and width of the
            feature map and double the channels.
        channels: Channels of each node in the first cells.
        normal: For each node of a normal cell, the two operations that it adds up, each with the index of the node that
            the operation reads; 0 is the output of the cell before the previous one, 1 that of the previous cell, 2 the
            first node.
        reduction: The same for the cells that halve the height and width.
    """
    return _Darts(cells, channels, normal, reduction)


class _Darts(nn.Module):
    """A chain of DARTS cells, each of which reads the outputs of the two cells before it."""

    def __init__(self, cells: int, channels: int, normal: _Nodes, reduction: _Nodes) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn_relu(3, channels // 2, 3, 2), conv_bn(channels // 2, channels, 3, 2))
        self.second_stem = nn.Sequential(nn.ReLU(), conv_bn(channels, channels, 3, 2))
        self.cells = nn.ModuleList()
        ins, halved = (channels, channels), True
        for index in range(cells):
            halves = index in (cells // 3, 2 * cells // 3)
            channels *= 2 if halves else 1
            cell = _Cell(reduction if halves else normal, ins, channels, halved=halved, halves=halves)
            self.cells.append(cell)
            ins, halved = (ins[1], len(normal) * channels), halves
        self.head = classifier(ins[1], 1000)[:-1]

    def forward(self, x: Tensor) -> Tensor:
        """Maps images of shape [batch, 3, height, width] to class scores of shape [batch, 1000]."""
        before = self.stem(x)
        last = self.second_stem(before)
        for cell in self.cells:
            before, last = last, cell(before, last)
        logits: Tensor = self.head(last)
        return logits


class _Cell(nn.Module):
    """A DARTS cell: each node adds up two operations, and the outputs of the nodes are concatenated along the channels.

    Args:
        nodes: The two operations of each node, each with the index of the node that the operation reads.
        ins: Channels of the first input, the output of the cell before the previous one, and of the second, the output
            of the previous cell.
        channels: Channels of each node.
        halved: Whether the first input has twice the height and width of the second.
        halves: Whether the cell halves the height and width.
    """

    def __init__(self, nodes: _Nodes, ins: tuple[int, int], channels: int, *, halved: bool, halves: bool) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(
            [_halve(ins[0], channels) if halved else _relu_conv_bn(ins[0], channels), _relu_conv_bn(ins[1], channels)]
        )
        self.nodes = tuple(tuple(source for _, source in node) for node in nodes)
        self.operations = nn.ModuleList(
            _operation(name, channels, 2 if halves and source < 2 else 1) for node in nodes for name, source in node
        )

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """Returns the outputs of the nodes, concatenated along the channels, for the outputs of the last two cells."""
        states = [given(x) for given, x in zip(self.inputs, (before, last), strict=True)]
        operations = iter(self.operations)
        for first, second in self.nodes:
            states.append(next(operations)(states[first]) + next(operations)(states[second]))
        return torch.cat(states[2:], 1)


def _operation(name: str, channels: int, stride: int) -> nn.Module:
    match name:
        case "skip_connect":
            return nn.Identity() if stride == 1 else _halve(channels, channels)
        case "max_pool_3x3":
            return nn.MaxPool2d(3, stride, 1)
        case "avg_pool_3x3":
            return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    kernel = int(name[-1])
    if name.startswith("dil_conv"):
        return _separable(channels, kernel, stride, dilation=2)
    return nn.Sequential(*_separable(channels, kernel, stride), *_separable(channels, kernel, 1))


def _separable(channels: int, kernel: int, stride: int, dilation: int = 1) -> nn.Sequential:
    deep = conv(channels, channels, kernel, stride, dilation=dilation, groups=channels)
    return nn.Sequential(nn.ReLU(), deep, *conv_bn(channels, channels, 1))


def _relu_conv_bn(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.ReLU(), *conv_bn(ins, outs, 1))


def _halve(ins: int, outs: int) -> nn.Module:
    """Returns a factorised reduction, which halves height and width by two parallel 1 x 1 convolutions of stride 2.

    The second one is shifted diagonally by a pixel, so that it reads pixels that the first one skips.
    """
    even, odd = conv(ins, outs // 2, 1, 2), conv(ins, outs // 2, 1, 2)
    return nn.Sequential(nn.ReLU(), Concat(even, nn.Sequential(_Shift(), odd)), nn.BatchNorm2d(outs))


class _Shift(nn.Module):
    """A module that removes the first row and the first column of pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, height, width] to [batch, channels, height - 1, width - 1]."""
        return x[:, :, 1:, 1:]
