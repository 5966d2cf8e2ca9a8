"""The records of a results file as rows, there and back, and what makes them sound.

Kinds of records, by their column `record`:
    measurement   with the sequence that was timed; where there are no models, the only kind, and there is no column
    sequence      one that a model or a sample refers to and that is not measured
    model         at one granularity, with its pieces; its signature is that of the whole model
    sample        a sequence of no model, and the one that it was sampled around
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from costmodel.errors import BrickError
from costmodel.measurement import Measurement
from costmodel.results import Results, StoredModel, StoredPiece
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["results_of", "rows_of"]

Row = Mapping[str, Any]

_MEASURED = (
    "signature", "latency_us", "rounds_us", "reference_us", "overhead_us", "stable", "data_dependent", "circumstances",
    "measured_at",
)  # fmt: skip


def rows_of(results: Results) -> Iterator[Row]:
    """A row for each record: measurements, sequences, models, samples."""
    for measurement in results.measurements:
        yield {
            "record": "measurement",
            "signature": measurement.signature,
            "sequence": results.sequences[measurement.signature].text,
            "latency_us": measurement.latency_us,
            "rounds_us": measurement.rounds_us,
            "reference_us": measurement.reference_us,
            "overhead_us": measurement.overhead_us,
            "stable": measurement.stable,
            "data_dependent": measurement.data_dependent,
            "circumstances": json.dumps(measurement.circumstances, sort_keys=True),
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
                {"signature": piece.signature, "layers": piece.layers, "needs": piece.needs} for piece in model.pieces
            ],
        }
    for signature, origin in sorted(results.samples.items()):
        yield {"record": "sample", "signature": signature, "origin": origin}


def results_of(rows: Iterable[Row], system: System, path: Path) -> Results:
    """What rows say, if every one of them is sound.

    Args:
        rows: As `rows_of` gives them, in any order.
        system: Where was measured.
        path: Of their file, for messages.

    Raises:
        BrickError: A row is incomplete, contradicts itself or an earlier one, has a time that cannot be, or refers to a
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
                measurements.append(_measurement(row))
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
            raise BrickError(f"{path}: row {number} is incomplete ({error}); nothing was imported") from error
        if fault is not None:
            raise BrickError(f"{path}: row {number} has {fault}; nothing was imported")
    for signature, number in referring.items():
        if signature not in sequences:
            raise BrickError(f"{path}: row {number} refers to a sequence that is not there; nothing was imported")
    return Results(system, tuple(measurements), sequences, tuple(models.values()), samples)


def _measurement(row: Row) -> Measurement:
    absent = [name for name in _MEASURED if row[name] is None]
    if absent:
        raise ValueError(f"no {', '.join(absent)}")
    return Measurement(
        signature=row["signature"],
        rounds_us=tuple(tuple(times) for times in row["rounds_us"]),
        reference_us=tuple(row["reference_us"]),
        stable=bool(row["stable"]),
        overhead_us=float(row["overhead_us"]),
        data_dependent=bool(row["data_dependent"]),
        circumstances=dict(json.loads(row["circumstances"])),
        measured_at=str(row["measured_at"]),
    )


def _impossible_time(measurement: Measurement, latency_us: float) -> str | None:
    """What is wrong with the times of a measurement; None if they can be."""
    times_us = (*measurement.times_us, *measurement.reference_us, latency_us)
    if not measurement.times_us or not all(math.isfinite(t) and t > 0 for t in times_us):
        return "a time that is no positive number: measure it again and export anew"
    if not math.isfinite(measurement.overhead_us) or measurement.overhead_us < 0:
        return "a call that cannot take what it says: measure it again and export anew"
    return None


def _model(row: Row) -> StoredModel:
    granularity = row["granularity"]
    if not isinstance(granularity, int) or granularity < 1:
        raise ValueError(f"{granularity} is no granularity")
    pieces = tuple(
        StoredPiece(_text(piece, "signature"), tuple(piece["layers"]), tuple(piece["needs"])) for piece in row["pieces"]
    )
    if not pieces:
        raise ValueError("no pieces")
    for position, piece in enumerate(pieces):
        if not piece.layers or not all(isinstance(layer, str) for layer in piece.layers):
            raise ValueError(f"piece {position} has no layers")
        if not all(isinstance(need, int) and 0 <= need < position for need in piece.needs):
            raise ValueError(f"piece {position} needs what is not before it")
    return StoredModel(
        name=_text(row, "model"),
        lowering=_text(row, "lowering"),
        granularity=granularity,
        family=_text(row, "family"),
        whole=_text(row, "signature"),
        pieces=pieces,
        digest=_text(row, "digest"),
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise ValueError(f"no {name}")
    return value
