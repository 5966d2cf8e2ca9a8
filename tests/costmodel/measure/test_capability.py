"""Capabilities of a system, computed from simulated times."""

import pytest

from costmodel.measure.capability import measure_capabilities, reference_sequence
from costmodel.runtimes.base import RuntimeSettings
from tests.fakes import FakeRuntime


def test_capabilities_follow_from_the_times_of_their_kernels() -> None:
    """A rate is the work of its kernel over the latency, in the unit in its name."""
    runtime = FakeRuntime()
    found = measure_capabilities(runtime, RuntimeSettings(), runtime.clock)
    assert set(found) == {"gemm_gflops", "memory_gbps", "scalar_ns", "layer_us", "reference_us"}
    gemm_us = runtime.cost_us(reference_sequence(1024))
    assert found["gemm_gflops"] == pytest.approx(2 * 1024**3 / (gemm_us * 1e-6) / 1e9)
    assert found["reference_us"] == runtime.cost_us(reference_sequence())
    # On the fake runtime each element read or written takes a nanosecond.
    assert found["memory_gbps"] == pytest.approx(4.0, rel=1e-3)
    assert found["scalar_ns"] == pytest.approx(3.0, rel=1e-2)
    # The fake runtime's time for a layer of 16 numbers.
    assert found["layer_us"] == pytest.approx(1.032)


def test_noise_does_not_make_a_system_look_less_able() -> None:
    """Capabilities do not change if a third of the runs are ten times slower."""
    quiet, noisy = FakeRuntime(), FakeRuntime(noise=lambda run: 10.0 if run % 3 == 0 else 1.0)
    settings = RuntimeSettings()
    assert measure_capabilities(noisy, settings, noisy.clock) == measure_capabilities(quiet, settings, quiet.clock)


@pytest.mark.parametrize("from_s", [0.0, 0.5, 2.0])
def test_a_disturbed_second_does_not_count(from_s: float) -> None:
    """Capabilities are those of the quiet machine if another tenant slows it down for a second."""
    quiet, disturbed = FakeRuntime(), FakeRuntime()
    begin_ns = disturbed.clock() + from_s * 1e9
    disturbed.noise = lambda _: 2.0 if begin_ns <= disturbed.clock() < begin_ns + 1e9 else 1.0
    settings = RuntimeSettings()
    found = measure_capabilities(disturbed, settings, disturbed.clock)
    assert found == measure_capabilities(quiet, settings, quiet.clock)


def test_each_kernel_is_opened_once() -> None:
    """Measuring capabilities opens six networks, each once."""
    runtime = FakeRuntime()
    measure_capabilities(runtime, RuntimeSettings(), runtime.clock)
    assert len(runtime.opened) == len(set(runtime.opened)) == 6
