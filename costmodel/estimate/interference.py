"""Interference: how much models slow each other that run at the same time, each on its own CPUs (docs/adr/0025).

Models share the last-level cache and the memory behind it. The law has three parts, each with one or two coefficients
that `costmodel interference` measures on a system:

- *Memory.* A layer waits for the data that it reads from memory. Beside a layer that streams, it waits longer, by a
  share of that waiting. What a layer does to others grows faster than the rate at which it reads.
- *Cache.* Data that would stay in the last-level cache until the next run is evicted if the others bring more data into
  it meanwhile than it has room for. It then comes from memory.
- *Computing.* Layers that compute slow each other only where CPUs share a core.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.measure.groups import DEFAULT_L3_BYTES
from costmodel.measure.interference import INTERFERENCE
from costmodel.systems.host import Host

__all__ = ["Interference", "ModelTraffic", "slowdown_interval"]

# Data of this share of the last-level cache stays in it from run to run, and of this share leaves it: a share of the
# cache belongs to other tenants, and its sets fill unevenly.
_STAYS, _LEAVES = 0.35, 1.15
# Data that others find in the cache evicts less than what they bring in: this share of it counts.
_RESIDENT_SHARE = 0.25
# Reading evicted data is hidden behind computing unless it takes at least 1 / this of the time of a sequence.
_VISIBLE = 2.0
# Exponent of the pressure on the memory, as a function of the rate of reading.
_PRESSURE_EXPONENT = 1.7
# Half-width of the 90% interval of log(slowdown): what two measurements of a pair differ by, and a share of the effect.
_NOISE, _SHARE_OF_EFFECT = 0.05, 0.5


@dataclass(frozen=True)
class ModelTraffic:
    """The layer sequences of a model, with what they read and write.

    Attributes:
        latency_us: Latency of each sequence alone in microseconds, shape [num_sequences].
        weight_bytes: Bytes of weights that each sequence reads, shape [num_sequences].
        activation_bytes: Bytes of other tensors that each sequence reads and writes, shape [num_sequences].
    """

    latency_us: np.ndarray
    weight_bytes: np.ndarray
    activation_bytes: np.ndarray

    @property
    def total_us(self) -> float:
        """Latency of the whole model alone, in microseconds."""
        return float(self.latency_us.sum())


@dataclass(frozen=True, slots=True)
class Interference:
    """What `costmodel interference` knows about a system.

    Attributes:
        weights_gbps: Rate at which a layer with few rows reads weights from memory, in 10^9 bytes per second.
        cache_gbps: Rate at which it reads them from the last-level cache, in 10^9 bytes per second.
        stream_gbps: Rate at which a layer streams large tensors, in 10^9 bytes per second.
        memory: By how much waiting for memory grows beside a layer that streams, as a share of it.
        computing: By how much computing takes longer beside a layer that computes, as a share of it.
        error: Mean absolute error of the logarithms of the slowdowns that the coefficients were fitted to.
        near_share: Share of the time in which the CPUs shared a last-level cache while this was measured.
    """

    weights_gbps: float
    cache_gbps: float
    stream_gbps: float
    memory: float
    computing: float
    error: float = 0.0
    near_share: float = 1.0

    @classmethod
    def from_capabilities(cls, capabilities: Mapping[str, float]) -> "Interference | None":
        """Returns what the capabilities of a system say; None if its interference was not measured."""
        found = {name: capabilities.get(f"{INTERFERENCE}{name}") for name in cls.__dataclass_fields__}
        return None if None in found.values() else cls(**found)  # type: ignore[arg-type]

    def capabilities(self) -> dict[str, float]:
        """Returns the coefficients as capabilities of a system."""
        return {f"{INTERFERENCE}{name}": float(getattr(self, name)) for name in self.__dataclass_fields__}

    def slowdown(self, model: ModelTraffic, others: Sequence[ModelTraffic], host: Host | None) -> float:
        """Returns how many times as long a model takes while others run again and again, each on its own CPUs.

        Args:
            model: The model.
            others: Models that run beside it.
            host: Host with the size of the last-level cache.
        """
        waiting, computing, extra_us = self.parts(model, others, host)
        return 1.0 + extra_us / max(model.total_us, 1e-9) + self.memory * waiting + self.computing * computing

    def parts(
        self, model: ModelTraffic, others: Sequence[ModelTraffic], host: Host | None
    ) -> tuple[float, float, float]:
        """Returns the factors by which `memory` and `computing` count, and the extra time of evicted data.

        Returns:
            The share of waiting for memory times the pressure of the others; the share of computing times theirs; and
            the time in microseconds that it takes to read the evicted data from memory instead of the cache.
        """
        l3_bytes = float((host.l3_bytes if host else 0) or DEFAULT_L3_BYTES)
        every = [model, *others]
        alone = [_Misses.alone(one, l3_bytes) for one in every]
        touched = [_touched(miss, one) for miss, one in zip(alone, every, strict=True)]
        beside = [
            _Misses.beside(one, touched[:number] + touched[number + 1 :], l3_bytes) for number, one in enumerate(every)
        ]
        extra_us = [self._extra_us(*of_one) for of_one in zip(every, alone, beside, strict=True)]
        waiting_us = np.minimum(model.latency_us + extra_us[0], self._waiting_us(model, beside[0]))
        pressure = sum(map(self._pressure, others, beside[1:], extra_us[1:]))
        busy = [1.0 - self._waiting_share(one, miss) for one, miss in zip(every, alone, strict=True)]
        total_us = max(model.total_us, 1e-9)
        return float(waiting_us.sum()) / total_us * pressure, busy[0] * sum(busy[1:]), float(extra_us[0].sum())

    def _extra_us(self, model: ModelTraffic, alone: "_Misses", beside: "_Misses") -> np.ndarray:
        """Returns how much longer each sequence takes to read what others evicted, in microseconds.

        A sequence that computes for much longer than it takes to read its data from memory hides most of the reading.
        """
        weights = model.weight_bytes * (beside.weights - alone.weights)
        activations = model.activation_bytes * (beside.activations - alone.activations)
        later_us = weights * self._slower(self.weights_gbps) + activations * self._slower(self.stream_gbps)
        reading_us = self._waiting_us(model, beside)
        visible = np.minimum(1.0, _VISIBLE * reading_us / np.maximum(model.latency_us, 1e-9))
        return np.asarray(later_us * visible)

    def _slower(self, gbps: float) -> float:
        """Returns by how many microseconds per byte data comes later from memory than from the cache."""
        return max(0.0, 1 / gbps - 1 / self.cache_gbps) / 1e3

    def _waiting_us(self, model: ModelTraffic, miss: "_Misses") -> np.ndarray:
        return np.asarray(
            model.weight_bytes * miss.weights / (self.weights_gbps * 1e3)
            + model.activation_bytes * miss.activations / (self.stream_gbps * 1e3)
        )

    def _waiting_share(self, model: ModelTraffic, miss: "_Misses") -> float:
        waiting_us = np.minimum(model.latency_us, self._waiting_us(model, miss))
        return float(waiting_us.sum()) / max(model.total_us, 1e-9)

    def _pressure(self, model: ModelTraffic, miss: "_Misses", extra_us: np.ndarray) -> float:
        """Returns the pressure of a model on the memory, from 0 to 1, the time-weighted mean over its sequences."""
        times_us = np.maximum(model.latency_us + extra_us, 1e-9)
        rate = miss.from_memory(model) / times_us / (self.stream_gbps * 1e3)
        return float((times_us * np.minimum(1.0, rate) ** _PRESSURE_EXPONENT).sum() / max(times_us.sum(), 1e-9))


@dataclass(frozen=True)
class _Misses:
    """Shares of what a model reads that come from memory.

    Attributes:
        weights: Share of the weights.
        activations: Share of the other tensors of each sequence, shape [num_sequences].
    """

    weights: float
    activations: np.ndarray

    @classmethod
    def alone(cls, model: ModelTraffic, l3_bytes: float) -> "_Misses":
        """Returns the shares for a model that runs again and again alone."""
        return cls(float(_evicted(model.weight_bytes.sum() / l3_bytes)), _evicted(model.activation_bytes / l3_bytes))

    @classmethod
    def beside(cls, model: ModelTraffic, others: Sequence["_Touched"], l3_bytes: float) -> "_Misses":
        """Returns the shares for a model that runs again and again beside others.

        Weights are read again after the latency of the model, other tensors within the latency of their sequence.
        """
        own = float(model.weight_bytes.sum())
        during_run = sum(other.within(np.asarray(model.total_us)) for other in others)
        during_sequence = sum(other.within(model.latency_us) for other in others)
        return cls(
            float(_evicted((own + during_run) / l3_bytes)) if own else 0.0,
            _evicted((model.activation_bytes + during_sequence) / l3_bytes),
        )

    def from_memory(self, model: ModelTraffic) -> np.ndarray:
        """Returns the bytes that each sequence reads from memory or writes to it."""
        return np.asarray(model.weight_bytes * self.weights + model.activation_bytes * self.activations)


@dataclass(frozen=True)
class _Touched:
    """How much of the last-level cache a model fills in a time.

    Attributes:
        bytes_per_us: Rate at which it brings in data from memory.
        resident_bytes: Data that it finds there and reads again in each run, as far as it evicts that of others.
        total_us: Latency of a run in microseconds.
    """

    bytes_per_us: float
    resident_bytes: float
    total_us: float

    def within(self, times_us: np.ndarray) -> np.ndarray:
        """Returns the bytes that it touches in each of the given times."""
        return np.asarray(
            self.bytes_per_us * times_us + self.resident_bytes * np.minimum(1.0, times_us / max(self.total_us, 1e-9))
        )


def _touched(miss: _Misses, model: ModelTraffic) -> _Touched:
    total_us = max(model.total_us, 1e-9)
    resident = _RESIDENT_SHARE * float(model.weight_bytes.sum()) * (1 - miss.weights)
    return _Touched(float(miss.from_memory(model).sum()) / total_us, resident, total_us)


def _evicted(share_of_cache: np.ndarray | float) -> np.ndarray:
    return np.clip((np.asarray(share_of_cache) - _STAYS) / (_LEAVES - _STAYS), 0.0, 1.0)


def slowdown_interval(slowdown: float) -> tuple[float, float]:
    """Returns the lower and upper bound of a predicted slowdown, which hold it with a probability of 90%."""
    width = math.hypot(_NOISE, _SHARE_OF_EFFECT * math.log(slowdown))
    return max(1.0, slowdown * math.exp(-width)), slowdown * math.exp(width)
