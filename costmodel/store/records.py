"""Converts results to the rows of a results file and back, with validation of the rows.

Kinds of records, by the column `record`:
    measurement   a measurement with the timed sequence; the only kind in a file without models, which has no column
                  `record`
    sequence      a sequence that a model or a sample refers to and that is not measured
    model         a model at one granularity, with its segments; its signature is that of the whole model
    sample        a sequence that occurs in no model, and the sequence of a model that it was made from
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from costmodel.errors import DataFileError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Kind, Measurement, kind_of
from costmodel.store.results import Results, StoredModel, StoredSegment
from costmodel.systems.system import System

__all__ = ["results_of", "rows_of"]

Row = Mapping[str, Any]

_MEASURED = (
    "signature", "latency_us", "rounds_us", "reference_us", "overhead_us", "stable", "data_dependent", "circumstances",
    "measured_at",
)  # fmt: skip


def rows_of(results: Results) -> Iterator[Row]:
    """Yields a row for each record of the results: measurements first, then sequences, models and samples."""
    for measurement in results.measurements:
        yield {
            "record": "measurement",
            "signature": measurement.signature,
            "sequence": results.sequences[measurement.signature].text,
            "kind": measurement.kind,
            "latency_us": measurement.latency_us,
            "rounds_us": measurement.pass_times_us,
            "reference_us": measurement.reference_us,
            "overhead_us": measurement.overhead_us,
            "stable": measurement.stable,
            "data_dependent": measurement.data_dependent,
            "circumstances": json.dumps(measurement.environment, sort_keys=True),
            "measured_at": measurement.measured_at,
        }
    for signature in sorted(results.sequences.keys() - {measurement.signature for measurement in results.measurements}):
        yield {"record": "sequence", "signature": signature, "sequence": results.sequences[signature].text}
    for model in results.models:
        yield {
            "record": "model",
            "signature": model.whole,
            "model": model.name,
            "family": model.family,
            "digest": model.digest,
            "lowering": model.lowering,
            "granularity": model.granularity,
            "pieces": [
                {"signature": segment.signature, "layers": segment.layers, "needs": segment.predecessors}
                for segment in model.segments
            ],
        }
    for signature, origin in sorted(results.samples.items()):
        yield {"record": "sample", "signature": signature, "origin": origin}


def results_of(rows: Iterable[Row], system: System, path: Path) -> Results:
    """Returns the results that the rows of a results file contain, after checking every row.

    Args:
        rows: Rows as `rows_of` yields them, in any order.
        system: System on which the measurements were made.
        path: Path of the results file, for error messages.

    Raises:
        DataFileError: A row is incomplete, contradicts itself or an earlier row, has an impossible time, or refers to a
            sequence that is in no row.
    """
    measurements: list[Measurement] = []
    sequences: dict[str, LayerSequence] = {}
    models: dict[tuple[str, str, int], StoredModel] = {}
    samples: dict[str, str] = {}
    wholes: dict[tuple[str, str], str] = {}
    referring: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        record = row.get("record", "measurement")
        fault = None
        try:
            if record in ("measurement", "sequence"):
                sequence = LayerSequence.from_text(_text(row, "sequence"))
                if sequence.signature != _text(row, "signature"):
                    fault = "a signature that is not its sequence's"
                sequences[sequence.signature] = sequence
            if record == "measurement":
                measurements.append(_measurement(row, sequence))
                fault = fault or _impossible_time(measurements[-1], row["latency_us"])
            elif record == "model":
                model = _model(row)
                key = (model.name, model.lowering, model.granularity)
                if key in models or wholes.setdefault(key[:2], model.whole) != model.whole:
                    fault = "a model that an earlier row has too"
                models[key] = model
                referring |= dict.fromkeys(model.signatures, number)
            elif record == "sample":
                samples[_text(row, "signature")] = _text(row, "origin")
                referring |= dict.fromkeys((row["signature"], row["origin"]), number)
            elif record != "sequence":
                fault = f"a record of a kind that is not known, {record}"
        except (LookupError, TypeError, ValueError) as error:
            raise DataFileError(f"{path}: row {number} is incomplete ({error}); nothing was imported") from error
        if fault is not None:
            raise DataFileError(f"{path}: row {number} has {fault}; nothing was imported")
    for signature, number in referring.items():
        if signature not in sequences:
            raise DataFileError(f"{path}: row {number} refers to a sequence that is not there; nothing was imported")
    return Results(system, tuple(measurements), sequences, tuple(models.values()), samples)


def _measurement(row: Row, sequence: LayerSequence) -> Measurement:
    missing = [name for name in _MEASURED if row[name] is None]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    return Measurement(
        signature=row["signature"],
        kind=_kind(row, sequence),
        pass_times_us=tuple(tuple(times) for times in row["rounds_us"]),
        reference_us=tuple(row["reference_us"]),
        stable=bool(row["stable"]),
        overhead_us=float(row["overhead_us"]),
        data_dependent=bool(row["data_dependent"]),
        environment=dict(json.loads(row["circumstances"])),
        measured_at=str(row["measured_at"]),
    )


def _kind(row: Row, sequence: LayerSequence) -> Kind:
    """Returns what was timed for the measurement in a row: a layer, a sequence or a whole model.

    Rows of older files do not say so; in them, a call overhead of 0 marks a whole model.
    """
    kind = row.get("kind")
    if kind is None:
        return kind_of(sequence, whole=not row["overhead_us"])
    if kind not in get_args(Kind):
        raise ValueError(f"{kind} is no kind of measurement")
    return cast(Kind, kind)


def _impossible_time(measurement: Measurement, latency_us: float) -> str | None:
    """Returns what is wrong with a measurement's times, to end a message "row 3 has ..."; None if nothing is wrong."""
    times_us = (*measurement.times_us, *measurement.reference_us, latency_us)
    if not measurement.times_us or not all(math.isfinite(t) and t > 0 for t in times_us):
        return "a time that is no positive number: measure it again and export anew"
    if not math.isfinite(measurement.overhead_us) or measurement.overhead_us < 0:
        return "an impossible call overhead: measure it again and export anew"
    slowdown = measurement.environment.get("slowdown", 1.0)
    if not isinstance(slowdown, int | float) or not 1 <= slowdown < math.inf:
        return "a slowdown that is no number of at least 1: measure it again and export anew"
    return None


def _model(row: Row) -> StoredModel:
    granularity = row["granularity"]
    if not isinstance(granularity, int) or granularity < 1:
        raise ValueError(f"{granularity} is no granularity")
    segments = tuple(
        StoredSegment(_text(segment, "signature"), tuple(segment["layers"]), tuple(segment["needs"]))
        for segment in row["pieces"]
    )
    if not segments:
        raise ValueError("no segments")
    for position, segment in enumerate(segments):
        if not segment.layers or not all(isinstance(layer, str) for layer in segment.layers):
            raise ValueError(f"segment {position} has no layers")
        if not all(isinstance(before, int) and 0 <= before < position for before in segment.predecessors):
            raise ValueError(f"segment {position} has a predecessor that is not before it")
    return StoredModel(
        name=_text(row, "model"),
        lowering=_text(row, "lowering"),
        granularity=granularity,
        family=_text(row, "family"),
        whole=_text(row, "signature"),
        segments=segments,
        digest=_text(row, "digest"),
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"no {name}")
    return value
