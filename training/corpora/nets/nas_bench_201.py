"""The search space NAS-Bench-201 (Dong & Yang 2020): fifteen copies of one small cell, for images of 32 x 32."""

from collections.abc import Mapping
from functools import reduce

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual, classifier, conv, conv_bn

__all__ = ["nas_bench_201"]

_CELLS = 5  # cells per stage
_OUTPUT = 3


def nas_bench_201(edges: Mapping[tuple[int, int], str]) -> nn.Module:
    """Builds the network of NAS-Bench-201 whose cells have the given edges, for ten classes.

    Args:
        edges: Operation on each edge (from node, to node) of the cell; node 0 is its input, node 3 its output.
    """
    layers: list[nn.Module] = [conv_bn(3, 16)]
    for channels in (16, 32, 64):
        if channels > 16:
            branch = nn.Sequential(_relu_conv_bn(channels // 2, channels, 3, 2), _relu_conv_bn(channels, channels, 3))
            layers.append(Residual(branch, nn.Sequential(nn.AvgPool2d(2), conv(channels // 2, channels, 1))))
        layers.extend(_Cell(edges, channels) for _ in range(_CELLS))
    return nn.Sequential(*layers, nn.BatchNorm2d(64), nn.ReLU(), classifier(64, 10)[:-1])


class _Cell(nn.Module):
    """A cell of NAS-Bench-201, whose nodes add up the results of the operations on their incoming edges."""

    def __init__(self, edges: Mapping[tuple[int, int], str], channels: int) -> None:
        super().__init__()
        self.edges = tuple(edges)
        self.operations = nn.ModuleList(_operation(name, channels) for name in edges.values())

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, channels, height, width] to feature maps of the same shape."""
        nodes = {0: x}
        for node in sorted({into for _, into in self.edges}):
            given = [
                operation(nodes[source])
                for (source, into), operation in zip(self.edges, self.operations, strict=True)
                if into == node
            ]
            nodes[node] = reduce(torch.add, given)
        return nodes[_OUTPUT]


def _operation(name: str, channels: int) -> nn.Module:
    match name:
        case "skip_connect":
            return nn.Identity()
        case "avg_pool_3x3":
            return nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        case "nor_conv_1x1":
            return _relu_conv_bn(channels, channels, 1)
        case "nor_conv_3x3":
            return _relu_conv_bn(channels, channels, 3)
    raise ValueError(f"no operation of NAS-Bench-201 is called {name}")


def _relu_conv_bn(ins: int, outs: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.ReLU(), *conv_bn(ins, outs, kernel, stride))
