"""The job of `costmodel interference`: measures how much layers slow each other that run side by side on this host."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.errors import MeasurementError
from costmodel.estimate.interference import Interference, ModelTraffic
from costmodel.features.memory_traffic import model_traffic
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.affinity import cpus_beside
from costmodel.measure.contenders import Contender, contenders
from costmodel.measure.interference import Slowdowns
from costmodel.progress import Progress
from costmodel.runtimes.base import Runtime
from costmodel.store.store import Store
from costmodel.systems.host import Host
from costmodel.systems.system import System

__all__ = ["InterferenceReport", "fit_interference", "measure_interference"]

# Pairs in which reading evicted data anew takes at least this share of the time are no part of the fit: how much is
# evicted is known less well than how long it takes to wait.
_LITTLE = 0.05


@dataclass(frozen=True)
class InterferenceReport:
    """What was measured about interference on a system.

    Attributes:
        system: Name of the system.
        contenders: Contenders that were run side by side, by key.
        measured: Their times alone, and how many times as long they took beside each other.
        predicted: The same ratios by the fitted law, shape [num_contenders, num_contenders].
        law: The fitted law.
        seconds: Seconds that measuring took.
    """

    system: str
    contenders: dict[str, Contender]
    measured: Slowdowns
    predicted: np.ndarray
    law: Interference
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as JSON-serialisable data."""
        return {
            "system": self.system,
            "contenders": [
                {"key": key, "name": one.name, "alone_us": alone_us}
                for (key, one), alone_us in zip(self.contenders.items(), self.measured.alone_us.tolist(), strict=True)
            ],
            "slowdowns": [
                [ratio if math.isfinite(ratio) else None for ratio in ratios]
                for ratios in self.measured.ratios.tolist()
            ],
            "predicted": self.predicted.tolist(),
            "near": self.measured.near,
            "coefficients": self.law.capabilities(),
            "seconds": self.seconds,
        }


def measure_interference(
    store: Store,
    system: System,
    runtime: Runtime,
    *,
    progress: Progress | None = None,
    bench: Callable[[Store, System, Runtime], BenchmarkSession] = BenchmarkSession,
    clock_s: Callable[[], float] = time.monotonic,
) -> InterferenceReport:
    """Measures the interference on this host, and stores the coefficients with the system; takes about a minute.

    Args:
        store: Store that has, or receives, the system.
        system: This host, described as a system.
        runtime: Runtime that runs the layers.
        progress: Progress callback.
        bench: Function that makes a benchmark session from a store, a system and a runtime.
        clock_s: Reads a monotonic clock, in seconds.

    Raises:
        HostBusyError: Another process is measuring.
        MeasurementError: The host has too few CPUs for two of these systems side by side, or a layer does not run.
        SystemMismatchError: The store has a system of that name with another machine, runtime or settings.
    """
    if cpus_beside(system.settings.cpus) is None:  # before the session stores this host as a system
        raise MeasurementError(
            f"two sessions of {system.name} side by side need {2 * system.settings.cpus} CPUs, and this process may "
            "use fewer: measure with fewer --threads or on a larger machine"
        )
    begin_s = clock_s()
    chosen = contenders(system.host)
    with bench(store, system, runtime) as session:
        measured = session.measure_slowdowns(list(chosen.values()), progress=progress)
        law, predicted = fit_interference(chosen, measured, system.host)
        session.system = replace(session.system, capabilities={**session.system.capabilities, **law.capabilities()})
        store.put_system(session.system)
    return InterferenceReport(system.name, chosen, measured, predicted, law, clock_s() - begin_s)


def fit_interference(
    chosen: dict[str, Contender], measured: Slowdowns, host: Host | None
) -> tuple[Interference, np.ndarray]:
    """Fits the law of interference to the slowdowns of contenders.

    The rates follow from the times alone; the two shares are a least-squares fit, neither below 0.

    Args:
        chosen: The contenders by key.
        measured: Their times alone and their slowdowns, in the same order.
        host: Host with the size of the last-level cache.

    Returns:
        The law, and the slowdowns that it predicts for the contenders.
    """
    traffic = {
        key: _traffic(one, alone_us)
        for (key, one), alone_us in zip(chosen.items(), measured.alone_us.tolist(), strict=True)
    }
    streaming = traffic["streaming"]
    law = Interference(
        weights_gbps=_weights_gbps(traffic["weights"]),
        cache_gbps=_weights_gbps(traffic["in_cache"]),
        stream_gbps=float(streaming.activation_bytes.sum()) / streaming.total_us / 1e3,
        memory=0.0,
        computing=0.0,
        near_share=measured.near_share,
    )
    models = list(traffic.values())
    parts = np.array([law.parts(one, [other], host) for one in models for other in models])
    totals_us = np.repeat([one.total_us for one in models], len(models))
    evicted = parts[:, 2] / totals_us
    kept = (evicted < _LITTLE) & np.isfinite(measured.ratios.ravel())
    memory, computing = _non_negative(parts[kept, :2], measured.ratios.ravel()[kept] - 1 - evicted[kept])
    law = replace(law, memory=memory, computing=computing)
    predicted = np.array([[law.slowdown(one, [other], host) for other in models] for one in models])
    return replace(law, error=float(np.nanmean(np.abs(np.log(predicted / measured.ratios))))), predicted


def _traffic(one: Contender, alone_us: float) -> ModelTraffic:
    return model_traffic([one.sequence] * one.copies, [alone_us / one.copies] * one.copies)


def _weights_gbps(traffic: ModelTraffic) -> float:
    return float(traffic.weight_bytes.sum()) / traffic.total_us / 1e3


def _non_negative(columns: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Returns the two coefficients of 0 or more with which the columns come nearest to the values.

    SciPy has this for any number of columns, but is installed for training only.
    """
    best = np.linalg.lstsq(columns, values, rcond=None)[0]
    if (best < 0).any():
        single = np.maximum(0.0, columns.T @ values / np.maximum((columns**2).sum(axis=0), 1e-12))
        candidates = [np.array([single[0], 0.0]), np.array([0.0, single[1]])]
        best = min(candidates, key=lambda found: float(((columns @ found - values) ** 2).sum()))
    return float(best[0]), float(best[1])
