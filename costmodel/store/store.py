"""The results store: systems, layer sequences, measurements, models and samples in a database."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from statistics import median

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from costmodel.errors import StoreError, UnknownSystemError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.measurement import Measurement, Timing
from costmodel.partition.decomposition import Decomposition
from costmodel.store import tables
from costmodel.store.database import WAIT_S, Database, add_if_new, select_in
from costmodel.store.results import ImportSummary, Results, StoredModel, StoredSegment
from costmodel.systems.system import System

__all__ = ["Store", "StoredModel", "StoredSegment"]


class Store:
    """A results store at a database URL; every write is a transaction of its own."""

    def __init__(self, url: str, *, create: bool = True, wait_s: float = WAIT_S, lazy: bool = False) -> None:
        """Opens the store at `url`, and upgrades it if an older costmodel wrote it.

        Args:
            url: SQLAlchemy URL: "sqlite:////absolute/path.db", "postgresql+psycopg://user@host/name".
            create: Whether to create the file of an SQLite store that does not exist.
            wait_s: Longest time in seconds that a statement may wait for a lock or a connection before it fails; in
                PostgreSQL also the longest time that it may run.
            lazy: Whether to open the store at its first use, and again at the next use if that fails. A service thus
                starts, and recovers, while its database is down.

        Raises:
            StoreError: The store does not exist and `create` is false, it cannot be opened, it was written by a newer
                costmodel, or the database is not a costmodel store. If `lazy`, only raised if `url` is not a valid URL.
        """
        self.url = url
        self._database = Database(url, create=create, wait_s=wait_s, lazy=lazy)

    def version(self) -> tuple[int, ...] | None:
        """Returns a value that changes with every write of any process; None if the database does not provide one."""
        return self._database.version()

    def close(self) -> None:
        """Closes all connections to the database."""
        self._database.close()

    # Systems

    def put_system(self, system: System) -> None:
        """Adds or replaces the record of a system; entries that only a newer costmodel knows are kept."""
        key = {"name": system.name}
        with self._database.writing() as connection:
            if add_if_new(connection, tables.systems, key, {"record": system.to_dict()}):
                return
            stored = connection.scalars(select(tables.systems.c.record).filter_by(**key).with_for_update()).one()
            unknown = {**System.from_dict(stored).unknown, **system.unknown}
            record = replace(system, unknown=unknown).to_dict()
            connection.execute(update(tables.systems).filter_by(**key).values(record=record))

    def systems(self) -> dict[str, System]:
        """Returns all systems by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.systems).order_by(tables.systems.c.name)).all()
        return {row.name: System.from_dict(row.record) for row in rows}

    def system(self, name: str) -> System:
        """Returns the system of that name.

        Raises:
            UnknownSystemError: The store has no system of that name.
        """
        systems = self.systems()
        if name not in systems:
            known = f"known here: {', '.join(systems)}" if systems else "none is known yet"
            raise UnknownSystemError(
                f"nothing is measured for the system {name} ({known}); run `costmodel bench --system {name}` on that "
                "machine, or import its results with `costmodel import`"
            )
        return systems[name]

    # Sequences and models

    def put_sequences(self, sequences: Iterable[LayerSequence]) -> None:
        """Adds the layer sequences that the store does not have yet."""
        with self._database.writing() as connection:
            _put_sequences(connection, sequences)

    def sequences(self, signatures: Iterable[str] | None = None) -> dict[str, LayerSequence]:
        """Returns stored layer sequences by signature: those with the given signatures, or all."""
        query = select(tables.sequences.c.signature, tables.sequences.c.text)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.sequences.c.signature, signatures)
        return {row.signature: LayerSequence.from_text(row.text) for row in rows}

    def put_model(
        self, decomposition: Decomposition, whole: LayerSequence, *, digest: str, family: str, lowering: str
    ) -> None:
        """Adds or replaces a model and its decomposition at one granularity.

        If the store has a model of that name and lowering with another digest, all decompositions of it are deleted.

        Args:
            decomposition: Decomposition of the model.
            whole: The whole model as one layer sequence.
            digest: Digest of the model.
            family: Architecture lineage of the model.
            lowering: Key of the lowering: runtime, version, level, vector width.
        """
        key = {"model": decomposition.model, "lowering": lowering, "granularity": decomposition.granularity}
        with self._database.writing() as connection:
            _put_sequences(connection, [whole, *decomposition.unique.values()])
            identity = {"name": decomposition.model, "lowering": lowering}
            values = {"family": family, "digest": digest, "whole": whole.signature}
            if not add_if_new(connection, tables.models, identity, values):
                if connection.scalar(select(tables.models.c.digest).filter_by(**identity)) != digest:
                    del key["granularity"]  # delete the decompositions of the former model at all granularities
                connection.execute(update(tables.models).filter_by(**identity).values(values))
            connection.execute(tables.segments.delete().filter_by(**key))
            segments = [StoredSegment(p.sequence.signature, p.layers, p.predecessors) for p in decomposition.segments]
            _put_segments(connection, decomposition.model, lowering, decomposition.granularity, segments)

    def models(self) -> list[StoredModel]:
        """Returns the models of the corpus, one entry for each lowering and granularity, sorted by name."""
        key = (tables.segments.c.model, tables.segments.c.lowering, tables.segments.c.granularity)
        with self._database.reading() as connection:
            # Segments are read first, so that the model of each segment exists even if another process is writing.
            segments = connection.execute(select(tables.segments).order_by(*key, tables.segments.c.position)).all()
            models = {(row.name, row.lowering): row for row in connection.execute(select(tables.models))}
        grouped: dict[tuple[str, str, int], list[StoredSegment]] = {}
        for row in segments:
            segment = StoredSegment(row.signature, tuple(row.layers), tuple(row.predecessors))
            grouped.setdefault((row.model, row.lowering, row.granularity), []).append(segment)
        return [
            StoredModel(name, lowering, granularity, row.family, row.whole, tuple(of_model), row.digest)
            for (name, lowering, granularity), of_model in grouped.items()
            for row in [models[name, lowering]]
        ]

    def whole_model_signatures(self) -> set[str]:
        """Returns the signatures of all whole models."""
        with self._database.reading() as connection:
            return set(connection.scalars(select(tables.models.c.whole)))

    def put_samples(self, samples: Mapping[str, tuple[LayerSequence, LayerSequence]]) -> None:
        """Adds samples by signature, each as a pair of the sample and the layer sequence that it was sampled around."""
        with self._database.writing() as connection:
            _put_sequences(connection, [sequence for pair in samples.values() for sequence in pair])
            for signature, (_, origin) in samples.items():
                add_if_new(connection, tables.samples, {"signature": signature}, {"origin": origin.signature})

    def samples(self) -> dict[str, str]:
        """Returns, for each sampled signature, the signature that it was sampled around."""
        with self._database.reading() as connection:
            return {row.signature: row.origin for row in connection.execute(select(tables.samples))}

    # Measurements

    def put_measurement(self, system: str, measurement: Measurement, sequence: LayerSequence | None = None) -> None:
        """Adds one measurement, as a repeat if its signature was measured before.

        Args:
            system: Name of a stored system.
            measurement: Measurement to add.
            sequence: Layer sequence of the measurement's signature; None if it is stored already.
        """
        with self._database.writing() as connection:
            if sequence is not None:
                _put_sequences(connection, [sequence])
            _put_measurement(connection, system, measurement)

    def put_results(self, results: Results) -> ImportSummary:
        """Adds the results of another store, completely or not at all; existing records are not changed.

        A measurement exists if the store has one with the same signature, time of measuring and raw times. A model
        exists if the store has one with the same name, lowering and layers; its family and digest are kept, and only
        missing granularities are added.

        Raises:
            StoreError: The store has a model of the same name and lowering with other layers.
        """
        system = results.system
        new = 0
        with self._database.writing() as connection:
            add_if_new(connection, tables.systems, {"name": system.name}, {"record": system.to_dict()})
            _put_sequences(connection, results.sequences.values())
            models = frozenset(model.name for model in results.models if _added_model(connection, model))
            for signature, origin in sorted(results.samples.items()):
                add_if_new(connection, tables.samples, {"signature": signature}, {"origin": origin})
            for measurement in results.measurements:
                same = select(tables.measurements.c.pass_times_us).filter_by(
                    system=system.name, signature=measurement.signature, measured_at=measurement.measured_at
                )
                # Compares raw times, because another release may compute another latency from them.
                if [list(times) for times in measurement.pass_times_us] not in connection.scalars(same).all():
                    _put_measurement(connection, system.name, measurement)
                    new += 1
        return ImportSummary(new, len(results.measurements) - new, models)

    def measured(self, system: str) -> tuple[int, int]:
        """Returns the number of measurements of a system and the id of the last; both change when one is added."""
        table = tables.measurements
        query = select(func.count(), func.coalesce(func.max(table.c.id), 0)).select_from(table).filter_by(system=system)
        with self._database.reading() as connection:
            count, last = connection.execute(query).one()
        return int(count), int(last)

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, float]:
        """Returns latencies on a system by signature, each the median of the stored latencies of its measurements.

        Args:
            system: Name of the system.
            signatures: Signatures to return, if they were measured; None for all.
        """
        query = select(tables.measurements.c.signature, tables.measurements.c.latency_us).filter_by(system=system)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.measurements.c.signature, signatures)
        by_signature: dict[str, list[float]] = {}
        for row in rows:
            by_signature.setdefault(row.signature, []).append(row.latency_us)
        return {signature: median(latencies_us) for signature, latencies_us in by_signature.items()}

    def timings(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, Timing]:
        """Returns timings on a system by signature: of the given signatures that were measured, or of all."""
        measurements = self.measurements(system, signatures)
        return {signature: Timing.of(list(same)) for signature, same in groupby(measurements, lambda m: m.signature)}

    def repeated(self, system: str) -> set[str]:
        """Returns the signatures that were measured more than once on a system."""
        query = select(tables.measurements.c.signature).filter_by(system=system).where(tables.measurements.c.repeat > 0)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def measurements(
        self, system: str, signatures: Iterable[str] | None = None, *, repeats: bool = True
    ) -> Iterator[Measurement]:
        """Yields the measurements of a system by signature, the first measurement of each before its repeats.

        Args:
            system: Name of the system.
            signatures: Signatures whose measurements to yield; None for all.
            repeats: Whether to include repeats.
        """
        query = select(tables.measurements).filter_by(system=system)
        if not repeats:
            query = query.filter_by(repeat=0)
        query = query.order_by(tables.measurements.c.signature, tables.measurements.c.repeat)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.measurements.c.signature, signatures)
        for row in rows:
            yield Measurement(
                signature=row.signature,
                pass_times_us=tuple(tuple(times) for times in row.pass_times_us),
                reference_us=tuple(row.reference_us),
                stable=row.stable,
                overhead_us=row.overhead_us,
                data_dependent=row.data_dependent,
                environment=row.environment,
                measured_at=row.measured_at,
            )


def _put_sequences(connection: Connection, sequences: Iterable[LayerSequence]) -> None:
    by_signature = {sequence.signature: sequence for sequence in sequences}
    known = select_in(connection, select(tables.sequences.c.signature), tables.sequences.c.signature, by_signature)
    # Sorted, because two writers that insert the same rows in different orders would deadlock.
    for signature in sorted(by_signature.keys() - {row.signature for row in known}):
        sequence = by_signature[signature]
        values = {"text": sequence.text, "layers": len(sequence.layers)}
        add_if_new(connection, tables.sequences, {"signature": signature}, values)


def _put_segments(
    connection: Connection, model: str, lowering: str, granularity: int, segments: Iterable[StoredSegment]
) -> None:
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


def _added_model(connection: Connection, model: StoredModel) -> bool:
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
    _put_segments(connection, model.name, model.lowering, model.granularity, model.segments)
    return True


def _put_measurement(connection: Connection, system: str, measurement: Measurement) -> None:
    values = {
        "latency_us": measurement.latency_us,
        "pass_times_us": [list(times) for times in measurement.pass_times_us],
        "reference_us": list(measurement.reference_us),
        "overhead_us": measurement.overhead_us,
        "stable": measurement.stable,
        "data_dependent": measurement.data_dependent,
        "environment": dict(measurement.environment),
        "measured_at": measurement.measured_at,
    }
    of_signature = {"system": system, "signature": measurement.signature}
    next_repeat = select(func.coalesce(func.max(tables.measurements.c.repeat) + 1, 0)).filter_by(**of_signature)
    while True:  # two writers may read the same number: the later one then takes the next
        key = {**of_signature, "repeat": connection.scalar(next_repeat)}
        if add_if_new(connection, tables.measurements, key, values):
            return
