"""Peak memory of a process: known for measured versions of the runtime, and never a guess for others."""

from dataclasses import replace

import pytest

from costmodel.estimate.peak_memory import predict_peak_memory
from costmodel.memory.session import MemoryDemand
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.system import System
from tests.synthetic import SYSTEM

DEMAND = MemoryDemand(
    load_bytes=100 * 10**6, run_bytes=50 * 10**6, peak_bytes=100 * 10**6, least_peak_bytes=95 * 10**6,
    most_peak_bytes=120 * 10**6, layers=100, source_nodes=200, stored_bytes=40 * 10**6, rewritten_bytes=0,
    packed_bytes=0, load_touched_bytes=120 * 10**6, first_run_touched_bytes=10 * 10**6, from_source=True,
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


def test_the_interval_covers_every_place_where_the_heap_may_end(system: System) -> None:
    """A worse case moves the upper bound, and a better one the lower; neither moves the prediction."""
    found, worse, better = (
        predict_peak_memory(demand, system)
        for demand in (
            DEMAND,
            replace(DEMAND, most_peak_bytes=200 * 10**6),
            replace(DEMAND, least_peak_bytes=60 * 10**6),
        )
    )
    assert found is not None
    assert worse is not None
    assert better is not None
    assert found.peak_memory_bytes == worse.peak_memory_bytes == better.peak_memory_bytes
    assert worse.interval_bytes[0] == found.interval_bytes[0]
    assert worse.interval_bytes[1] > found.interval_bytes[1] + 50 * 10**6
    assert better.interval_bytes[0] < found.interval_bytes[0] - 20 * 10**6


def test_a_processor_without_avx512_has_narrower_blocks(system: System) -> None:
    """What narrow blocks need counts on an x86 processor without AVX-512, and on no other or unknown one."""
    narrow = replace(DEMAND, in_narrow_blocks=replace(DEMAND, peak_bytes=80 * 10**6))
    assert system.host is not None
    hosts = {
        "wide": replace(system.host, architecture="x86_64", isa=("avx2", "avx512f")),
        "narrow": replace(system.host, architecture="x86_64", isa=("avx2",)),
        "arm": replace(system.host, architecture="aarch64", isa=("asimd",)),
        "unknown": None,
    }
    peaks = {name: predict_peak_memory(narrow, replace(system, host=host)) for name, host in hosts.items()}
    assert peaks["wide"] == peaks["arm"] == peaks["unknown"] == predict_peak_memory(DEMAND, replace(system, host=None))
    assert peaks["narrow"] is not None
    assert peaks["wide"] is not None
    assert peaks["narrow"].peak_memory_bytes < peaks["wide"].peak_memory_bytes - 15 * 10**6


def test_what_was_never_measured_is_unknown(system: System) -> None:
    """Without a simulation, and for another runtime, version or level of optimisation, the peak is unknown."""
    assert predict_peak_memory(None, system) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime="other")) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime_version="0.1.0")) is None
    assert predict_peak_memory(DEMAND, replace(system, runtime_version="nightly")) is None
    assert predict_peak_memory(DEMAND, replace(system, settings=RuntimeSettings(level="none"))) is None
