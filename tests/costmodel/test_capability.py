"""What a system can do, computed from imagined times."""

import pytest

from costmodel.capability import measure_capabilities
from costmodel.measurement import reference_sequence
from costmodel.runtimes import RuntimeSettings
from tests.fakes import FakeRuntime


def test_capabilities_follow_from_the_times_of_their_kernels() -> None:
    """A rate is the work of a kernel over its latency, in the unit that its name says."""
    runtime = FakeRuntime()
    found = measure_capabilities(runtime, RuntimeSettings(), runtime.clock)
    assert set(found) == {"gemm_gflops", "memory_gbps", "scalar_ns", "layer_us", "reference_us"}
    gemm_us = runtime.cost_us(reference_sequence(1024))
    assert found["gemm_gflops"] == pytest.approx(2 * 1024**3 / (gemm_us * 1e-6) / 1e9)
    assert found["reference_us"] == runtime.cost_us(reference_sequence())
    # An element of a kernel takes a nanosecond here, be it one that is read or one that is written.
    assert found["memory_gbps"] == pytest.approx(4.0, rel=1e-3)
    assert found["scalar_ns"] == pytest.approx(3.0, rel=1e-2)
    # What a layer of 16 numbers takes there.
    assert found["layer_us"] == pytest.approx(1.032)


def test_noise_does_not_make_a_system_look_less_able() -> None:
    """A third of the runs are ten times slower: the typical run is what counts."""
    quiet, noisy = FakeRuntime(), FakeRuntime(noise=lambda run: 10.0 if run % 3 == 0 else 1.0)
    settings = RuntimeSettings()
    assert measure_capabilities(noisy, settings, noisy.clock) == measure_capabilities(quiet, settings, quiet.clock)


def test_each_kernel_is_opened_once() -> None:
    """Knowing a system costs six networks."""
    runtime = FakeRuntime()
    measure_capabilities(runtime, RuntimeSettings(), runtime.clock)
    assert len(runtime.opened) == len(set(runtime.opened)) == 6
