"""The jobs that the CLI offers: each ties the rooms together, prints nothing, and can be called from a program."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.bench import Bench, BenchReport, Progress
from costmodel.bricks import is_brick_folder, read_bricks
from costmodel.cache import lower_cached
from costmodel.decomposition import Decomposition, decompose, whole_model
from costmodel.errors import MeasurementError, ModelError
from costmodel.graph import LayerGraph
from costmodel.groups import Group, among_their_origins, grouped, read_bytes
from costmodel.model import Model, read_model
from costmodel.runtimes import Runtime, lowering_key
from costmodel.sampling import sample_around
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System

if TYPE_CHECKING:
    from costmodel.training.corpus import CorpusModel

__all__ = ["Decomposed", "bench_target", "decompose_models", "groups_of", "measure_models", "put_models", "runs_here"]

# Sequences measured a second time, to know how well a measurement repeats.
REPEATED_SEQUENCES = 40


@dataclass(frozen=True, slots=True)
class Decomposed:
    """A model of a corpus, read, lowered and cut.

    Attributes:
        model: As read.
        family: Architecture lineage; empty for what is no model of anybody's, and is not measured whole.
        graph: Its layers.
        decomposition: Its sequences.
        whole: The model as one sequence.
    """

    model: Model
    family: str
    graph: LayerGraph
    decomposition: Decomposition
    whole: LayerSequence

    def cut(self, granularity: int) -> Decomposition:
        """Its sequences at another granularity."""
        return decompose(self.model.name, self.graph, granularity)

    @property
    def footprint_bytes(self) -> int:
        """Weights that all of its layers read."""
        return sum(read_bytes(piece.sequence) for piece in self.decomposition.pieces)


def decompose_models(
    models: Sequence["CorpusModel"],
    runtime: Runtime,
    level: str,
    cache: Path,
    *,
    granularity: int = 1,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    refused: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> list[Decomposed]:
    """Read, lower and cut each model of a corpus.

    Args:
        models: Of the corpus.
        runtime: What lowers them.
        level: Optimisation level.
        cache: Folder of lowered graphs.
        granularity: The most layers in a sequence.
        batch: As in `read_model`.
        shapes: As in `read_model`.
        refused: Takes the reason for each model that cannot be used, as long as one can; without it the first ends all.
        progress: Told before each model.

    Raises:
        ModelError: A model cannot be read or lowered; the message names it.
    """
    result: list[Decomposed] = []
    for done, item in enumerate(models):
        if progress is not None:
            progress(done, len(models), item.name)
        try:
            model = read_model(item.path, batch=batch, shapes=shapes, name=item.name)
            graph = lower_cached(runtime, model, level, cache)
        except ModelError as error:
            if refused is None or (done == len(models) - 1 and not result):
                raise
            refused[item.name] = str(error)
            continue
        cut = decompose(item.name, graph, granularity)
        result.append(Decomposed(model, item.family, graph, cut, whole_model(graph)))
    if progress is not None:
        progress(len(models), len(models), "")
    return result


def put_models(store: Store, models: Iterable[Decomposed], lowering: str, granularities: Sequence[int] = (1,)) -> None:
    """Store what the models of a corpus are made of, and their families.

    Args:
        store: Where to.
        models: As `decompose_models` gave them.
        lowering: What `lowering_key` says of how they were lowered.
        granularities: At which they are cut.
    """
    for item in models:
        for granularity in granularities:
            store.put_model(
                item.cut(granularity), item.whole, digest=item.model.digest, family=item.family, lowering=lowering
            )


def bench_target(
    store: Store,
    system: System,
    runtime: Runtime,
    target: str,
    cache: Path,
    *,
    granularities: Sequence[int] = (1,),
    samples: int = 0,
    budget_s: float | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> BenchReport:
    """Measure what is missing of a corpus, a folder of models, one model, or a folder of bricks.

    Args:
        store: Where results go.
        system: This host, under its name.
        runtime: What runs the networks.
        target: Name of a corpus, or a path.
        cache: Folder of lowered graphs.
        granularities: The most layers in a sequence, one or several numbers; bricks have theirs.
        samples: Sequences of no model to measure besides, sampled around those of the target.
        budget_s: No measurement starts later than this; None for no limit.
        progress: Gives what to tell about the stage of that name.
    """
    tell = progress or (lambda _: lambda done, total, what: None)
    models: list[Decomposed] = []
    refused: dict[str, str] = {}
    if is_brick_folder(Path(target)):
        sequences = read_bricks(Path(target))
    else:
        from costmodel.training.corpus import corpus_models

        models = decompose_models(
            corpus_models(target), runtime, system.settings.level, cache, granularity=granularities[0],
            refused=refused, progress=tell("lowering models"),
        )  # fmt: skip
        put_models(store, models, lowering_key(runtime, system.settings.level), granularities)
        sequences = list({s: q for item in models for s, q in item.decomposition.unique.items()}.values())
    groups = [group for item in models for group in groups_of(item, granularities)] or grouped(sequences)
    with Bench(store, system, runtime) as bench:
        report = bench.run(groups, budget_s=budget_s, progress=tell("measuring"))
        if samples and not report.left:
            around = _samples(sequences, samples, bench.system)
            store.put_samples(around)
            taken = bench.run(
                among_their_origins(around, [group for item in models for group in groups_of(item, granularities[:1])]),
                budget_s=_rest(budget_s, report),
                progress=tell("measuring samples"),
            )
            # A size that does not fit its layer makes no layer of anybody's: counted, and no failure.
            taken.dropped = len(taken.failed)
            taken.failed.clear()
            report += taken
        if not report.left:
            second = bench.run(
                _to_repeat(groups, store.repeated(system.name), report.failed),
                budget_s=_rest(budget_s, report),
                progress=tell("measuring again"),
                again=True,
            )
            report.repeated += second.measured
            report.seconds += second.seconds
            report.left += second.left
    report.failed = refused | report.failed
    return report


def _rest(budget_s: float | None, report: BenchReport) -> float | None:
    return None if budget_s is None else max(0.0, budget_s - report.seconds)


def _samples(
    sequences: Sequence[LayerSequence], count: int, system: System
) -> dict[str, tuple[LayerSequence, LayerSequence]]:
    """Samples around the dear sequences and the rare kinds: both are where an error of prediction hurts."""
    from costmodel.features.bound import bound_us

    of_kind = Counter(sequence.kind for sequence in sequences)
    bounds = [bound_us(sequence, system) for sequence in sequences]
    total = sum(math.sqrt(bound) for bound in bounds)
    # Half of the samples go by cost (the square root, so that a few giants do not take them all), half are spread
    # evenly over the kinds.
    weights = [
        math.sqrt(bound) / total + 1 / (len(of_kind) * of_kind[sequence.kind])
        for sequence, bound in zip(sequences, bounds, strict=True)
    ]
    return sample_around(sequences, count, weights=weights)


def groups_of(item: Decomposed, granularities: Sequence[int]) -> Iterator[Group]:
    """The sequences of a model at each granularity, and it itself with the first if it is anybody's: all take turns."""
    footprint = item.footprint_bytes
    for position, granularity in enumerate(granularities):
        yield Group(
            label=item.model.name,
            sequences=tuple(item.cut(granularity).unique.values()),
            whole=item.whole if item.family and not position else None,
            model=item.model,
            footprint_bytes=footprint,
        )


def _to_repeat(groups: Iterable[Group], repeated: Set[str], failed: Iterable[str]) -> list[Group]:
    """Groups to measure once more, until a few sequences are known twice.

    Args:
        groups: What was measured.
        repeated: Signatures that are known twice already.
        failed: Those that cannot be.
    """
    wanted = REPEATED_SEQUENCES - len(repeated)
    found = []
    for group in groups:
        once = [sequence for sequence in group.sequences if sequence.signature not in repeated | set(failed)]
        if wanted > 0 and once:
            of_model = group.footprint_bytes is not None
            found.append(replace(group, whole=None, sequences=group.sequences if of_model else tuple(once[:wanted])))
            wanted -= len(once)
    return found


def measure_models(
    store: Store,
    system: System,
    runtime: Runtime,
    models: Mapping[str, tuple[LayerSequence, Model]],
    progress: Progress | None = None,
) -> dict[str, float]:
    """End-to-end latency of each model, measured here and now and not stored, in microseconds.

    Raises:
        HostBusyError: Another process is measuring.
        SystemMismatchError: `system` is not this host.
    """
    latencies = {}
    with Bench(store, system, runtime) as bench:
        for done, (name, (whole, model)) in enumerate(models.items()):
            if progress is not None:
                progress(done, len(models), name)
            latencies[name] = bench.measure_model(whole, model).latency_us
    if progress is not None:
        progress(len(models), len(models), "")
    return latencies


def runs_here(runtime: Runtime, system: System) -> Callable[[LayerSequence], bool]:
    """A test of whether a sequence runs on this host."""

    def runs(sequence: LayerSequence) -> bool:
        try:
            runtime.open_sequence(sequence, system.settings).run()
        except MeasurementError:
            return False
        return True

    return runs
