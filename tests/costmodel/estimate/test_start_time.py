"""Load time and first run: known for measured versions of the runtime, and never a guess for others."""

from dataclasses import replace

import pytest

from costmodel.estimate.start_time import StartTime, predict_start_time
from costmodel.memory.session import MemoryDemand
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.system import System
from tests.synthetic import SYSTEM

MB = 10**6
DEMAND = MemoryDemand(
    load_bytes=100 * MB, run_bytes=50 * MB, peak_bytes=100 * MB, least_peak_bytes=100 * MB, most_peak_bytes=100 * MB,
    layers=100, source_nodes=200, stored_bytes=40 * MB, rewritten_bytes=10 * MB, packed_bytes=40 * MB,
    load_touched_bytes=120 * MB, first_run_touched_bytes=10 * MB, from_source=True,
)  # fmt: skip


@pytest.fixture
def system() -> System:
    """A system with measured capabilities, whose version of ONNX Runtime was measured."""
    rates = {"layer_us": 0.5, "memory_gbps": 10.0}
    return replace(
        SYSTEM, runtime="onnxruntime", runtime_version="1.31.0", settings=RuntimeSettings(), capabilities=rates
    )


def _found(demand: MemoryDemand, system: System) -> StartTime:
    found = predict_start_time(demand, system, 1000.0, (900.0, 1100.0))
    assert found is not None
    return found


def test_the_first_run_takes_longer_than_later_ones(system: System) -> None:
    """The first run touches the memory of all buffers; the intervals contain the times."""
    found = _found(DEMAND, system)
    assert found.first_run_us > 1000.0
    assert found.load_time_interval_us[0] < found.load_time_us < found.load_time_interval_us[1]
    assert found.first_run_interval_us[0] < found.first_run_us < found.first_run_interval_us[1]


def test_more_work_takes_longer(system: System) -> None:
    """A larger file, and more nodes, take longer to load; more buffers take longer to touch in the first run."""
    found = _found(DEMAND, system)
    larger = replace(DEMAND, stored_bytes=2 * DEMAND.stored_bytes, load_touched_bytes=2 * DEMAND.load_touched_bytes)
    assert _found(larger, system).load_time_us > found.load_time_us
    assert _found(replace(DEMAND, source_nodes=1000), system).load_time_us > found.load_time_us
    touching = replace(DEMAND, first_run_touched_bytes=2 * DEMAND.first_run_touched_bytes)
    assert _found(touching, system).first_run_us > found.first_run_us


def test_a_slower_machine_takes_longer(system: System) -> None:
    """On a machine with half the rates, loading takes twice as long."""
    slow = replace(system, capabilities={"layer_us": 1.0, "memory_gbps": 5.0})
    assert _found(DEMAND, slow).load_time_us == pytest.approx(2 * _found(DEMAND, system).load_time_us)


def test_what_was_never_measured_is_unknown(system: System) -> None:
    """Without a simulation, rates or the number of nodes, and for other runtimes, the times are unknown."""

    def found(demand: MemoryDemand | None, system: System) -> StartTime | None:
        return predict_start_time(demand, system, 1000.0, (900.0, 1100.0))

    assert found(None, system) is None
    assert found(replace(DEMAND, source_nodes=None), system) is None
    assert found(DEMAND, replace(system, capabilities={})) is None
    assert found(DEMAND, replace(system, runtime="other")) is None
    assert found(DEMAND, replace(system, runtime_version="0.1.0")) is None
    assert found(DEMAND, replace(system, runtime_version="nightly")) is None
    assert found(DEMAND, replace(system, settings=RuntimeSettings(level="none"))) is None
