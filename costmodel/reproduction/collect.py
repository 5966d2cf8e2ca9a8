"""From a store to the results of the reproduction."""

from collections.abc import Iterable, Mapping
from typing import Any

from costmodel.measurement import QUIET_QUANTILE, Protocol, Timing
from costmodel.reproduction.construction import constructions
from costmodel.reproduction.report import CorpusResult, summaries_of
from costmodel.store import Store

__all__ = ["collect"]


def collect(store: Store, system: str, lowering: str | None, corpus: str, names: Iterable[str]) -> CorpusResult | None:
    """What a system says of a corpus, or None where none of its models is measured.

    Args:
        store: Where the measurements are.
        system: Its name.
        lowering: What `lowering_key` says of it; None for the one of which most is measured, whatever host that was.
        corpus: Name of the corpus.
        names: Of its models.
    """
    timings = store.timings(system)
    of_corpus = set(names)
    models = [model for model in store.models() if model.name in of_corpus and lowering in (None, model.lowering)]
    by_lowering = (
        constructions([model for model in models if model.lowering == key], timings, of_corpus)
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
        circumstances=_circumstances(store, system, timings),
    )


def _circumstances(store: Store, system: str, timings: Mapping[str, Timing]) -> dict[str, Any]:
    known = store.system(system)
    return {
        "processor": known.host.model_name if known.host else "unknown",
        "microarchitecture": known.host.microarchitecture if known.host else "unknown",
        "runtime": f"{known.runtime} {known.runtime_version}",
        "threads": known.settings.threads,
        "level": known.settings.level,
        "statistic": f"models: quantile {QUIET_QUANTILE} of all runs; layers: mean of uninterrupted runs",
        "protocol": Protocol().version,
        "measured_from": min(timing.measured_at[0] for timing in timings.values()),
        "measured_to": max(timing.measured_at[1] for timing in timings.values()),
    }
