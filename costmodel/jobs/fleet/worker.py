"""The job of `costmodel worker`: this host joins a Dask cluster as one machine of one system.

The process holds the measuring lock of the host from before it joins until it has left, so that nothing else measures
here, not even a second worker. It does nothing itself while a benchmark runs; see
`costmodel.jobs.fleet.measuring_process`.
"""

import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from costmodel.cluster import Cluster, join_cluster, name_taken
from costmodel.errors import SystemMismatchError
from costmodel.jobs.fleet.batches import Batch
from costmodel.jobs.fleet.measuring_process import MeasuringProcess
from costmodel.measure.lock import measuring_lock
from costmodel.systems.system import System

__all__ = ["HOST", "Machine", "describe_machine", "measure_batch", "serve_machine", "system_resource"]

# Resource of which every machine has one: no two benchmarks run at a time on a host.
HOST = "host"


def system_resource(system: str) -> str:
    """Returns the name of the resource of which the machines of a system have one."""
    return f"sys_{system}"


@dataclass
class Machine:
    """This host in a cluster.

    Attributes:
        name: Name of the machine in the cluster.
        system: The machine, described as a system, with its capabilities.
        process: Starts the processes that measure.
    """

    name: str
    system: System
    process: MeasuringProcess

    def measure(self, batch: Batch) -> bytes:
        """Measures a batch; returns the result as `BatchResult.from_bytes` reads it.

        Raises:
            SystemMismatchError: The batch is for another system.
            CostModelError: The batch cannot be measured.
        """
        if batch.system != self.system.name:
            raise SystemMismatchError(
                f"{self.name} is a machine of {self.system.name}, and was asked to measure for {batch.system}: start "
                f"`costmodel worker` on it with --system {batch.system} if it is one"
            )
        result = self.process.run(self.system, self.name, batch)
        self.system = result.system  # with the quiet times of the probes, which later batches start from
        return result.to_bytes()


# The machine that this process is; Dask calls functions of modules, so it cannot be an argument of theirs.
_here: dict[int, Machine] = {}  # by process id: a forked process is no machine


def serve_machine(
    address: str,
    system: System,
    *,
    name: str | None = None,
    process: MeasuringProcess | None = None,
    lock: Callable[[], AbstractContextManager[None]] = measuring_lock,
    joined: Callable[[Machine], None] = lambda _: None,
    timeout_s: float = 10.0,
) -> None:
    """Offers this host to a cluster until it is told to leave or the cluster ends.

    Args:
        address: Address of the scheduler, such as "tcp://head:8786".
        system: This host, described as a system.
        name: Name of the machine, unique in the cluster; by default that of the host.
        process: Starts the processes that measure.
        lock: Function that returns a context manager, inside which no other process measures.
        joined: Function that is called with the machine once it is in the cluster.
        timeout_s: Longest time in seconds to try to reach the scheduler.

    Raises:
        ClusterError: No scheduler answers at that address, or a machine of that name is in the cluster already.
        HostBusyError: Another process is measuring on this host.
    """
    starter = process or MeasuringProcess()
    called = name or platform.node() or "host"
    # The host is described only if it can join: that takes some seconds of measuring.
    with Cluster.connect(address, timeout_s=timeout_s) as cluster:
        if any(worker.name == called for worker in cluster.workers().values()):
            raise name_taken(address, called)
    with lock():
        described = starter.run(system, called, None).system
        machine = Machine(called, described, starter)
        _here[os.getpid()] = machine
        try:
            join_cluster(
                address,
                called,
                {HOST: 1, system_resource(system.name): 1},
                joined=lambda: joined(machine),
                stop=starter.stop,
                timeout_s=timeout_s,
            )
        finally:
            del _here[os.getpid()]


def describe_machine() -> dict[str, object] | None:
    """Returns the system that this process offers, as `System.from_dict` reads it; None if it is another worker."""
    machine = _here.get(os.getpid())
    return None if machine is None else dict(machine.system.to_dict())


def measure_batch(content: bytes) -> bytes:
    """Measures a batch on this machine; the task that a worker runs.

    Args:
        content: Output of `Batch.to_bytes`.

    Returns:
        The result, as `BatchResult.from_bytes` reads it.

    Raises:
        CostModelError: The batch cannot be measured.
    """
    machine = _here.get(os.getpid())
    if machine is None:
        raise SystemMismatchError("a worker that is no machine was asked to measure: start it with `costmodel worker`")
    return machine.measure(Batch.from_bytes(content))
