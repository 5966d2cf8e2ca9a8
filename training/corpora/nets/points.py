"""Networks on points, graphs and rays: PointNet, a graph convolutional network, NeRF."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.layers import mlp

__all__ = ["Gcn", "Nerf", "PointNet"]


class _Turn(nn.Module):
    """PointNet's T-Net: predicts a square matrix from the points and multiplies the points by the matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.look = nn.Sequential(*_points(width, 64, 128, 1024))
        self.tell = mlp(1024, 512, 256, width * width)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the transformed points, of the shape of `x`, [batch, width, points]."""
        turn: Tensor = self.tell(self.look(x).amax(2)).view(-1, self.width, self.width) * 0.1
        return turn @ x + x


def _points(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for ins, outs in pairwise(widths):
        layers += [nn.Conv1d(ins, outs, 1), nn.BatchNorm1d(outs), nn.ReLU()]
    return layers


class PointNet(nn.Module):
    """PointNet (Qi et al. 2016): classifies a point cloud independently of the order of its points."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.look = nn.Sequential(_Turn(3), *_points(3, 64, 64), _Turn(64), *_points(64, 64, 128, 1024))
        self.classify = mlp(1024, 512, 256, classes)

    def forward(self, points: Tensor) -> Tensor:
        """Maps point clouds, [batch, 3, points], to logarithms of class probabilities, [batch, classes]."""
        return torch.log_softmax(self.classify(self.look(points).amax(2)), 1)


class Gcn(nn.Module):
    """A graph convolutional network (Kipf and Welling 2016) that takes its edges as two rows of node indices."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(ins, outs) for ins, outs in pairwise(widths))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Maps node features to new ones, computed from those of the node itself and of its neighbours.

        Shapes:
            nodes: [nodes, first width]; edges: [2, edges], source and target; result: [nodes, last width].
        """
        source, target = edges[0], edges[1]
        degree = torch.ones(nodes.shape[0]).index_add(0, target, torch.ones(edges.shape[1]))
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        for i, layer in enumerate(self.layers):
            sent = layer(nodes.relu() if i else nodes)
            nodes = sent / degree.unsqueeze(1) + torch.zeros_like(sent).index_add(0, target, sent[source] * weight)
        return nodes


class Nerf(nn.Module):
    """NeRF (Mildenhall et al. 2020): colour and density at points on rays, from sines of positions and directions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("waves", 2.0 ** torch.arange(10) * math.pi / 512, persistent=False)
        self.first = nn.Sequential(*mlp(63, *[width] * 4, width), nn.ReLU())
        self.second = mlp(width + 63, width, width, width + 1)
        self.colour = nn.Sequential(
            nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid()
        )

    def forward(self, place: Tensor, direction: Tensor) -> Tensor:
        """Maps positions and viewing directions, each [points, 3], to red, green, blue and density, [points, 4]."""
        where, towards = self._sines(place, 10), self._sines(direction, 4)
        made = self.second(torch.cat([self.first(where), where], 1))
        colour = self.colour(torch.cat([made[:, 1:], towards], 1))
        return torch.cat([colour, made[:, :1].relu()], 1)

    def _sines(self, x: Tensor, count: int) -> Tensor:
        angles = (x.unsqueeze(2) * self.get_buffer("waves")[:count]).flatten(1)
        return torch.cat([x, angles.sin(), angles.cos()], 1)
