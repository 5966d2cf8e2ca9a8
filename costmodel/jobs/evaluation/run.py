"""Runs an evaluation: has measured what the store lacks, and estimates every model on every system."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import UnpricedLayersError
from costmodel.estimate.estimate import Estimate
from costmodel.jobs.bench_report import BenchReport
from costmodel.jobs.evaluation.results import Case, EvaluatedModel, EvaluatedSystem, EvaluationResults, Latency
from costmodel.jobs.evaluation.selection import Variant, decomposed_variants, evaluated_models, evaluated_settings
from costmodel.jobs.evaluation.spec import EvaluationSpec
from costmodel.measure.measurement import Timing, now
from costmodel.progress import Stages, no_progress, reported
from costmodel.runtimes.base import Runtime, get_runtime
from costmodel.serving.predictor import Predictor
from costmodel.store.store import Store
from costmodel.systems.system import System, this_system
from costmodel.training.artefact import champion_of

__all__ = ["EvaluationStores", "run_evaluation"]


@dataclass(frozen=True)
class EvaluationStores:
    """Where the measurements and regressors of an evaluation are.

    Attributes:
        here: Store that receives the measurements on this host.
        elsewhere: Store with the measurements of other systems.
        bundles: Folder of trained regressors.
        cache: Folder in which lowered graphs are cached.
    """

    here: Store
    elsewhere: Store
    bundles: Path
    cache: Path


def run_evaluation(
    spec: EvaluationSpec,
    spec_sha256: str,
    stores: EvaluationStores,
    runtime: Runtime,
    measure: Callable[[int, str], BenchReport],
    *,
    progress: Stages | None = None,
) -> EvaluationResults:
    """Runs an evaluation and returns its results; what the stores have is not measured again.

    Args:
        spec: What to evaluate.
        spec_sha256: SHA-256 of the text of the spec.
        stores: Where measurements and regressors are.
        runtime: Runtime of this host.
        measure: Function that measures what the store of this host lacks, as `measure_here` does, for a number of
            threads and an optimisation level; it is called for each of them.
        progress: Function that takes the name of a stage of the job and returns its progress callback; None to report
            nothing.

    Raises:
        EvaluationFileError: The spec names no model, or two of the same name.
        ModelError: No model can be read and lowered.
        UnknownSystemError: Nothing is known about a system that the spec names.
    """
    started_at = now()
    evaluated_models(spec)  # first, because a misspelt name should fail before hours of measuring
    failed: dict[str, str] = {}
    models: dict[tuple[str, int | None], EvaluatedModel] = {}
    systems: list[EvaluatedSystem] = []
    cases: list[Case] = []
    for name, settings in evaluated_settings(spec):
        if name is None:
            system, store = this_system(runtime, settings), stores.here
            if spec.measure.what:
                report = measure(settings.threads, settings.level)
                failed |= {f"{system.name}: {what}": reason for what, reason in report.failed.items()}
        else:
            store = stores.elsewhere
            system = store.system(name)
        lowering = runtime if system.runtime == runtime.name else get_runtime(system.runtime)
        refused: dict[str, str] = {}
        variants = list(decomposed_variants(spec, lowering, system.settings.level, stores.cache, refused, progress))
        failed |= {f"{system.name}: {what}": reason for what, reason in refused.items()}
        predictor = Predictor.load(store, stores.bundles, system.name)
        timings = store.timings(system.name, _signatures(spec, variants))
        cases += _cases(spec, predictor, variants, timings, here=name is None, progress=progress, failed=failed)
        systems.append(_evaluated_system(predictor.system, timings, stores.bundles, here=name is None))
        models |= {(one.item.model.name, one.batch): _evaluated_model(one) for one in variants}
    return EvaluationResults(
        spec.name, spec_sha256, started_at, now(), tuple(models.values()), tuple(systems), tuple(cases), failed
    )


def _signatures(spec: EvaluationSpec, variants: Iterable[Variant]) -> set[str]:
    return {
        signature
        for one in variants
        for granularity in spec.layers.granularities
        for signature in (one.item.whole.signature, *one.item.cut(granularity).unique)
    }


def _cases(
    spec: EvaluationSpec,
    predictor: Predictor,
    variants: Sequence[Variant],
    timings: Mapping[str, Timing],
    *,
    here: bool,
    progress: Stages | None,
    failed: dict[str, str],
) -> Iterator[Case]:
    system = predictor.system
    report = (progress or no_progress)("estimating")
    for one in reported(variants, lambda one: one.item.model.name, report):
        whole = timings.get(one.item.whole.signature)
        for granularity in dict.fromkeys(spec.layers.granularities):
            cut = one.item.cut(granularity)
            estimates: dict[str, Estimate] = {}
            for source in dict.fromkeys(spec.predict.sources):
                try:
                    estimates[source] = predictor.estimate(cut, measured=source == "measured")
                except UnpricedLayersError as error:
                    failed[f"{system.name}: {one.item.model.name}, {source}"] = str(error)
            composed, predicted = estimates.get("measured"), estimates.get("predicted")
            yield Case(
                model=one.model.name,
                system=system.name,
                here=here,
                threads=system.settings.threads,
                level=system.settings.level,
                batch=one.batch,
                granularity=granularity,
                sequences=len(cut.segments),
                unique=len(cut.unique),
                measured=None if whole is None else Latency(whole.latency_us, whole.interval_us),
                stable=whole is not None and whole.stable,
                composed=_latency(composed),
                measured_share=0.0 if composed is None else composed.coverage["measured"],
                predicted=_latency(predicted),
            )


def _latency(estimate: Estimate | None) -> Latency | None:
    return None if estimate is None else Latency(estimate.latency_us, estimate.interval_us)


def _evaluated_model(one: Variant) -> EvaluatedModel:
    with one.model.path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return EvaluatedModel(one.model.name, one.batch, one.model.family, content, one.item.model.digest)


def _evaluated_system(system: System, timings: Mapping[str, Timing], bundles: Path, *, here: bool) -> EvaluatedSystem:
    measured = hashlib.sha256()
    for signature, timing in sorted(timings.items()):
        measured.update(f"{signature} {timing.latency_us!r} {timing.measured_at}\n".encode())
    bundle = champion_of(bundles, system.name)
    regressor = hashlib.sha256()
    for path in sorted(bundle.iterdir()) if bundle is not None else ():
        regressor.update(path.name.encode() + b"\0" + path.read_bytes())
    return EvaluatedSystem(
        name=system.name,
        here=here,
        facts=system.document(),
        measurements=len(timings),
        measurements_fingerprint=measured.hexdigest(),
        regressor="none" if bundle is None else bundle.name,
        regressor_fingerprint="" if bundle is None else regressor.hexdigest(),
    )
