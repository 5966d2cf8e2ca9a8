"""Peak memory of a process: known for measured versions of the runtime, and never a guess for others."""

from dataclasses import replace

import pytest

from costmodel.estimate.peak_memory import predict_peak_memory
from costmodel.memory.session import MemoryDemand
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.system import System
from tests.synthetic import SYSTEM

DEMAND = MemoryDemand(
    load_bytes=100 * 10**6, run_bytes=50 * 10**6, fragmented_load_bytes=120 * 10**6, fragmented_run_bytes=50 * 10**6,
    layers=100, source_nodes=200, stored_bytes=40 * 10**6, rewritten_bytes=0,
    reordered_bytes=0, packed_bytes=0, matmul_bytes=0, normalisations=0, load_touched_bytes=120 * 10**6,
    first_run_touched_bytes=10 * 10**6, from_source=True,
)  # fmt: skip


@pytest.fixture
def system() -> System:
    """A system whose version of ONNX Runtime was measured."""
    return replace(SYSTEM, runtime="onnxruntime", runtime_version="1.31.0", settings=RuntimeSettings())


def test_the_peak_contains_the_process(system: System) -> None:
    """The process itself takes memory besides that of the session, and the interval contains the peak."""
    found = predict_peak_memory(DEMAND, system)
    assert found is not None
    low, high = found.interval_bytes
    assert DEMAND.peak_bytes + 30 * 10**6 < found.peak_memory_bytes < 2 * DEMAND.peak_bytes
    assert low < found.peak_memory_bytes < high


def test_what_is_not_known_of_the_source_widens_the_interval(system: System) -> None:
    """Without the sizes of the source's weights, the interval is wider."""

    def width(demand: MemoryDemand) -> float:
        found = predict_peak_memory(demand, system)
        assert found is not None
        return found.interval_bytes[1] / found.interval_bytes[0]

    assert width(replace(DEMAND, from_source=False)) > width(DEMAND)


def test_the_interval_covers_compact_and_fragmented_memory(system: System) -> None:
    """Whether small blocks fragment the heap is not known: more fragmentation moves the upper bound, not the lower."""
    found = predict_peak_memory(DEMAND, system)
    worse = predict_peak_memory(replace(DEMAND, fragmented_load_bytes=200 * 10**6), system)
    assert found is not None
    assert worse is not None
    assert worse.interval_bytes[0] == found.interval_bytes[0]
    assert worse.interval_bytes[1] > found.interval_bytes[1] + 50 * 10**6
    assert found.peak_memory_bytes < worse.peak_memory_bytes < worse.interval_bytes[1]


def test_the_kind_of_weights_says_how_near_memory_is_to_the_fragmented_case(system: System) -> None:
    """Normalisations that the exporter left fragment memory most, then reordering, then packing, by MatMul least.

    The interval covers both cases for all.
    """
    cases = ((0, 40, 40, 9), (40, 0, 0, 4), (20, 20, 0, 0), (0, 40, 0, 0), (0, 40, 20, 0), (0, 40, 40, 0))
    found = [
        predict_peak_memory(
            replace(
                DEMAND,
                reordered_bytes=reordered,
                packed_bytes=packed,
                matmul_bytes=matmul,
                normalisations=normalisations,
            ),
            system,
        )
        for reordered, packed, matmul, normalisations in cases
    ]
    peaks = [one.peak_memory_bytes for one in found if one is not None]
    assert len(peaks) == len(cases)
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) == len(cases)
    assert len({one.interval_bytes for one in found if one is not None}) == 1


def test_what_was_never_measured_is_unknown(system: System) -> None:
    """Without a simulation, and for another runtime, version or level of optimisation, the peak is unknown."""
    assert predict_peak_memory(None, system) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime="other")) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime_version="0.1.0")) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime_version="nightly")) is None
    assert predict_peak_memory(DEMAND, replace(system, settings=RuntimeSettings(level="none"))) is None
