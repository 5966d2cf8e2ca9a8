"""Hands batches to the machines of a cluster and stores what comes back, while machines come and go."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from costmodel.cluster import Cluster, ClusterWorker, LostTaskError
from costmodel.errors import ClusterError, SystemMismatchError
from costmodel.interruption import raise_if_interrupted
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.fleet.batches import Batch, BatchResult
from costmodel.jobs.fleet.worker import HOST, describe_machine, measure_batch, system_resource
from costmodel.progress import Progress, no_progress
from costmodel.store.results import Results
from costmodel.store.store import Store
from costmodel.systems.names import major_minor
from costmodel.systems.system import System, check_same_system

__all__ = ["Dispatcher", "Lowering", "SystemQueue", "systems_in"]

# Batches that a machine has at a time: one that runs, and one that starts while the result of the first is stored.
_IN_FLIGHT = 2
# Time between two looks at which machines are in the cluster.
_LOOK_S = 1.0
# A batch that fails is tried on a second machine, and a machine on which this many fail in a row gets no more.
_TRIES = 2
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Lowering:
    """How the models were lowered; machines whose runtime would lower them in another way are refused.

    Attributes:
        runtime: Name of the runtime.
        version: Version of the runtime.
        level: Optimisation level.
    """

    runtime: str
    version: str
    level: str = "all"

    def check(self, here: System) -> None:
        """Checks that a machine executes the layers that this lowering gives.

        Raises:
            SystemMismatchError: Its runtime, the major.minor version or the optimisation level differ.
        """
        if (here.runtime, major_minor(here.runtime_version)) != (self.runtime, major_minor(self.version)):
            raise SystemMismatchError(
                f"it has {here.runtime} {here.runtime_version}, and the models were lowered by {self.runtime} "
                f"{self.version}: install the same version on both"
            )
        if here.settings.level != self.level:
            raise SystemMismatchError(
                f"it optimises to level {here.settings.level}, and the models were lowered at {self.level}: set --level"
            )


@dataclass
class SystemQueue:
    """The batches that are to be measured on one system, and the results so far.

    Attributes:
        name: Name of the system.
        record: Record of the system in the store; None if it has none that was measured.
        waiting: Batches that no machine has.
        common: The common set of the machines of the system; None if there is none.
        compared: Names of the machines that have measured the common set.
        report: What was measured so far.
    """

    name: str
    record: System | None
    waiting: deque[Batch]
    common: Batch | None = None
    compared: set[str] = field(default_factory=set)
    report: BenchReport = field(default_factory=BenchReport)


@dataclass
class _Machine:
    """A machine that takes batches.

    Attributes:
        worker: The machine as a worker of the cluster.
        system: Queue of its system.
        running: Batches that it has, by key of their task.
        failures: Number of batches that failed since one was measured.
        fault: Why the last one failed.
    """

    worker: ClusterWorker
    system: SystemQueue
    running: dict[str, Batch] = field(default_factory=dict)
    failures: int = 0
    fault: str = ""

    @property
    def usable(self) -> bool:
        return self.failures < _FAILURES_IN_A_ROW


def systems_in(workers: Iterable[ClusterWorker]) -> dict[str, int]:
    """Returns the number of machines of each system that has one, by name of the system."""
    prefix = system_resource("")
    found: dict[str, int] = {}
    for worker in workers:
        for name in worker.resources:
            if name.startswith(prefix):
                system = name.removeprefix(prefix)
                found[system] = found.get(system, 0) + 1
    return dict(sorted(found.items()))


class Dispatcher:
    """Measures the batches of several systems on the machines of a cluster; call `run` once."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        queues: Mapping[str, SystemQueue],
        lowering: Lowering,
        *,
        deadline_s: float | None = None,
        progress: Progress | None = None,
        note: Callable[[str], None] = lambda _: None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares a run.

        Args:
            store: Results store.
            cluster: Connected cluster.
            queues: What is to be measured, by name of the system.
            lowering: How the models were lowered.
            deadline_s: Time of the monotonic clock, in seconds, after which no further batch starts.
            progress: Progress callback.
            note: Function that is called with each remark, such as the name of a machine that is refused.
            clock_s: Function that returns the time of a monotonic clock in seconds.
        """
        self.store = store
        self._cluster = cluster
        self._queues = queues
        self._lowering = lowering
        self._deadline_s = deadline_s
        self._progress = progress or no_progress("")
        self._note = note
        self._clock_s = clock_s
        self._machines: dict[str, _Machine] = {}
        self._refused: dict[str, str] = {}
        self._peers: Counter[str] = Counter()
        self._attempts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._missed: set[str] = set()
        self._total = sum(len(batch.missing) for queue in queues.values() for batch in queue.waiting)
        self._done = 0

    def run(self) -> None:
        """Measures until nothing is left or the deadline is over; every result is stored as soon as it arrives.

        Raises:
            ClusterError: The connection to the scheduler was lost, or batches fail on every machine of a system.
            SystemMismatchError: Every machine of a system is of another kind than the records of that system.
        """
        looked_s = -float("inf")
        while True:
            raise_if_interrupted()
            if self._clock_s() - looked_s >= _LOOK_S:
                self._look()
                looked_s = self._clock_s()
            self._submit()
            running = any(machine.running for machine in self._machines.values())
            if not running and (self._over() or not any(queue.waiting for queue in self._queues.values())):
                break
            finished = self._cluster.next_finished(_LOOK_S)
            if finished is not None:
                self._take(finished.key, finished.result, finished.error)
        for queue in self._queues.values():
            queue.report.left += sum(len(batch.missing) for batch in queue.waiting)
        self._progress(self._done, self._total, "")

    def _over(self) -> bool:
        return self._deadline_s is not None and self._clock_s() >= self._deadline_s

    def _look(self) -> None:
        """Takes note of the machines that have come, and gives the batches of those that have gone to others."""
        workers = self._cluster.workers()
        for address in self._machines.keys() - workers.keys():
            machine = self._machines.pop(address)
            for task, batch in machine.running.items():
                self._cluster.discard(task)
                self._put_back(machine, batch)
        known = self._machines.keys() | self._refused.keys()
        new = {
            address: queue
            for address, worker in workers.items()
            if address not in known
            for name, queue in self._queues.items()
            if system_resource(name) in worker.resources
        }
        for address, record in self._cluster.ask(describe_machine, list(new)).items():
            if record is not None:
                self._admit(workers[address], new[address], System.from_dict(record))
        self._peers = Counter(machine.system.name for machine in self._machines.values() if machine.usable)
        for name, queue in self._queues.items():
            self._check_usable(queue)
            if self._peers[name] or not queue.waiting:
                self._missed.discard(name)
                continue
            of_system = (a for a, worker in workers.items() if system_resource(name) in worker.resources)
            for address in of_system:
                if address in self._refused:
                    raise SystemMismatchError(self._refused[address])
            if name not in self._missed and not new:
                self._missed.add(name)
                self._note(f"no machine of {name} is in the cluster any more: waiting for one")

    def _admit(self, worker: ClusterWorker, queue: SystemQueue, here: System) -> None:
        """Lets a machine take batches if it is of the kind of its system."""
        try:
            self._lowering.check(here)
            if queue.record is not None:
                check_same_system(queue.record, here)
        except SystemMismatchError as error:
            self._refused[worker.address] = f"{worker.name} is refused as a machine of {queue.name}: {error}"
            self._note(self._refused[worker.address])
            return
        if queue.record is None or queue.record.extrapolated or not queue.record.capabilities:
            self.store.put_system(here)
            queue.record = here
        self._machines[worker.address] = _Machine(worker, queue)

    def _submit(self) -> None:
        """Gives each machine the batches that it may have: first one to each, then the second ones."""
        if self._over():
            return
        for most in range(1, _IN_FLIGHT + 1):
            for machine in self._machines.values():
                if machine.usable and len(machine.running) < most:
                    batch = self._next_batch(machine)
                    if batch is not None:
                        self._start(machine, batch)

    def _next_batch(self, machine: _Machine) -> Batch | None:
        queue, name = machine.system, machine.worker.name
        if queue.common is not None and self._peers[queue.name] > 1 and name not in queue.compared:
            queue.compared.add(name)
            return queue.common
        return queue.waiting.popleft() if queue.waiting else None

    def _start(self, machine: _Machine, batch: Batch) -> None:
        key = _key(machine, batch)
        attempt = self._attempts[key]
        task = f"{key}-{attempt}" if attempt else key
        self._progress(self._done, self._total, f"{batch.system}: {batch.label}")
        machine.running[task] = batch
        resources = {HOST: 1, system_resource(batch.system): 1}
        self._cluster.submit(task, measure_batch, batch.to_bytes(), worker=machine.worker.address, resources=resources)

    def _put_back(self, machine: _Machine, batch: Batch) -> None:
        """Makes a batch wait for a machine again; its next task has another key, because the former may still run."""
        self._attempts[_key(machine, batch)] += 1
        if batch.common:
            machine.system.compared.discard(machine.worker.name)
        else:
            machine.system.waiting.appendleft(batch)

    def _take(self, task: str, content: bytes | None, error: Exception | None) -> None:
        """Stores the result of a task, or decides what becomes of its batch if it failed."""
        machine = next((machine for machine in self._machines.values() if task in machine.running), None)
        if machine is None:
            return
        batch = machine.running.pop(task)
        if content is not None:
            machine.failures = 0
            self._store(BatchResult.from_bytes(content), batch)
        elif isinstance(error, LostTaskError):
            self._put_back(machine, batch)
        else:
            self._fail(machine, batch, str(error))

    def _store(self, result: BatchResult, batch: Batch) -> None:
        """Stores the measurements of a batch in one transaction; what is stored already stays once."""
        queue = self._queues[batch.system]
        assert queue.record is not None
        sequences = batch.sequences
        used = {m.signature: sequences[m.signature] for m in result.measurements}
        self.store.put_results(Results(queue.record, result.measurements, used))
        found = result.report
        if batch.common:
            found.repeated, found.measured = found.repeated + found.measured, 0
            found.failed.clear()  # what fails in the common set fails in its own batch too
        found.seconds = 0.0
        queue.report += found
        self._done += len(batch.missing) if not batch.common else 0

    def _fail(self, machine: _Machine, batch: Batch, reason: str) -> None:
        machine.failures += 1
        machine.fault = reason
        queue = machine.system
        name = machine.worker.name
        if not machine.usable:
            self._note(f"{name} gets no more batches, because {_FAILURES_IN_A_ROW} in a row failed: {reason}")
        if not batch.common:
            self._failed[batch.key] += 1
            if self._failed[batch.key] < _TRIES:
                self._put_back(machine, batch)
            else:
                queue.report.failed |= dict.fromkeys(batch.missing, f"{reason} (on {name})")
                self._done += len(batch.missing)
        self._check_usable(queue)

    def _check_usable(self, queue: SystemQueue) -> None:
        """Raises a ClusterError if batches wait for the machines of a system, and none of these gets any more."""
        machines = [machine for machine in self._machines.values() if machine.system is queue]
        if queue.waiting and machines and not any(machine.usable for machine in machines):
            raise ClusterError(
                f"no machine of {queue.name} can measure; on {machines[-1].worker.name}: {machines[-1].fault}; what "
                "was measured is stored, run the same command again"
            )


def _key(machine: _Machine, batch: Batch) -> str:
    """Returns the key of the first task of a batch; that of the common set is one for each machine."""
    return f"{batch.key}-{machine.worker.name}" if batch.common else batch.key
