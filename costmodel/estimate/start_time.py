"""Predicts how long a session takes to load a model and to run it for the first time (docs/adr/0026).

Both times are linear in the work that the simulation of a session counts, each kind of work at a rate that was measured
on the system: work on layers in multiples of the time of an empty layer, work on bytes in multiples of the time that
the memory takes for them. `benchmarks/start_time.py fit --write` fits the coefficients and the intervals, and stores
them in `start_time.json` by version of the runtime.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.estimate.fitted_coefficients import demand_on, fitted_coefficients
from costmodel.memory.session import MemoryDemand
from costmodel.systems.system import System

__all__ = ["FIRST_RUN_TERMS", "LOAD_TERMS", "StartTime", "predict_start_time", "terms_of"]

LOAD_TERMS = ("session", "nodes", "stored", "rewritten", "packed", "load_touched")
FIRST_RUN_TERMS = ("session", "layers", "first_run_touched")


@dataclass(frozen=True, slots=True)
class StartTime:
    """How long a model takes until it has answered once, when its file is in the page cache.

    Attributes:
        load_time_us: Time to create the first session of a process, in microseconds.
        load_time_interval_us: Lower and upper bound of `load_time_us`, in microseconds.
        first_run_us: Time of the first run of the session, in microseconds.
        first_run_interval_us: Lower and upper bound of `first_run_us`, in microseconds.
    """

    load_time_us: float
    load_time_interval_us: tuple[float, float]
    first_run_us: float
    first_run_interval_us: tuple[float, float]


def predict_start_time(
    demand: MemoryDemand | None, system: System, latency_us: float, interval_us: tuple[float, float]
) -> StartTime | None:
    """Returns how long a model takes to load and to run for the first time on a system.

    Args:
        demand: Work of a session that loads and runs the model; None if it is not known.
        system: System with the runtime, its settings and its measured capabilities.
        latency_us: Latency of later runs of the model on the system, in microseconds.
        interval_us: Lower and upper bound of `latency_us`, in microseconds.

    Returns:
        The times; None if `demand` is None or lacks the number of nodes of the source, if the system lacks
        capabilities, or if no sessions were measured with the runtime's version (major and minor) and level of
        optimisation.
    """
    fitted = fitted_coefficients("start_time.json", system)
    rates = system.capabilities
    if demand is None or demand.source_nodes is None or fitted is None:
        return None
    if not rates.get("layer_us") or not rates.get("memory_gbps"):
        return None
    terms = terms_of(demand_on(system, demand), rates)

    def work_us(name: str) -> tuple[float, float, float]:
        found, (low, high) = fitted[name]["coefficients"], fitted[name]["interval"]
        return sum(found[term] * terms[term] for term in found), low, high

    load_us, load_low, load_high = work_us("load_us")
    more_us, low, high = work_us("first_run_us")
    return StartTime(
        load_time_us=load_us,
        load_time_interval_us=(load_low * load_us, load_high * load_us),
        first_run_us=latency_us + more_us,
        first_run_interval_us=(low * (interval_us[0] + more_us), high * (interval_us[1] + more_us)),
    )


def terms_of(demand: MemoryDemand, rates: Mapping[str, float]) -> dict[str, float]:
    """Returns the work of a session in microseconds at the rates of a system, by kind of work.

    Args:
        demand: Work of a session.
        rates: Capabilities of the system, of which "layer_us" and "memory_gbps" are read.
    """
    per_byte = 1 / (1e3 * rates["memory_gbps"])
    return {
        "session": rates["layer_us"],
        "nodes": rates["layer_us"] * (demand.source_nodes or 0),
        "layers": rates["layer_us"] * demand.layers,
        "stored": per_byte * demand.stored_bytes,
        "rewritten": per_byte * demand.rewritten_bytes,
        "packed": per_byte * demand.packed_bytes,
        "load_touched": per_byte * demand.load_touched_bytes,
        "first_run_touched": per_byte * demand.first_run_touched_bytes,
    }
