"""`costmodel worker` and `costmodel bench --on` with real processes that are killed, in simulated time."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from costmodel.errors import ClusterError
from costmodel.jobs.fleet.worker import serve_machine
from costmodel.measure.measurement import Measurement
from costmodel.runtimes.base import RuntimeSettings
from costmodel.store.store import Store
from costmodel.systems.system import this_system
from tests.fakes import FakeRuntime, fake_system
from tests.fleet import Fleet, cluster, write_models

pytestmark = pytest.mark.starts_first


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet of two machines of system a and one of system b, which is twice as slow; each test has its own stores."""
    folder = tmp_path_factory.mktemp("fleet")
    with cluster(folder) as fleet:
        fleet.start("a1", "a")
        fleet.start("a2", "a", factor=1.1)
        fleet.start("b1", "b", factor=2.0)
        for name in ("a1", "a2", "b1"):
            fleet.joined(name)
        yield fleet


def _measurements(folder: Path, system: str) -> list[Measurement]:
    store = Store(_url(folder))
    found = list(store.measurements(system))
    store.close()
    return found


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


def _await_measurements(folder: Path, count: int, client: "subprocess.Popen[str]") -> None:
    """Waits until the store has some measurements."""
    while not (folder / "store.db").exists():
        time.sleep(0.02)
    store = Store(_url(folder))
    while sum(store.count_and_last_measurement(system)[0] for system in ("a", "b")) < count:
        assert client.poll() is None
        time.sleep(0.02)
    store.close()


def _own_batches(measurements: list[Measurement]) -> Counter[str]:
    """Returns how often each signature was measured, the common set left out."""
    return Counter(m.signature for m in measurements if not m.environment.get("common_set"))


def test_machines_that_are_killed_and_a_client_that_is_killed_lose_nothing_and_measure_nothing_twice(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Every sequence is measured exactly once on each system, by a machine of that system, whoever dies meanwhile."""
    expected = write_models(tmp_path / "models", 6)
    command = ("bench", tmp_path / "models", "--on", fleet.address, "--systems", "a,b", "--store", _url(tmp_path))
    fleet.start("b2", "b", factor=2.0)
    client = fleet.client(*command)
    _await_measurements(tmp_path, 1, client)
    fleet.kill("a1")
    fleet.start("a1", "a")
    _await_measurements(tmp_path, expected // 2, client)
    os.killpg(client.pid, signal.SIGKILL)
    client.communicate()
    before = {system: _own_batches(_measurements(tmp_path, system)) for system in ("a", "b")}

    client = fleet.client(*command, "--json")
    fleet.joined("b2")
    fleet.kill("b1")
    fleet.start("b1", "b", factor=2.0)
    out, err = client.communicate(timeout=100)
    assert client.returncode == 0, err
    assert out.startswith("{")
    fleet.joined("a1")
    fleet.joined("b1")
    for system, factor in (("a", 1.0), ("b", 2.0)):
        measured = _measurements(tmp_path, system)
        counts = _own_batches(measured)
        assert len(counts) == expected
        assert set(counts.values()) == {1}
        assert before[system].keys() <= counts.keys()
        assert {m.environment["machine"][0] for m in measured} == {system}
        # The cheapest layer has 2 elements read and 2 written: 1.004 us; system b takes twice as long.
        least_us = min(m.latency_us for m in measured)
        assert factor == pytest.approx(least_us / 1.004, rel=0.11)
    fleet.kill("b2")


def test_machines_of_one_system_share_the_layers_and_are_compared(fleet: Fleet, tmp_path: Path) -> None:
    """The result says that one machine of system a is a tenth slower than the other; a second run measures nothing."""
    write_models(tmp_path / "models", 4)
    command = ("bench", tmp_path / "models", "--on", fleet.address, "--systems", "a", "--store", _url(tmp_path))
    (found,) = fleet.run(*command, "--json").document["systems"]
    assert (found["measured"], found["left"], found["failed"]) == (28, 0, {})
    machines = found["machines"]
    assert machines["spread"] == pytest.approx(0.1, abs=0.01)
    assert machines["relative_latency"]["a2"] > machines["relative_latency"]["a1"]
    by_machine = Counter(m.environment["machine"] for m in _measurements(tmp_path, "a"))
    assert set(by_machine) == {"a1", "a2"}
    again = fleet.run(*command)
    assert "0 measured" in again.said
    assert "28 known before" in again.said
    assert "2 machines differ by" in again.said
    assert Counter(m.environment["machine"] for m in _measurements(tmp_path, "a")) == by_machine


def test_a_system_without_a_machine_is_said_at_once(fleet: Fleet, tmp_path: Path) -> None:
    """The error names the systems that have no machine and those that have some; nothing is stored."""
    write_models(tmp_path / "models", 1)
    done = fleet.run(
        "bench", tmp_path / "models", "--on", fleet.address, "--systems", "a,c,d", "--store", _url(tmp_path)
    )
    assert "no machine of c, d is in the cluster" in done.sentence
    assert "a (2)" in done.sentence
    assert _measurements(tmp_path, "a") == []


def test_a_machine_of_another_kind_is_refused_by_name(fleet: Fleet, tmp_path: Path) -> None:
    """A machine that is not what the records of its system say is refused, and the error says what differs."""
    write_models(tmp_path / "models", 1)
    fleet.start("c1", "c", "--threads", "2")
    store = Store(_url(tmp_path))
    store.put_system(this_system(FakeRuntime(), RuntimeSettings(), "c"))
    store.close()
    fleet.joined("c1")
    done = fleet.run("bench", tmp_path / "models", "--on", fleet.address, "--systems", "c", "--store", _url(tmp_path))
    fleet.kill("c1")
    assert done.code == 1
    assert "c1 is refused as a machine of c" in done.err
    assert "threads 1 there, 2 here" in done.err
    assert "Traceback" not in done.err
    assert _measurements(tmp_path, "c") == []


def test_a_host_takes_part_once(fleet: Fleet) -> None:
    """A second worker on a host, and a second machine of the same name, are refused in a sentence."""
    own = fleet.folder / "machine-a1"
    fleet.start("elsewhere", "a", "--name", "a1")
    (fleet.folder / "machine-twin").symlink_to(own)
    fleet.start("twin", "a")
    for name, reason in (("elsewhere", "has a machine called a1 already"), ("twin", "is measuring on this host")):
        process = fleet.machines.pop(name)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        assert reason in err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("head:8786", "'head:8786' is not the address of a Dask scheduler"),
    ],
)
def test_an_address_without_a_scheduler_is_an_error_of_one_sentence(address: str, message: str) -> None:
    """A worker does not wait for long for a scheduler that is not there, and does not describe its host before."""
    with pytest.raises(ClusterError, match=message):
        serve_machine(address, fake_system(), timeout_s=0.5)
