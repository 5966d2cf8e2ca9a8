"""Predicts the peak memory of a process that runs a model, from what its session allocates (docs/adr/0023).

The prediction is linear in the simulated memory. Whether small blocks fragment it differs between processes and cannot
be predicted: the prediction lies between both cases, and the interval covers them. Models whose products have no bias,
as most decoders, were seldom found fragmented. `benchmarks/peak_memory.py fit
--write` fits the coefficients and the interval to measured processes, and stores them in `peak_memory.json` by version
of the runtime.
"""

from dataclasses import dataclass

from costmodel.estimate.fitted_coefficients import fitted_coefficients
from costmodel.memory.session import MemoryDemand
from costmodel.systems.system import System

__all__ = ["PeakMemory", "predict_peak_memory", "typical_bytes"]

# Share of the packed matrices from which a model counts as one without biases, and how far its memory then is from the
# compact case to the fragmented one (docs/adr/0023, "Products without a bias").
_MOSTLY_UNBIASED = 0.8
_FRAGMENTED_SHARE_WITHOUT_BIAS = 0.2


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
    return PeakMemory(
        round(process_bytes(typical_bytes(demand.peak_bytes, demand.fragmented_peak_bytes, demand.unbiased_share))),
        (
            round(low * process_bytes(demand.peak_bytes)),
            round(high * process_bytes(demand.fragmented_peak_bytes)),
        ),
    )


def typical_bytes(compact_bytes: float, fragmented_bytes: float, unbiased_share: float) -> float:
    """Returns a size between those of compact and of fragmented memory, in bytes.

    It is off by the same share in both cases, or, if most matrices are packed without a bias, near the compact case.

    Args:
        compact_bytes: Size if memory is compact.
        fragmented_bytes: Size if it is fragmented.
        unbiased_share: Share of the packed matrices that belong to products without a bias.
    """
    if unbiased_share >= _MOSTLY_UNBIASED:
        return compact_bytes + _FRAGMENTED_SHARE_WITHOUT_BIAS * (fragmented_bytes - compact_bytes)
    return 2 * compact_bytes * fragmented_bytes / (compact_bytes + fragmented_bytes or 1)
