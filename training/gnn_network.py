"""The graph neural network itself, as torch modules, and how it becomes an ONNX model.

A layer is a node. r, the logarithm of its cost over its bound, has two parts: what the layer says by itself, and what
its neighbours add to that, which is nothing where there are none.
"""

import copy
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from costmodel.errors import MissingExtraError

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    with warnings.catch_warnings():  # torch-geometric 2.8 compiles parts of itself in a way that torch 2.13 deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import SAGEConv
except ModuleNotFoundError as error:
    raise MissingExtraError("the graph neural network", "gnn") from error

__all__ = ["Average", "GraphNetwork", "exported", "first_network"]

_CLAMP = 6.0  # standard deviations: beyond what was seen, a feature says "large" and no more
_LEAST_SCALE = 0.2  # of a feature that hardly varies, such as the mark of a rare operator
_MARGIN = 1.0  # how far, in log cost, a prediction may leave the range of those seen
_MOST_CONTEXT = 0.7  # in log cost: neighbours can halve or double what a layer costs, not more
_OPSET = 20


class _Block(nn.Module):
    """x + W2 silu(W1 norm(x))."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.wide = nn.Linear(hidden, hidden)
        self.back = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.back(functional.silu(self.wide(self.norm(x))))
        return x + y


class _Exchange(nn.Module):
    """x + silu(mean over those read + mean over those that read it + W norm(x)), GraphSAGE in both directions."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.down: nn.Module = SAGEConv(hidden, hidden)
        self.up: nn.Module = SAGEConv(hidden, hidden, root_weight=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        y = self.norm(x)
        return x + functional.silu(self.down(y, edges) + self.up(y, torch.stack([edges[1], edges[0]])))


class _Mean(nn.Module):
    """SAGEConv with its parameters, in operators that ONNX has.

    y_i = W_l mean(x_j for edges j -> i) + W_r x_i

    Shapes: x [num_layers, hidden], edges [2, num_edges], result [num_layers, hidden].
    """

    def __init__(self, sage: SAGEConv) -> None:
        super().__init__()
        self.left = sage.lin_l
        self.right = sage.lin_r if sage.root_weight else None

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        total = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
        y: Tensor = self.left(total / _degrees(x, target).clamp(min=1.0).unsqueeze(1))
        return y if self.right is None else y + self.right(x)


class GraphNetwork(nn.Module):
    """Log ratios of layers to their bounds.

    Shapes: features [num_layers, num_features], edges [2, num_edges], result [num_layers].
    """

    centre: Tensor
    gain: Tensor
    typical: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, features: int, hidden: int, exchanges: int) -> None:
        super().__init__()
        for name, size in (("centre", features), ("gain", features), ("typical", 1), ("low", 1), ("high", 1)):
            self.register_buffer(name, torch.zeros(size))
        self.enter = nn.Linear(features, hidden)
        self.blocks = nn.ModuleList(_Block(hidden) for _ in range(2))
        self.norm_alone = nn.LayerNorm(hidden)
        self.alone = nn.Linear(hidden, 1)
        self.exchanges = nn.ModuleList(_Exchange(hidden) for _ in range(exchanges))
        self.norm_around = nn.LayerNorm(hidden)
        self.around = nn.Linear(hidden, 1)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """The log ratio of each layer."""
        x = functional.silu(self.enter(((features - self.centre) * self.gain).clamp(-_CLAMP, _CLAMP)))
        for block in self.blocks:
            x = block(x)
        ratios: Tensor = self.typical + self.alone(self.norm_alone(x)).squeeze(1)
        # In training, batches without edges are spared work that comes to nothing; exported, there is no such branch.
        if len(self.exchanges) and not (self.training and edges.shape[1] == 0):
            for exchange in self.exchanges:
                x = exchange(x, edges)
            connected = _degrees(x, torch.cat([edges[0], edges[1]])).clamp(max=1.0)
            said = self.around(self.norm_around(x)).squeeze(1)
            context = _MOST_CONTEXT * torch.tanh(said / _MOST_CONTEXT)
            ratios = ratios + connected * context
        return torch.minimum(torch.maximum(ratios, self.low), self.high)


class Average(nn.Module):
    """Several networks, as one."""

    def __init__(self, networks: list[GraphNetwork]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """The mean of what they say."""
        return torch.stack([network(features, edges) for network in self.networks]).mean(dim=0)


def first_network(
    features: np.ndarray, log_ratios: np.ndarray, hidden: int, exchanges: int, random: np.random.Generator
) -> GraphNetwork:
    """Weights from `random` alone, never from torch's own generator, which all threads share."""
    with torch.device("meta"):
        network = GraphNetwork(features.shape[1], hidden, exchanges)
    network = network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(int(random.integers(2**63)))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2:
                reach = 1 / math.sqrt(parameter.shape[1])
                parameter.uniform_(-reach, reach, generator=generator)
            else:
                parameter.fill_(float("norm" in name and name.endswith("weight")))
        for last in (network.alone, network.around):
            last.weight.zero_()
        spread = features.std(axis=0, dtype=np.float64)
        gain = np.where(spread > 1e-6, 1 / np.maximum(spread, _LEAST_SCALE), 0.0)
        for buffer, values in (
            (network.centre, features.mean(axis=0, dtype=np.float64)),
            (network.gain, gain),
            (network.typical, [np.median(log_ratios)]),
            (network.low, [log_ratios.min() - _MARGIN]),
            (network.high, [log_ratios.max() + _MARGIN]),
        ):
            buffer.copy_(torch.from_numpy(np.asarray(values, dtype=np.float32)))
    return network


def exported(network: Average, features: int) -> bytes:
    """The networks as one ONNX model.

    Args:
        network: What was trained.
        features: Their number.
    """
    plain = copy.deepcopy(network)
    for exchange in [module for module in plain.modules() if isinstance(module, _Exchange)]:
        exchange.down, exchange.up = _Mean(exchange.down), _Mean(exchange.up)
    layers, edges = torch.export.Dim("layers"), torch.export.Dim("edges")
    with _quiet():
        program = torch.onnx.export(
            plain,
            (torch.zeros(7, features), torch.tensor([[0, 1, 1, 2, 4], [1, 2, 3, 3, 5]])),
            input_names=["features", "edges"],
            output_names=["log_ratios"],
            dynamic_shapes=({0: layers}, {1: edges}),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return bytes(program.model_proto.SerializeToString())


def _degrees(x: Tensor, ends: Tensor) -> Tensor:
    """How many edges end at each layer, shape [num_layers]."""
    return x.new_zeros(x.shape[0]).index_add(0, ends, torch.ones_like(ends, dtype=x.dtype))


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of what its own parts deprecate in each other, and of packages that are not needed here."""
    chatty = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in chatty]
    for logger in chatty:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(chatty, levels, strict=True):
            logger.setLevel(level)
