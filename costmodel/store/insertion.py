"""Inserts and deletes rows of the results store, inside a transaction of `costmodel.store.store.Store`."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from costmodel.errors import StoreError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import OBSERVED, Measurement
from costmodel.store import tables
from costmodel.store.database import add_if_new, lock, select_in
from costmodel.store.results import StoredModel, StoredSegment

__all__ = [
    "IS_OBSERVED", "add_model", "put_measurements", "put_segments", "put_sequences", "remove_observed",
    "unknown_measurements", "unknown_sequences",
]  # fmt: skip

# Condition of a row of `tables.measurements`: the latency was observed elsewhere, and not timed by costmodel.
IS_OBSERVED = tables.measurements.c.environment["source"].as_string() == OBSERVED


def put_sequences(connection: Connection, sequences: Iterable[LayerSequence]) -> None:
    """Adds the layer sequences that the store does not have, safely with other writers."""
    wanted = list(sequences)
    if unknown_sequences(connection, wanted):
        lock(connection, tables.sequences)  # rows can then be added many at a time
        if rows := unknown_sequences(connection, wanted):
            connection.execute(insert(tables.sequences), rows)


def unknown_sequences(connection: Connection, sequences: Iterable[LayerSequence]) -> list[dict[str, Any]]:
    """Returns table rows for those of the sequences that the store does not have yet.

    The rows are sorted by signature, because two writers that insert the same rows in different orders would deadlock.
    """
    by_signature = {sequence.signature: sequence for sequence in sequences}
    known = select_in(connection, select(tables.sequences.c.signature), tables.sequences.c.signature, by_signature)
    return [
        {"signature": signature, "text": by_signature[signature].text, "layers": len(by_signature[signature].layers)}
        for signature in sorted(by_signature.keys() - {row.signature for row in known})
    ]


def put_segments(
    connection: Connection, model: str, lowering: str, granularity: int, segments: Iterable[StoredSegment]
) -> None:
    """Adds the segments of a model at one granularity; there must be none of that granularity."""
    rows = [
        {
            "model": model,
            "lowering": lowering,
            "granularity": granularity,
            "position": position,
            "signature": segment.signature,
            "layers": list(segment.layers),
            "predecessors": list(segment.predecessors),
        }
        for position, segment in enumerate(segments)
    ]
    connection.execute(insert(tables.segments), rows)


def add_model(connection: Connection, model: StoredModel) -> bool:
    """Adds a model or a new granularity of an existing model; returns whether anything was added."""
    identity = {"name": model.name, "lowering": model.lowering}
    values = {"family": model.family, "digest": model.digest, "whole": model.whole}
    if not add_if_new(connection, tables.models, identity, values):
        # Another file may have the same layers; the measurements then hold for both.
        if connection.scalar(select(tables.models.c.whole).filter_by(**identity)) != model.whole:
            raise StoreError(
                f"the model {model.name} is here already and has other layers (both lowered by {model.lowering}), so "
                "nothing was imported: import into a store of its own with --store"
            )
        decomposition = {"model": model.name, "lowering": model.lowering, "granularity": model.granularity}
        if connection.scalar(select(func.count()).select_from(tables.segments).filter_by(**decomposition)):
            return False
    put_segments(connection, model.name, model.lowering, model.granularity, model.segments)
    return True


def remove_observed(connection: Connection, system: str) -> int:
    """Removes the observed latencies of a system, numbers remaining repeats anew, and returns how many there were."""
    table = tables.measurements
    query = select(table.c.signature).filter_by(system=system).where(IS_OBSERVED)
    signatures = set(connection.scalars(query))
    removed = connection.execute(table.delete().filter_by(system=system).where(IS_OBSERVED)).rowcount
    left = select_in(
        connection,
        select(table.c.id, table.c.signature).filter_by(system=system).order_by(table.c.signature, table.c.repeat),
        table.c.signature,
        signatures,
    )
    numbers: Counter[str] = Counter()
    for row in left:
        connection.execute(update(table).filter_by(id=row.id).values(repeat=numbers[row.signature]))
        numbers[row.signature] += 1
    return int(removed)


def put_measurements(connection: Connection, system: str, measurements: Iterable[Measurement]) -> None:
    """Adds measurements, each as a repeat if its signature was measured on the system before."""
    added = list(measurements)
    if not added:
        return
    lock(connection, tables.measurements)  # two writers that count repeats at once would find the same numbers
    table = tables.measurements.c
    query = select(table.signature, func.max(table.repeat).label("last")).filter_by(system=system)
    stored = select_in(connection, query.group_by(table.signature), table.signature, {m.signature for m in added})
    repeats = Counter({row.signature: row.last + 1 for row in stored})
    rows = []
    for measurement in added:
        key = {"system": system, "signature": measurement.signature, "repeat": repeats[measurement.signature]}
        rows.append(key | _columns(measurement))
        repeats[measurement.signature] += 1
    connection.execute(insert(tables.measurements), rows)


def unknown_measurements(
    connection: Connection, system: str, measurements: Iterable[Measurement]
) -> list[dict[str, Any]]:
    """Returns table rows for those of the measurements that the store does not have yet, with their repeat numbers."""
    by_signature: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_signature.setdefault(measurement.signature, []).append(measurement)
    table = tables.measurements.c
    query = select(table.signature, table.measured_at, table.pass_times_us).filter_by(system=system)
    known: dict[str, list[tuple[str, Any]]] = {}
    for row in select_in(connection, query, table.signature, by_signature):
        known.setdefault(row.signature, []).append((row.measured_at, row.pass_times_us))
    rows = []
    for signature, of_signature in by_signature.items():
        stored = known.get(signature, [])
        for measurement in of_signature:
            columns = _columns(measurement)
            # Compares raw times, because another release may derive another latency from them.
            if (key := (measurement.measured_at, columns["pass_times_us"])) not in stored:
                rows.append({"system": system, "signature": signature, "repeat": len(stored), **columns})
                stored.append(key)
    return rows


def _columns(measurement: Measurement) -> dict[str, Any]:
    """Returns the column values of a measurement's row, except its key: system, signature and number of the repeat."""
    timing = measurement.timing
    return {
        "kind": measurement.kind,
        "latency_us": timing.latency_us,
        "low_us": timing.interval_us[0],
        "high_us": timing.interval_us[1],
        "call_us": timing.call_us,
        "pass_times_us": [list(times) for times in measurement.pass_times_us],
        "reference_us": list(measurement.reference_us),
        "overhead_us": measurement.overhead_us,
        "stable": measurement.stable,
        "data_dependent": measurement.data_dependent,
        "environment": dict(measurement.environment),
        "measured_at": measurement.measured_at,
    }
