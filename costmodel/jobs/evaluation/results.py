"""Results of an evaluation: for each model, system, batch and granularity what was measured and estimated."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costmodel.errors import EvaluationFileError

__all__ = [
    "Case",
    "EvaluatedModel",
    "EvaluatedSystem",
    "EvaluationResults",
    "Latency",
    "read_results",
    "results_csv",
    "results_json",
]


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency with its interval.

    Attributes:
        latency_us: Latency in microseconds.
        interval_us: Lower and upper bound of the 90% interval of the latency, in microseconds.
    """

    latency_us: float
    interval_us: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One model on one system, at one batch size and granularity.

    Attributes:
        model: Name of the model.
        system: Name of the system.
        here: Whether the system is the host on which the evaluation ran.
        threads: Number of threads that a layer may use.
        level: Optimisation level of the runtime.
        batch: Batch size; None for that of the model's file.
        granularity: Maximum number of layers in a sequence.
        sequences: Number of layer sequences in the model.
        unique: Number of distinct ones among them.
        measured: Measured latency of the whole model; None if it was not measured.
        stable: Whether the times of that measurement agree and the machine was quiet.
        composed: Estimate from measured layer sequences, and predicted ones where they are not measured; None if the
            spec does not ask for it, or a sequence has no cost.
        measured_share: Share of the composed latency that is measured.
        predicted: Estimate in which every sequence is predicted; None if the spec does not ask for it, or nothing
            predicts it.
    """

    model: str
    system: str
    here: bool
    threads: int
    level: str
    batch: int | None
    granularity: int
    sequences: int
    unique: int
    measured: Latency | None
    stable: bool
    composed: Latency | None
    measured_share: float
    predicted: Latency | None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Key by which the case is found in another run, on this host or on another one."""
        system = ("here", self.threads, self.level) if self.here else self.system
        return self.model, self.batch, self.granularity, system

    @property
    def latencies(self) -> dict[str, Latency]:
        """The latencies that are known, by what they are: "measured", "composed" or "predicted"."""
        found = {"measured": self.measured, "composed": self.composed, "predicted": self.predicted}
        return {kind: latency for kind, latency in found.items() if latency is not None}


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """A model of an evaluation, with the digests by which it is recognised.

    Attributes:
        name: Name of the model.
        batch: Batch size; None for that of its file.
        family: Architecture lineage.
        file_sha256: SHA-256 of the model's file.
        digest: Digest of the graph with its shapes, without weights: of everything that affects cost.
    """

    name: str
    batch: int | None
    family: str
    file_sha256: str
    digest: str


@dataclass(frozen=True, slots=True)
class EvaluatedSystem:
    """A system of an evaluation, with fingerprints of what is known about it.

    Attributes:
        name: Name of the system.
        here: Whether it is the host on which the evaluation ran.
        facts: Hardware, runtime, settings and capabilities of the system.
        measurements: Number of signatures of the evaluation that have a measurement.
        measurements_fingerprint: SHA-256 of the latencies of these signatures and of the times at which they were
            measured.
        regressor: Version of the regressor; "none" if there is none.
        regressor_fingerprint: SHA-256 of the files of the regressor; empty if there is none.
    """

    name: str
    here: bool
    facts: Mapping[str, Any]
    measurements: int
    measurements_fingerprint: str
    regressor: str
    regressor_fingerprint: str


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results of one run of an evaluation.

    Attributes:
        name: Name of the evaluation.
        spec_sha256: SHA-256 of the text of the spec.
        started_at: Start of the run, UTC in ISO 8601.
        ended_at: End of the run, UTC in ISO 8601.
        models: Models that were evaluated.
        systems: Systems on which they were evaluated.
        cases: Results, by system, model, batch and granularity.
        failed: Reasons why models and sequences were not measured or evaluated, by system and name.
        version: Version of the format.
    """

    name: str
    spec_sha256: str
    started_at: str
    ended_at: str
    models: tuple[EvaluatedModel, ...]
    systems: tuple[EvaluatedSystem, ...]
    cases: tuple[Case, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    version: int = 1


_RESULTS = TypeAdapter(EvaluationResults)


def results_json(results: EvaluationResults) -> str:
    """Returns the results as a JSON document, which `read_results` reads."""
    return _RESULTS.dump_json(results, indent=1).decode() + "\n"


def read_results(text: str | bytes, source: str) -> EvaluationResults:
    """Returns the results from the output of `results_json`.

    Raises:
        EvaluationFileError: The text does not contain results; the message names `source`.
    """
    try:
        return _RESULTS.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise EvaluationFileError(
            f"{source} has no results of an evaluation ({where}: {first['msg']}): run the evaluation again"
        ) from error


def results_csv(results: EvaluationResults) -> str:
    """Returns the cases as a table in CSV, with latencies and the bounds of their intervals in microseconds."""
    kinds = ("measured", "composed", "predicted")
    facts = ("model", "system", "threads", "level", "batch", "granularity", "sequences", "unique")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    latencies = [f"{kind}{end}" for kind in kinds for end in ("_us", "_low_us", "_high_us")]
    writer.writerow((*facts, *latencies, "stable", "measured_share"))
    for case in results.cases:
        cells: list[Any] = [getattr(case, name) for name in facts]
        for kind in kinds:
            latency = case.latencies.get(kind)
            numbers = (None, None, None) if latency is None else (latency.latency_us, *latency.interval_us)
            cells += ["" if number is None else f"{number:.6g}" for number in numbers]
        writer.writerow(["" if cell is None else cell for cell in (*cells, case.stable, f"{case.measured_share:.4g}")])
    return text.getvalue()
