"""The DARTS search space (Liu et al. 2019), the same as NASNet's: cells of four nodes; image sides divisible by 32."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Concat, classifier, conv, conv_bn, conv_bn_relu

__all__ = ["darts_space"]

_Nodes = tuple[tuple[tuple[str, int], ...], ...]


def darts_space(cells: int, channels: int, normal: _Nodes, reduction: _Nodes) -> nn.Module:
    """Build a network of the space with the ImageNet stem and 1000 classes.

    Args:
        cells: Number of cells; those at one third and at two thirds halve the image and double the channels.
        channels: Channels of each node in the first cells.
        normal: The two operations that each node of a normal cell adds up, each with the index of the node that it
            reads; 0 and 1 are the outputs of the two previous cells.
        reduction: The same for the cells that halve the image.
    """
    return _Darts(cells, channels, normal, reduction)


class _Darts(nn.Module):
    """A chain of cells, each of which reads the outputs of the two cells before it."""

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
        """Returns a tensor of shape [1, classes]."""
        before = self.stem(x)
        last = self.second_stem(before)
        for cell in self.cells:
            before, last = last, cell(before, last)
        logits: Tensor = self.head(last)
        return logits


class _Cell(nn.Module):
    """A DARTS cell: each node adds up two operations, and the nodes are concatenated along the channels.

    Args:
        nodes: Operations of each node.
        ins: Channels of both inputs.
        channels: Channels of each node.
        halved: Whether the first input is twice the size of the second.
        halves: Whether the cell halves the image.
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
        """Returns the nodes, concatenated along the channels."""
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
    """Factorised reduction: halves the size by two strided 1 x 1 convolutions, one shifted diagonally by a pixel."""
    even, odd = conv(ins, outs // 2, 1, 2), conv(ins, outs // 2, 1, 2)
    return nn.Sequential(nn.ReLU(), Concat(even, nn.Sequential(_Shift(), odd)), nn.BatchNorm2d(outs))


class _Shift(nn.Module):
    """Removes the first row and the first column."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of shape [batch, channels, height - 1, width - 1]."""
        return x[:, :, 1:, 1:]
