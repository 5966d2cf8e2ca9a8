"""Predicts the peak memory of a process that runs a model, from what its session allocates (docs/adr/0023).

The prediction is linear in the simulated memory, the mean over the places where the heap of the process may end; the
interval covers all of them. `benchmarks/peak_memory.py fit --write` fits the coefficients and the interval to measured
processes, and stores them in `peak_memory.json` by version of the runtime.
"""

from dataclasses import dataclass

from costmodel.estimate.fitted_coefficients import demand_on, fitted_coefficients
from costmodel.memory.session import MemoryDemand
from costmodel.systems.system import System

__all__ = ["PeakMemory", "predict_peak_memory"]


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peak resident memory of a process that loads a model and runs it.

    Attributes:
        peak_memory_bytes: Predicted peak in bytes, Python and the runtime included.
        interval_bytes: Lower and upper bound of the peak in bytes.
    """

    peak_memory_bytes: int
    interval_bytes: tuple[int, int]


def predict_peak_memory(demand: MemoryDemand | None, system: System) -> PeakMemory | None:
    """Returns the peak memory of a model on a system.

    It depends on the processor only by the size of its blocks of channels, and hardly on the number of threads.

    Args:
        demand: Memory that a session allocates for the model; None if it is not known.
        system: System with the runtime and its settings.

    Returns:
        The peak memory; None if `demand` is None, or if no processes were measured with the runtime's version (major
        and minor) and level of optimisation.
    """
    calibration = fitted_coefficients("peak_memory.json", system)
    if demand is None or calibration is None:
        return None
    demand = demand_on(system, demand)
    of_source = calibration["with_source" if demand.from_source else "without_source"]

    def process_bytes(session_bytes: float) -> float:
        fixed_bytes = of_source["process_bytes"] + of_source["layer_bytes"] * demand.layers
        return float(fixed_bytes + of_source["factor"] * session_bytes)

    low, high = of_source["interval"]
    return PeakMemory(
        round(process_bytes(demand.peak_bytes)),
        (round(low * process_bytes(demand.least_peak_bytes)), round(high * process_bytes(demand.most_peak_bytes))),
    )
