"""Latencies of models beside others, from the estimates of each alone and the interference of the system."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.errors import UnknownSystemError
from costmodel.estimate.estimate import Estimate
from costmodel.estimate.interference import Interference, ModelTraffic, slowdown_interval
from costmodel.features.memory_traffic import model_traffic
from costmodel.partition.decomposition import Decomposition
from costmodel.systems.system import System

__all__ = ["estimate_beside", "traffic_of"]


def estimate_beside(
    system: System, model: tuple[Estimate, Decomposition], others: Sequence[tuple[Estimate, Decomposition]]
) -> Estimate:
    """Returns the estimate of a model while others run beside it again and again, each on its own CPUs.

    Args:
        system: System on which all of them run.
        model: Estimate of the model alone, and its decomposition.
        others: The same of each of the other models.

    Raises:
        UnknownSystemError: The interference of the system was not measured.
    """
    law = Interference.from_capabilities(system.capabilities)
    if law is None:
        raise UnknownSystemError(
            f"how much models slow each other was never measured on {system.name}: run `costmodel interference` on "
            "that machine, or ask about the model alone"
        )
    estimate, _ = model
    slowdown = law.slowdown(traffic_of(*model), [traffic_of(*other) for other in others], system.host)
    interval = slowdown_interval(slowdown)
    notes = [
        *estimate.warnings,
        *(f"{other.model}: {warning}" for other, _ in others for warning in other.warnings),
    ]
    if len(others) > 1:
        notes.append("how much several models slow another is the sum of what each does, and was checked for one only")
    if law.near_share < 1:
        notes.append(
            f"{system.name} moves its CPUs: they shared a last-level cache for {law.near_share:.0%} of the time in "
            "which interference was measured, and models hardly slow each other for the rest"
        )
    low, high = estimate.interval_us
    below, above = (
        math.hypot(*logs)
        for logs in (
            (_log_ratio(estimate.latency_us, low), math.log(slowdown / interval[0])),
            (_log_ratio(high, estimate.latency_us), math.log(interval[1] / slowdown)),
        )
    )
    latency_us = slowdown * estimate.latency_us
    return replace(
        estimate,
        latency_us=latency_us,
        interval_us=(latency_us * math.exp(-below), latency_us * math.exp(above)),
        beside=tuple(other.model for other, _ in others),
        slowdown=slowdown,
        slowdown_interval=interval,
        warnings=tuple(dict.fromkeys(notes)),
    )


def traffic_of(estimate: Estimate, cut: Decomposition) -> ModelTraffic:
    """Returns the memory traffic of a model, from its estimate alone and its decomposition."""
    latencies_us = np.array([layer.share * layer.cost.latency_us for layer in estimate.layers])
    return model_traffic([segment.sequence for segment in cut.segments], latencies_us)


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if below > 0 else 0.0
