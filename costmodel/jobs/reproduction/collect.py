"""Collects from a store the results that the reproduction of the DLBricks paper reports."""

from collections.abc import Iterable, Mapping
from typing import Any

from costmodel.jobs.reproduction.construction import constructions
from costmodel.jobs.reproduction.report import CorpusResult, summaries_of
from costmodel.measure.measurement import Timing
from costmodel.measure.protocol import Protocol
from costmodel.measure.statistics import MODEL_QUANTILE
from costmodel.store.store import Store

__all__ = ["collect_corpus"]


def collect_corpus(
    store: Store, system: str, lowering: str | None, corpus: str, names: Iterable[str]
) -> CorpusResult | None:
    """Returns the results of a corpus on a system; None if none of its models is measured whole and in all sequences.

    Args:
        store: Store with the measurements.
        system: Name of the system.
        lowering: Key of how the models were lowered, a result of `lowering_key`; None for the key with the most
            measured models.
        corpus: Name of the corpus.
        names: Names of the corpus's models.
    """
    timings = store.timings(system)
    wanted = set(names)
    models = [model for model in store.models() if model.name in wanted and lowering in (None, model.lowering)]
    by_lowering = (
        constructions([model for model in models if model.lowering == key], timings, wanted)
        for key in sorted({model.lowering for model in models})
    )
    found = max(by_lowering, key=len, default=[])
    if not found:
        return None
    layers = {signature for item in found if item.granularity == 1 for signature in item.signatures}
    return CorpusResult(
        corpus=corpus,
        system=system,
        found=found,
        summaries=summaries_of(found, timings),
        kinds={signature: sequence.kind for signature, sequence in store.sequences(layers).items()},
        families={model.name: model.family for model in models},
        environment=_environment(store, system, timings),
    )


def _environment(store: Store, system: str, timings: Mapping[str, Timing]) -> dict[str, Any]:
    known = store.system(system)
    return {
        "processor": known.host.model_name if known.host else "unknown",
        "microarchitecture": known.host.microarchitecture if known.host else "unknown",
        "runtime": f"{known.runtime} {known.runtime_version}",
        "threads": known.settings.threads,
        "level": known.settings.level,
        "statistic": f"models: quantile {MODEL_QUANTILE} of all runs; layers: mean of uninterrupted runs",
        "protocol": Protocol().version,
        "measured_from": min(timing.measured_at[0] for timing in timings.values()),
        "measured_to": max(timing.measured_at[1] for timing in timings.values()),
    }
