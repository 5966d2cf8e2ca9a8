"""A neural network on the graph of layers, `gnn_network.py`, and how it is trained.

A layer is a node. It costs its analytical bound times exp(r), and a sequence of any length, up to the whole model, the
sum of its nodes. r has two parts: what the layer says by itself, and what its neighbours add to that, which is nothing
where there are none. Single layers so fix the first part; sequences and whole models, in the same training, fix what
the sum of isolated layers misses: what is still in a cache, the borders between layouts.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.tabular import Encoded
from costmodel.training.gnn_network import Average, GraphNetwork, exported, first_network

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ModuleNotFoundError as error:
    raise MissingExtraError("the graph neural network", "gnn") from error

__all__ = ["GraphRegressor"]

_SINGLE_LAYERS = 512  # in a batch
_LONG_LAYERS = 2048  # in a batch, of sequences of several layers
_BETA = 0.05  # of the smooth L1 loss: errors below 5% count by their squares
_NOISE_US = 3.0  # what a measurement of nothing may be off


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
            self.network_ = Average(
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
        return exported(self.network_, self.columns_)

    def _train(self, encoded: Encoded, latencies_us: np.ndarray, seed: tuple[int, int]) -> GraphNetwork:
        random = np.random.default_rng(seed)
        log_ratios = np.log(latencies_us / encoded.totals(encoded.bounds_us))
        weights = 1 / (0.1 + _NOISE_US / latencies_us) * np.sqrt(encoded.lengths)
        network = first_network(encoded.features, log_ratios, self.hidden, self.exchanges, random)
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
        assert isinstance(trained, GraphNetwork)
        return trained

    def _loss(self, network: GraphNetwork, batch: Encoded, log_ratios: np.ndarray, weights: np.ndarray) -> Tensor:
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


def _misranked(predicted: Tensor, measured: Tensor) -> Tensor:
    """Pairwise logistic loss (Burges et al., 2005) over pairs whose log costs differ by 5% and more."""
    apart = measured.unsqueeze(0) - measured.unsqueeze(1)
    pairs = apart > math.log(1.05)
    if not pairs.any():
        return predicted.new_zeros(())
    return functional.softplus(-10 * (predicted.unsqueeze(0) - predicted.unsqueeze(1))[pairs]).mean()


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
