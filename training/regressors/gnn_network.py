"""The graph neural network as torch modules, and its export to an ONNX model.

The nodes of the graph are layers. The network predicts r = log(cost / analytical bound) of each layer as the sum of two
parts: one from the layer alone, and one from its neighbours, which is 0 for a layer without neighbours.
"""

import copy
import logging
import math
import warnings

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.process_state import log_levels

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    # torch-geometric 2.8 compiles parts of itself in a way that torch 2.13 deprecates.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        from torch_geometric.nn import SAGEConv
except ModuleNotFoundError as error:
    raise MissingExtraError("the graph neural network", "gnn") from error

__all__ = ["Average", "GraphNetwork", "exported", "first_network"]

_CLAMP = 6.0  # limit of a feature in standard deviations, because larger values were hardly trained on
_LEAST_SCALE = 0.2  # smallest scale of a feature, for those that hardly vary, such as the column of a rare operator
_MARGIN = 1.0  # how far, in log cost, a prediction may leave the range of the training data
_MAX_CONTEXT = 0.7  # in log cost: neighbours at most halve or double the cost of a layer
_OPSET = 20


class _Block(nn.Module):
    """A residual block on the vector x of each layer of a model: x + W2 silu(W1 norm(x)).

    Shapes: x [num_layers, hidden], result [num_layers, hidden].
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.wide = nn.Linear(hidden, hidden)
        self.back = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.back(functional.silu(self.wide(self.norm(x))))
        return x + y


class _MessagePassing(nn.Module):
    """Message passing between neighbouring layers, GraphSAGE in both directions of the edges.

    With y = norm(x), the result is x + silu(W1 mean(y of predecessors) + W2 mean(y of successors) + W3 y).

    Shapes: x [num_layers, hidden], edges [2, num_edges], result [num_layers, hidden].
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.down: nn.Module = SAGEConv(hidden, hidden)
        self.up: nn.Module = SAGEConv(hidden, hidden, root_weight=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        y = self.norm(x)
        return x + functional.silu(self.down(y, edges) + self.up(y, torch.stack([edges[1], edges[0]])))


class _OnnxSageConv(nn.Module):
    """A replacement for SAGEConv of torch-geometric, with the same parameters, made of operators that ONNX has.

    y_i = W_l mean(x_j for edges j -> i) + W_r x_i

    Shapes: x [num_layers, hidden], edges [2, num_edges], result y [num_layers, hidden].
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
    """A network that predicts log(cost / analytical bound) of each layer from features and edges between layers.

    Shapes: features [num_layers, num_features], edges [2, num_edges], result [num_layers].
    """

    centre: Tensor
    gain: Tensor
    typical: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, features: int, hidden: int, num_message_passing_layers: int) -> None:
        super().__init__()
        for name, size in (("centre", features), ("gain", features), ("typical", 1), ("low", 1), ("high", 1)):
            self.register_buffer(name, torch.zeros(size))
        self.enter = nn.Linear(features, hidden)
        self.blocks = nn.ModuleList(_Block(hidden) for _ in range(2))
        self.norm_alone = nn.LayerNorm(hidden)
        self.alone = nn.Linear(hidden, 1)
        self.message_passing = nn.ModuleList(_MessagePassing(hidden) for _ in range(num_message_passing_layers))
        self.norm_around = nn.LayerNorm(hidden)
        self.around = nn.Linear(hidden, 1)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Maps features of layers and edges between them to log(cost / analytical bound) of each layer.

        Shapes: features [num_layers, num_features], edges [2, num_edges], result [num_layers].
        """
        x = functional.silu(self.enter(((features - self.centre) * self.gain).clamp(-_CLAMP, _CLAMP)))
        for block in self.blocks:
            x = block(x)
        ratios: Tensor = self.typical + self.alone(self.norm_alone(x)).squeeze(1)
        # In training, batches without edges skip message passing, which has no effect on them; the exported model
        # has no such branch.
        if len(self.message_passing) and not (self.training and edges.shape[1] == 0):
            for exchange in self.message_passing:
                x = exchange(x, edges)
            connected = _degrees(x, torch.cat([edges[0], edges[1]])).clamp(max=1.0)
            unbounded = self.around(self.norm_around(x)).squeeze(1)
            context = _MAX_CONTEXT * torch.tanh(unbounded / _MAX_CONTEXT)
            ratios = ratios + connected * context
        return torch.minimum(torch.maximum(ratios, self.low), self.high)


class Average(nn.Module):
    """The mean of the results of several networks, as one module."""

    def __init__(self, networks: list[GraphNetwork]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """Maps features of layers and edges between them to the networks' mean log(cost / bound) of each layer.

        Shapes: features [num_layers, num_features], edges [2, num_edges], result [num_layers].
        """
        return torch.stack([network(features, edges) for network in self.networks]).mean(dim=0)


def first_network(
    features: np.ndarray,
    log_ratios: np.ndarray,
    hidden: int,
    num_message_passing_layers: int,
    random: np.random.Generator,
) -> GraphNetwork:
    """Creates an untrained network whose inputs and outputs are scaled to the training data.

    All random weights come from `random`, and none from torch's own generator, which all threads share.

    Args:
        features: Features of the training data, shape [num_layers, num_features].
        log_ratios: log(cost / analytical bound) of the training sequences, shape [num_sequences].
        hidden: Width of the network.
        num_message_passing_layers: Number of message-passing layers.
        random: Source of the random weights.
    """
    with torch.device("meta"):
        network = GraphNetwork(features.shape[1], hidden, num_message_passing_layers)
    network = network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(int(random.integers(2**63)))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2:
                limit = 1 / math.sqrt(parameter.shape[1])
                parameter.uniform_(-limit, limit, generator=generator)
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
    """Returns trained networks as one ONNX model that predicts the mean of their results.

    Args:
        network: Module that averages the trained networks.
        features: Number of features of a layer.
    """
    plain = copy.deepcopy(network)
    for exchange in [module for module in plain.modules() if isinstance(module, _MessagePassing)]:
        exchange.down, exchange.up = _OnnxSageConv(exchange.down), _OnnxSageConv(exchange.up)
    layers, edges = torch.export.Dim("layers"), torch.export.Dim("edges")
    # The exporter warns of its own deprecated parts and of packages that are not needed here.
    with log_levels(dict.fromkeys(("torch.onnx", "onnx_ir"), logging.ERROR)), warnings.catch_warnings(action="ignore"):
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
    """Returns the number of edges that end at each layer, shape [num_layers].

    Args:
        x: Vectors of the layers, shape [num_layers, hidden], of which only the number and the type are used.
        ends: Layer at the end of each edge, shape [num_edges].
    """
    return x.new_zeros(x.shape[0]).index_add(0, ends, torch.ones_like(ends, dtype=x.dtype))
