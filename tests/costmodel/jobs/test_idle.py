"""Measuring what an idle time costs on a system that is known."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from costmodel.errors import SystemMismatchError, UnknownSystemError
from costmodel.jobs.idle import measure_idle
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_system


def _measure(store: Store, runtime: FakeRuntime) -> None:
    measure_idle(
        store, fake_system(runtime=runtime), runtime, lock=nullcontext, clock_ns=runtime.clock,
        sleep=lambda seconds: runtime.clock.pass_us(seconds * 1e6),
    )  # fmt: skip


def test_it_is_stored_beside_the_other_capabilities(store: Store) -> None:
    """The other capabilities stay as they are."""
    runtime = FakeRuntime()
    store.put_system(fake_system(runtime=runtime, capabilities={"gemm_gflops": 7.0}))
    _measure(store, runtime)
    found = store.system("fake-1").capabilities
    assert found["gemm_gflops"] == 7.0
    assert found.keys() > {"idle_extra_us", "idle_cooling_us", "idle_wake_up_us"}


def test_another_machine_is_refused(store: Store) -> None:
    """A system that is not measured, or is not this host, is refused."""
    runtime = FakeRuntime()
    with pytest.raises(UnknownSystemError):
        _measure(store, runtime)
    store.put_system(replace(fake_system(runtime=runtime, capabilities={"a": 1.0}), runtime_version="0.1"))
    with pytest.raises(SystemMismatchError):
        _measure(store, runtime)
