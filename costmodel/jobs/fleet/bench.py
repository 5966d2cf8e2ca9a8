"""The job of `costmodel bench --on`: spreads what a store lacks over the machines of several systems."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.cluster import Cluster
from costmodel.errors import ClusterError
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.decomposed_models import decompose_models, measurement_groups, put_models
from costmodel.jobs.fleet.batches import Batch, batches_of
from costmodel.jobs.fleet.common_set import MachineSpread, choose_common_set, machine_spread
from costmodel.jobs.fleet.dispatcher import Dispatcher, Lowering, SystemQueue, systems_in
from costmodel.measure.groups import Group, grouped
from costmodel.measure.measurement import Measurement
from costmodel.partition.suite import is_suite, read_suite
from costmodel.progress import Stages, no_progress
from costmodel.runtimes.base import Runtime, lowering_key
from costmodel.store.store import Store

__all__ = ["FleetReport", "bench_on_cluster", "check_present", "measure_on_cluster"]


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The result of one run of a benchmark on a fleet, for one system.

    Attributes:
        report: Counts and failures; `seconds` is the duration of the whole run.
        machines: How far the machines of the system differ.
    """

    report: BenchReport
    machines: MachineSpread


def bench_on_cluster(
    store: Store,
    cluster: Cluster,
    systems: Sequence[str],
    runtime: Runtime,
    targets: Sequence[str],
    cache: Path,
    *,
    level: str = "all",
    granularities: Sequence[int] = (1,),
    budget_s: float | None = None,
    progress: Stages | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, FleetReport]:
    """Measures what the store lacks of some models on each of several systems; resumable at any moment.

    Args:
        store: Store that receives the results.
        cluster: Connected cluster.
        systems: Names of the systems.
        runtime: Runtime that lowers the models here; the machines must have the same one.
        targets: Names of corpora, or paths of models, folders of models or benchmark suites.
        cache: Folder in which lowered graphs are cached.
        level: Optimisation level of the systems.
        granularities: Granularities to cut the models at; ignored for a benchmark suite.
        budget_s: Seconds from the start after which no further batch starts; None for no limit.
        progress: Function that takes the name of a stage of the job and returns its progress callback.
        note: Function that is called with each remark, such as the name of a machine that is refused.

    Returns:
        A report for each system, by its name.

    Raises:
        ClusterError: A system has no machine in the cluster, or the connection to the scheduler was lost.
        SystemMismatchError: Every machine of a system is of another kind than the records of that system.
        ModelError: No model can be used.
    """
    from costmodel.training.corpus import corpus_models

    started_s = time.monotonic()
    stage = progress or no_progress
    check_present(cluster, systems)
    refused: dict[str, str] = {}
    suites = [Path(target) for target in targets if is_suite(Path(target))]
    found = [model for target in targets if Path(target) not in suites for model in corpus_models(target)]
    groups = [group for suite in suites for group in grouped(read_suite(suite))]
    if found:
        models = decompose_models(
            found, runtime, level, cache, granularity=granularities[0], refused=refused,
            progress=stage("lowering models"),
        )  # fmt: skip
        put_models(store, models, lowering_key(runtime, level), granularities)
        groups += [group for item in models for group in measurement_groups(item, granularities)]
    left_s = None if budget_s is None else budget_s - (time.monotonic() - started_s)
    reports = measure_on_cluster(
        store, cluster, systems, Lowering(runtime.name, runtime.version, level), groups, budget_s=left_s,
        progress=progress, note=note,
    )  # fmt: skip
    for of_system in reports.values():
        of_system.report.failed |= refused
        of_system.report.seconds = time.monotonic() - started_s
    return reports


def measure_on_cluster(
    store: Store,
    cluster: Cluster,
    systems: Sequence[str],
    lowering: Lowering,
    groups: Sequence[Group],
    *,
    budget_s: float | None = None,
    progress: Stages | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, FleetReport]:
    """Measures those groups that contain a sequence which the store lacks, on each of several systems.

    Args:
        store: Store that receives the results.
        cluster: Connected cluster.
        systems: Names of the systems.
        lowering: How the models of the groups were lowered.
        groups: Groups to measure, the most important first.
        budget_s: Seconds from the start after which no further batch starts; None for no limit.
        progress: Function that takes the name of a stage of the job and returns its progress callback.
        note: Function that is called with each remark.

    Raises:
        ClusterError: A system has no machine in the cluster, or the connection to the scheduler was lost.
        SystemMismatchError: Every machine of a system is of another kind than the records of that system.
    """
    started_s = time.monotonic()
    check_present(cluster, systems)
    store.put_sequences({s.signature: s for group in groups for s in group.members}.values())
    common = choose_common_set(groups)
    queues = {system: _queue(store, system, groups, common) for system in systems}
    Dispatcher(
        store, cluster, queues, lowering, deadline_s=None if budget_s is None else started_s + budget_s,
        progress=(progress or no_progress)("measuring"), note=note,
    ).run()  # fmt: skip
    for queue in queues.values():
        queue.report.seconds = time.monotonic() - started_s
    return {
        system: FleetReport(queue.report, machine_spread(_of_common(store, system, common)))
        for system, queue in queues.items()
    }


def check_present(cluster: Cluster, systems: Iterable[str]) -> None:
    """Checks that each system has a machine in the cluster.

    Raises:
        ClusterError: A system has none; the message names all that have none, and those that have some.
    """
    present = systems_in(cluster.workers().values())
    missing = [system for system in systems if system not in present]
    if missing:
        there = ", ".join(f"{name} ({count})" for name, count in present.items()) or "none"
        raise ClusterError(
            f"no machine of {', '.join(missing)} is in the cluster at {cluster.address} (machines there: {there}): "
            f"start `costmodel worker {cluster.address} --system {missing[0]}` on one"
        )


def _queue(store: Store, system: str, groups: Sequence[Group], common: Group | None) -> SystemQueue:
    wanted = {s.signature for group in groups for s in group.members}
    known = store.latencies_us(system, wanted).keys()
    queue = SystemQueue(
        system,
        store.systems().get(system),
        deque(batches_of(system, groups, known)),
        None if common is None else Batch(system, (common,), frozenset(s.signature for s in common.sequences), True),
    )
    queue.report.reused = len(known)
    queue.compared |= set(machine_spread(_of_common(store, system, common)).relative_latency)
    return queue


def _of_common(store: Store, system: str, common: Group | None) -> Iterable[Measurement]:
    return () if common is None else store.measurements(system, [s.signature for s in common.sequences])
