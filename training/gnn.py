"""A neural network on the graph of layers: the only file that knows torch and torch-geometric.

A layer is a node. It costs its analytical bound times exp(r), and a sequence of any length, up to the whole model, the
sum of its nodes. r has two parts: what the layer says by itself, and what its neighbours add to that, which is nothing
where there are none. Single layers so fix the first part; sequences and whole models, in the same training, fix what
the sum of isolated layers misses: what is still in a cache, the borders between layouts.
"""

import copy
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.tabular import Encoded

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    with warnings.catch_warnings():  # torch-geometric 2.8 compiles parts of itself in a way that torch 2.13 deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import SAGEConv
except ModuleNotFoundError as error:
    raise MissingExtraError("the graph neural network", "gnn") from error

__all__ = ["GraphRegressor"]

_CLAMP = 6.0  # standard deviations: beyond what was seen, a feature says "large" and no more
_LEAST_SCALE = 0.2  # of a feature that hardly varies, such as the mark of a rare operator
_MARGIN = 1.0  # how far, in log cost, a prediction may leave the range of those seen
_MOST_CONTEXT = 0.7  # in log cost: neighbours can halve or double what a layer costs, not more
_SINGLE_LAYERS = 512  # in a batch
_LONG_LAYERS = 2048  # in a batch, of sequences of several layers
_BETA = 0.05  # of the smooth L1 loss: errors below 5% count by their squares
_NOISE_US = 3.0  # what a measurement of nothing may be off
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


class _Network(nn.Module):
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


class _Average(nn.Module):
    """Several networks, as one."""

    def __init__(self, networks: list[_Network]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        return torch.stack([network(features, edges) for network in self.networks]).mean(dim=0)


class GraphRegressor:
    """Message passing on the graph of layers, cost = sum of bound * exp(r) over its nodes.

    Args:
        seed: Of the first weights and of the order of the data.
        hidden: Width of the network.
        exchanges: Layers of message passing; 0 for a network that sees each layer alone.
        members: Networks that are trained one after the other and averaged.
        steps: Batches that each is trained on, with much data; with little they are fewer.
        least_steps: With hardly any.
        long_every: One batch in so many holds sequences of several layers, too.
        long_weight: Of those in the loss of such a batch.
        ranking: Weight of the pairwise logistic loss, over sequences of several layers; 0 for none.
        rate: Largest learning rate.
        decay: Weight decay.
        threads: Used for training.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        hidden: int = 128,
        exchanges: int = 2,
        members: int = 1,
        steps: int = 1000,
        least_steps: int = 24,
        long_every: int = 3,
        long_weight: float = 1.0,
        ranking: float = 0.0,
        rate: float = 2e-3,
        decay: float = 0.02,
        threads: int = 1,
    ) -> None:
        self.seed = seed
        self.hidden = hidden
        self.exchanges = exchanges
        self.members = members
        self.steps = steps
        self.least_steps = least_steps
        self.long_every = long_every
        self.long_weight = long_weight
        self.ranking = ranking
        self.rate = rate
        self.decay = decay
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """All that it was told, to compare runs by."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_")}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Train the networks."""
        self.columns_ = encoded.features.shape[1]
        with _threads(self.threads):
            self.network_ = _Average(
                [self._train(encoded, latencies_us, (self.seed, member)) for member in range(self.members)]
            ).eval()
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Costs of layers in microseconds, shape [num_layers]."""
        with _threads(self.threads), torch.no_grad():
            ratios = self.network_(torch.from_numpy(encoded.features), torch.from_numpy(encoded.edges))
        return np.asarray(encoded.bounds_us * np.exp(ratios.numpy().astype(np.float64)))

    def to_text(self) -> str:
        """None: its weights are in the ONNX model and nowhere else."""
        return ""

    def to_onnx(self) -> bytes:
        """The networks as one ONNX model.

        Inputs: "features", float32 [num_layers, num_features], and "edges", int64 [2, num_edges], of which there may
        be none. Output: log ratios, float32 [num_layers].
        """
        plain = copy.deepcopy(self.network_)
        for exchange in [module for module in plain.modules() if isinstance(module, _Exchange)]:
            exchange.down, exchange.up = _Mean(exchange.down), _Mean(exchange.up)
        layers, edges = torch.export.Dim("layers"), torch.export.Dim("edges")
        with _quiet():
            program = torch.onnx.export(
                plain,
                (torch.zeros(7, self.columns_), torch.tensor([[0, 1, 1, 2, 4], [1, 2, 3, 3, 5]])),
                input_names=["features", "edges"],
                output_names=["log_ratios"],
                dynamic_shapes=({0: layers}, {1: edges}),
                opset_version=_OPSET,
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        return bytes(program.model_proto.SerializeToString())

    def _train(self, encoded: Encoded, latencies_us: np.ndarray, seed: tuple[int, int]) -> _Network:
        random = np.random.default_rng(seed)
        log_ratios = np.log(latencies_us / encoded.totals(encoded.bounds_us))
        weights = 1 / (0.1 + _NOISE_US / latencies_us) * np.sqrt(encoded.lengths)
        network = _first_network(encoded.features, log_ratios, self.hidden, self.exchanges, random)
        # Whole models are few and large: twenty of their layers count as one row.
        steps = min(self.steps, self.least_steps + max(len(encoded), len(encoded.bounds_us) // 20) // 5)
        kept = 1 - min(0.5, 10 / steps)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(kept)  # type: ignore[no-untyped-call]
        averaged = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=average)
        single, long = np.flatnonzero(encoded.lengths == 1), np.flatnonzero(encoded.lengths > 1)
        of_single = _batches(single, encoded.lengths, min(_SINGLE_LAYERS, max(16, len(single) // 8)), random)
        of_long = _batches(long, encoded.lengths, _LONG_LAYERS, random)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.rate, weight_decay=self.decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _pace(step / steps))
        for step in range(steps):
            both = len(long) and (step % self.long_every == 0 or not len(single))
            chosen = np.concatenate([next(of_single), next(of_long) if both else long[:0]])
            loss = self._loss(network, encoded.take(chosen), log_ratios[chosen], weights[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            averaged.update_parameters(network)
        trained = averaged.module
        assert isinstance(trained, _Network)
        return trained

    def _loss(self, network: _Network, batch: Encoded, log_ratios: np.ndarray, weights: np.ndarray) -> Tensor:
        """Of single layers, plus that of longer sequences: their own mean, so that a few count as much as the many."""
        totals = batch.totals(batch.bounds_us)
        graphs = torch.from_numpy(np.repeat(np.arange(len(batch)), batch.lengths))
        shares = torch.from_numpy((batch.bounds_us / np.repeat(totals, batch.lengths)).astype(np.float32))
        ratios = network(torch.from_numpy(batch.features), torch.from_numpy(batch.edges))
        predicted = torch.zeros(len(batch)).index_add(0, graphs, shares * ratios.exp()).log()
        target = torch.from_numpy(log_ratios.astype(np.float32))
        errors = functional.smooth_l1_loss(predicted, target, beta=_BETA, reduction="none")
        weight = torch.from_numpy(weights.astype(np.float32))
        loss = torch.zeros(())
        for part, factor in ((batch.lengths == 1, 1.0), (batch.lengths > 1, self.long_weight)):
            if part.any():
                chosen = torch.from_numpy(part)
                loss = loss + factor * (weight * errors)[chosen].sum() / weight[chosen].sum()
        if self.ranking and (batch.lengths > 1).sum() > 1:
            long = torch.from_numpy(batch.lengths > 1)
            bounds = torch.from_numpy(np.log(totals).astype(np.float32))
            loss = loss + self.ranking * _misranked((predicted + bounds)[long], (target + bounds)[long])
        return loss


def _first_network(
    features: np.ndarray, log_ratios: np.ndarray, hidden: int, exchanges: int, random: np.random.Generator
) -> _Network:
    """Weights from `random` alone, never from torch's own generator, which all threads share."""
    with torch.device("meta"):
        network = _Network(features.shape[1], hidden, exchanges)
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


def _batches(
    sequences: np.ndarray, lengths: np.ndarray, layers: int, random: np.random.Generator
) -> Iterator[np.ndarray]:
    """Sequences in ever new orders, about `layers` layers at a time; where there are none, none without end."""
    while True:
        order = random.permutation(sequences)
        ends = np.cumsum(lengths[order])
        yield from np.split(order, np.flatnonzero(np.diff(ends // layers)) + 1)


def _pace(done: float) -> float:
    """The learning rate as a share of the largest: up for a twentieth of the time, then down along a cosine."""
    return min(1.0, 0.05 + done / 0.05) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, done)))


def _degrees(x: Tensor, ends: Tensor) -> Tensor:
    """How many edges end at each layer, shape [num_layers]."""
    return x.new_zeros(x.shape[0]).index_add(0, ends, torch.ones_like(ends, dtype=x.dtype))


def _misranked(predicted: Tensor, measured: Tensor) -> Tensor:
    """Pairwise logistic loss (Burges et al., 2005) over pairs whose log costs differ by 5% and more."""
    apart = measured.unsqueeze(0) - measured.unsqueeze(1)
    pairs = apart > math.log(1.05)
    if not pairs.any():
        return predicted.new_zeros(())
    return functional.softplus(-10 * (predicted.unsqueeze(0) - predicted.unsqueeze(1))[pairs]).mean()


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


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
