"""Chooses the layers to measure so that a regressor can predict the others: most error removed per second first."""

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from costmodel.estimate.accuracy import expected_error
from costmodel.estimate.estimate import Estimate

__all__ = ["LayerChoice", "choose_layers"]


@dataclass(frozen=True)
class LayerChoice:
    """The layers to measure, and the errors of the models that are expected once they are measured.

    Attributes:
        signatures: Signatures of the layers to measure.
        errors: By name of the model, its expected error as a fraction, as far as it comes from predicted layers.
    """

    signatures: Set[str]
    errors: Mapping[str, float]

    @property
    def error(self) -> float:
        """Root mean square of the expected errors of the models; 0 if there are none."""
        return math.sqrt(math.fsum(error**2 for error in self.errors.values()) / max(1, len(self.errors)))

    def __str__(self) -> str:
        """Returns the expected error as part of a sentence, with that of the worst model; there must be a model."""
        worst = max(self.errors, key=self.errors.__getitem__)
        return f"{self.error:.1%} (root mean square), at most {self.errors[worst]:.1%} ({worst})"


@dataclass
class _Model:
    """What the layers of a model that are still predicted contribute to its error.

    Attributes:
        parts: Expected error of each of them as a fraction of the model's latency, by signature.
        correlation: Correlation between their errors.
        total: Sum of `parts`.
        squares: Sum of the squares of `parts`.
    """

    parts: dict[str, float]
    correlation: float
    total: float
    squares: float

    @classmethod
    def of(cls, estimate: Estimate, correlation: float, known: Set[str]) -> "_Model":
        """Returns the contributions of the layers that are not known."""
        held_us: dict[str, float] = defaultdict(float)
        for layer in estimate.layers:
            if layer.signature not in known and layer.cost.latency_us > 0:
                low_us, high_us = layer.cost.interval_us
                error = expected_error(math.log(high_us / low_us) / 2, estimate.interval_level)
                held_us[layer.signature] += layer.share * layer.cost.latency_us * error
        parts = {signature: us / estimate.latency_us for signature, us in held_us.items()}
        return cls(parts, correlation, sum(parts.values()), sum(part**2 for part in parts.values()))

    @property
    def square(self) -> float:
        """Square of the expected error of the model."""
        return max(0.0, self.correlation * self.total**2 + (1 - self.correlation) * self.squares)

    def gain(self, signature: str) -> float:
        """Returns by how much `square` falls if a layer is measured."""
        part = self.parts[signature]
        return part * (2 * self.correlation * (self.total - part) + part)

    def measure(self, signature: str) -> None:
        """Takes out a layer that is measured."""
        part = self.parts.pop(signature)
        self.total -= part
        self.squares -= part**2


def choose_layers(
    estimates: Sequence[Estimate],
    seconds: Mapping[str, float],
    error: float,
    *,
    correlation: float,
    known: Set[str] = frozenset(),
) -> LayerChoice:
    """Chooses layers until the root mean square of the models' expected errors is at most `error`.

    The layer that lowers the sum of the squared errors most per second of measuring is chosen first (docs/adr/0027).
    A layer of several models counts for each of them.

    Args:
        estimates: Estimates of the models, with all layers predicted.
        seconds: Time to measure each layer in seconds, by signature.
        error: Error to reach, as a fraction.
        correlation: Correlation between the errors of predicted layers of one model.
        known: Signatures of layers that are measured already; they are not chosen.
    """
    models = [_Model.of(estimate, correlation, known) for estimate in estimates]
    readers: dict[str, list[_Model]] = defaultdict(list)
    for model in models:
        for signature in model.parts:
            readers[signature].append(model)

    def value(signature: str) -> float:
        return sum(model.gain(signature) for model in readers[signature]) / seconds[signature]

    # The value of a layer only falls as others are chosen, so it is computed anew when the layer comes first.
    heap = [(-value(signature), signature) for signature in readers]
    heapq.heapify(heap)
    left = sum(model.square for model in models)
    chosen = set()
    while heap and left > error**2 * len(models):
        _, signature = heapq.heappop(heap)
        found = -value(signature)
        if heap and found > heap[0][0]:
            heapq.heappush(heap, (found, signature))
            continue
        chosen.add(signature)
        for model in readers[signature]:
            left -= model.square
            model.measure(signature)
            left += model.square
    return LayerChoice(
        chosen, {estimate.model: math.sqrt(model.square) for estimate, model in zip(estimates, models, strict=True)}
    )
