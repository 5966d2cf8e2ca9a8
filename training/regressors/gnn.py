"""Trains the graph neural network of `gnn_network.py`, whose nodes are layers.

The cost of a layer is its analytical bound times exp(r), and the cost of a sequence, from a single layer up to the
whole model, is the sum over its layers. r is the sum of two parts: one from the layer alone, and one from its
neighbours, which is 0 for a layer without neighbours. Single layers train the first part. Longer sequences and whole
models, in the same training, also train the second part, that is, effects that a sum of isolated layers does not
contain: data that is still in a cache, and transitions between tensor layouts.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.tabular import Encoded
from costmodel.training.regressors.gnn_network import Average, GraphNetwork, exported, first_network
from costmodel.training.regressors.torch_threads import torch_threads

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ModuleNotFoundError as error:
    raise MissingExtraError("the graph neural network", "gnn") from error

__all__ = ["GraphRegressor"]

_SINGLE_LAYERS = 512  # single layers in a batch
_LONG_LAYERS = 2048  # layers of longer sequences in a batch
_BETA = 0.05  # parameter of the smooth L1 loss: errors below 5% count by their squares
_NOISE_US = 3.0  # absolute error of a measurement, however short


class GraphRegressor:
    """A graph neural network that predicts costs of sequences by message passing between neighbouring layers.

    The cost of a sequence is the sum of bound * exp(r) over its layers; the network predicts r of each layer.

    Args:
        seed: Seed of the initial weights and of the order of the data.
        hidden: Width of the network.
        num_message_passing_layers: Number of message-passing layers; 0 for a network that predicts each layer alone.
        members: Number of networks, which are trained one after the other and averaged.
        steps: Largest number of training steps of each network; with little data there are fewer.
        min_steps: Number of training steps of each network if there is hardly any data.
        long_every: Number n such that every n-th batch also contains sequences of several layers.
        learning_rate: Largest learning rate during the training.
        weight_decay: Strength of the weight decay.
        threads: Number of threads for training and prediction.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        hidden: int = 128,
        num_message_passing_layers: int = 2,
        members: int = 1,
        steps: int = 1000,
        min_steps: int = 24,
        long_every: int = 3,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.02,
        threads: int = 1,
    ) -> None:
        self.seed = seed
        self.hidden = hidden
        self.num_message_passing_layers = num_message_passing_layers
        self.members = members
        self.steps = steps
        self.min_steps = min_steps
        self.long_every = long_every
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.threads = threads

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the regressor by name, by which training runs can be compared."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_")}

    def fit(self, encoded: Encoded, latencies_us: np.ndarray) -> Self:
        """Trains the networks on measured sequences, from single layers to whole models."""
        self.columns_ = encoded.features.shape[1]
        with torch_threads(self.threads):
            self.network_ = Average(
                [self._train(encoded, latencies_us, (self.seed, member)) for member in range(self.members)]
            ).eval()
        return self

    def predict_us(self, encoded: Encoded) -> np.ndarray:
        """Predicts the costs of layers in microseconds, shape [num_layers]."""
        with torch_threads(self.threads), torch.no_grad():
            ratios = self.network_(torch.from_numpy(encoded.features), torch.from_numpy(encoded.edges))
        return np.asarray(encoded.bounds_us * np.exp(ratios.numpy().astype(np.float64)))

    def to_text(self) -> str:
        """Returns an empty string, because the network has no text format besides the ONNX model."""
        return ""

    def to_onnx(self) -> bytes:
        """Returns the networks as one ONNX model that predicts the mean of their results.

        Inputs: "features", float32 [num_layers, num_features], and "edges", int64 [2, num_edges], where num_edges may
        be 0. Output: log(cost / bound), float32 [num_layers].
        """
        return exported(self.network_, self.columns_)

    def _train(self, encoded: Encoded, latencies_us: np.ndarray, seed: tuple[int, int]) -> GraphNetwork:
        random = np.random.default_rng(seed)
        log_ratios = np.log(latencies_us / encoded.totals(encoded.bounds_us))
        weights = 1 / (0.1 + _NOISE_US / latencies_us) * np.sqrt(encoded.lengths)
        network = first_network(encoded.features, log_ratios, self.hidden, self.num_message_passing_layers, random)
        # Twenty layers of whole models, which are few and large, count as one row.
        steps = min(self.steps, self.min_steps + max(len(encoded), len(encoded.bounds_us) // 20) // 5)
        decay_of_average = 1 - min(0.5, 10 / steps)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(decay_of_average)  # type: ignore[no-untyped-call]
        averaged = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=average)
        single, long = np.flatnonzero(encoded.lengths == 1), np.flatnonzero(encoded.lengths > 1)
        of_single = _batches(single, encoded.lengths, min(_SINGLE_LAYERS, max(16, len(single) // 8)), random)
        of_long = _batches(long, encoded.lengths, _LONG_LAYERS, random)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warmup_cosine(step / steps))
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
        """Returns the mean loss over single layers plus the mean loss over longer sequences.

        The means are separate, so that the few longer sequences count as much as the many single layers.

        Args:
            network: Network in training.
            batch: Sequences as features.
            log_ratios: log(measured cost / bound) of each sequence, shape [num_sequences].
            weights: Weight of each sequence in the mean, shape [num_sequences].
        """
        totals = batch.totals(batch.bounds_us)
        graphs = torch.from_numpy(np.repeat(np.arange(len(batch)), batch.lengths))
        shares = torch.from_numpy((batch.bounds_us / np.repeat(totals, batch.lengths)).astype(np.float32))
        ratios = network(torch.from_numpy(batch.features), torch.from_numpy(batch.edges))
        predicted = torch.zeros(len(batch)).index_add(0, graphs, shares * ratios.exp()).log()
        target = torch.from_numpy(log_ratios.astype(np.float32))
        errors = functional.smooth_l1_loss(predicted, target, beta=_BETA, reduction="none")
        weight = torch.from_numpy(weights.astype(np.float32))
        loss = torch.zeros(())
        for part in (batch.lengths == 1, batch.lengths > 1):
            if part.any():
                chosen = torch.from_numpy(part)
                loss = loss + (weight * errors)[chosen].sum() / weight[chosen].sum()
        return loss


def _batches(
    sequences: np.ndarray, lengths: np.ndarray, layers: int, random: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yields batches of sequences without end: all sequences in random order, then all in another order, and so on.

    If there are no sequences, the batches are empty.

    Args:
        sequences: Positions of the sequences to yield.
        lengths: Number of layers of each sequence of the data set.
        layers: Number of layers that all sequences of a batch have together, approximately.
        random: Source of the random orders.
    """
    while True:
        order = random.permutation(sequences)
        ends = np.cumsum(lengths[order])
        yield from np.split(order, np.flatnonzero(np.diff(ends // layers)) + 1)


def warmup_cosine(done: float) -> float:
    """Returns the learning rate, as a share of the largest one, when the share `done` of the training is done.

    It rises for the first 5% of the training, and then falls as a cosine.
    """
    return min(1.0, 0.05 + done / 0.05) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, done)))
