"""Predicts the peak memory of a process that runs a model, from what its session allocates (docs/adr/0023).

The prediction is linear in the simulated memory. How far small blocks fragment it differs between processes and cannot
be predicted: the prediction lies between both cases, nearer to the one that is more often found for weights of the
model's kind, and the interval covers them. `benchmarks/peak_memory.py fit --write` fits the coefficients and the
interval to measured processes, and stores them in `peak_memory.json` by version of the runtime.
"""

from dataclasses import dataclass

from costmodel.estimate.fitted_coefficients import fitted_coefficients
from costmodel.memory.session import MemoryDemand
from costmodel.systems.system import System

__all__ = ["PeakMemory", "fragmented_share", "predict_peak_memory"]

# How far memory is on average from the compact case to the fragmented one, by what happens to the weights when a model
# is loaded (docs/adr/0023, "Between the cases").
_FRAGMENTED_BY_REORDERING = 0.5
_FRAGMENTED_BY_PACKING = 0.37
_FRAGMENTED_BY_MATMUL = 0.1
# The same, whatever the weights, for a model whose exporter left so many batch normalisations in the graph.
_FRAGMENTED_BY_NORMALISATIONS = 0.78
_LEAST_NORMALISATIONS = 5


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

    It does not depend on the processor, and hardly on the number of threads.

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
    of_source = calibration["with_source" if demand.from_source else "without_source"]

    def process_bytes(session_bytes: float) -> float:
        fixed_bytes = of_source["process_bytes"] + of_source["layer_bytes"] * demand.layers
        return float(fixed_bytes + of_source["factor"] * session_bytes)

    low, high = of_source["interval"]
    share = fragmented_share(demand.reordered_bytes, demand.packed_bytes, demand.matmul_bytes, demand.normalisations)
    return PeakMemory(
        round(process_bytes((1 - share) * demand.peak_bytes + share * demand.fragmented_peak_bytes)),
        (
            round(low * process_bytes(demand.peak_bytes)),
            round(high * process_bytes(demand.fragmented_peak_bytes)),
        ),
    )


def fragmented_share(reordered_bytes: float, packed_bytes: float, matmul_bytes: float, normalisations: int) -> float:
    """Returns how far the memory of a model is likely to be from the compact case (0) to the fragmented one (1).

    Args:
        reordered_bytes: Size of the weights that are reordered for blocked layers.
        packed_bytes: Size of the matrices that are packed.
        matmul_bytes: The part of `packed_bytes` that is packed by MatMul, as opposed to Gemm.
        normalisations: Number of batch normalisations in the source model.
    """
    if normalisations >= _LEAST_NORMALISATIONS:
        return _FRAGMENTED_BY_NORMALISATIONS
    changed_bytes = reordered_bytes + packed_bytes
    if not changed_bytes:
        return _FRAGMENTED_BY_PACKING
    return (
        _FRAGMENTED_BY_REORDERING * reordered_bytes
        + _FRAGMENTED_BY_PACKING * (packed_bytes - matmul_bytes)
        + _FRAGMENTED_BY_MATMUL * matmul_bytes
    ) / changed_bytes
