"""Measures groups in several passes, so that the latency of a whole model is known from more than one measurement."""

from collections import Counter
from collections.abc import Sequence

from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.measure.groups import Group
from costmodel.progress import Stages
from costmodel.store.store import Store

__all__ = ["run_passes"]


def run_passes(
    store: Store,
    session: BenchmarkSession,
    groups: Sequence[Group],
    passes: int,
    *,
    budget_s: float | None,
    stage: Stages,
) -> BenchReport:
    """Measures groups until each whole model has so many measurements; passes that the store has count.

    Args:
        store: Store into which the session measures.
        session: Session that measures; a pass that was interrupted goes on with the groups that it lacks.
        groups: Groups to measure.
        passes: Number of measurements that each whole model is to have. A group without a whole model is measured once.
        budget_s: Seconds from the start after which no further measurement starts; None for no limit.
        stage: Function that takes the name of a stage of the job and returns its progress callback.
    """
    report = session.run(groups, budget_s=budget_s, progress=stage("measuring"))
    wholes = [group.whole.signature for group in groups if group.whole is not None]
    for number in range(2, passes + 1):
        stored = Counter(m.signature for m in store.measurements(session.system.name, wholes))
        lacking = [g for g in groups if g.whole is not None and 0 < stored[g.whole.signature] < number]
        later = session.run(
            lacking,
            budget_s=None if budget_s is None else max(0.0, budget_s - report.seconds),
            progress=stage(f"measuring, pass {number}"),
            again=True,
        )
        report.add_repeats(later)
    return report
