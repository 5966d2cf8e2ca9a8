"""The results store: systems, layer sequences, measurements, models and samples in a database."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median

from sqlalchemy import func, insert, select, update

from costmodel.errors import UnknownSystemError
from costmodel.ir.sequence import LayerSequence
from costmodel.measure.interference import INTERFERENCE
from costmodel.measure.measurement import Measurement, Timing
from costmodel.partition.decomposition import Decomposition
from costmodel.store import insertion, tables
from costmodel.store.database import WAIT_S, Database, add_if_new, lock, select_in
from costmodel.store.results import ImportSummary, Results, StoredModel, StoredSegment
from costmodel.systems.names import measuring_command
from costmodel.systems.system import System

__all__ = ["Store", "StoredModel", "StoredSegment"]


class Store:
    """A results store at a database URL; every method that writes uses a transaction of its own."""

    def __init__(self, url: str, *, create: bool = True, wait_s: float = WAIT_S, lazy: bool = False) -> None:
        """Opens the store at `url`, and upgrades it if an older costmodel wrote it.

        Args:
            url: SQLAlchemy URL: "sqlite:////absolute/path.db", "postgresql+psycopg://user@host/name".
            create: Whether to create the file of an SQLite store that does not exist.
            wait_s: Longest time in seconds that a statement may wait for a lock or a connection before it fails; in
                PostgreSQL also the longest time that it may run.
            lazy: Whether to open the store only at its first use, and to try again at the next use if that fails. A
                service can thus start while its database is down, and recovers when the database is up again.

        Raises:
            StoreError: The store does not exist and `create` is false, it cannot be opened, it was written by a newer
                costmodel, or the database is not a costmodel store. If `lazy`, only raised if `url` is not a valid URL.
        """
        self.url = url
        self._database = Database(url, create=create, wait_s=wait_s, lazy=lazy)

    def version(self) -> tuple[int, ...] | None:
        """Returns a value that changes with every write of any process; None unless the database is in SQLite."""
        return self._database.version()

    def close(self) -> None:
        """Closes all connections to the database."""
        self._database.close()

    # Systems

    def put_system(self, system: System) -> None:
        """Adds or replaces the record of a system; stored entries that only a newer costmodel knows are kept."""
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
        """Returns the system that is called `name`.

        Raises:
            UnknownSystemError: The store has no system of that name.
        """
        systems = self.systems()
        if name not in systems:
            known = f"known here: {', '.join(systems)}" if systems else "none is known yet"
            raise UnknownSystemError(
                f"nothing is measured for the system {name} ({known}); run `{measuring_command(name)}` or "
                "`costmodel predict --probe` on that machine, or import its results with `costmodel import`"
            )
        return systems[name]

    # Sequences and models

    def put_sequences(self, sequences: Iterable[LayerSequence]) -> None:
        """Adds the layer sequences that the store does not have yet."""
        with self._database.writing() as connection:
            insertion.put_sequences(connection, sequences)

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

        If the store has a model of the same name and lowering with another digest, all its decompositions are deleted
        first.

        Args:
            decomposition: Decomposition of the model.
            whole: The whole model as one layer sequence.
            digest: Digest of the model.
            family: Architecture lineage of the model.
            lowering: Key of the lowering: runtime, its version, optimisation level, vector width.
        """
        key = {"model": decomposition.model, "lowering": lowering, "granularity": decomposition.granularity}
        with self._database.writing() as connection:
            insertion.put_sequences(connection, [whole, *decomposition.unique.values()])
            identity = {"name": decomposition.model, "lowering": lowering}
            values = {"family": family, "digest": digest, "whole": whole.signature}
            if not add_if_new(connection, tables.models, identity, values):
                if connection.scalar(select(tables.models.c.digest).filter_by(**identity)) != digest:
                    del key["granularity"]  # delete the decompositions of the former model at all granularities
                connection.execute(update(tables.models).filter_by(**identity).values(values))
            connection.execute(tables.segments.delete().filter_by(**key))
            segments = [StoredSegment(p.sequence.signature, p.layers, p.predecessors) for p in decomposition.segments]
            insertion.put_segments(connection, decomposition.model, lowering, decomposition.granularity, segments)

    def models(self) -> list[StoredModel]:
        """Returns the models of the corpus, one entry for each model, lowering and granularity, sorted by name."""
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
        """Returns the signature of each stored model, taken as one whole sequence."""
        with self._database.reading() as connection:
            return set(connection.scalars(select(tables.models.c.whole)))

    def put_samples(self, samples: Mapping[str, tuple[LayerSequence, LayerSequence]]) -> None:
        """Adds samples: for each sample's signature, the sample and the layer sequence that it was made from."""
        with self._database.writing() as connection:
            insertion.put_sequences(connection, [sequence for pair in samples.values() for sequence in pair])
            for signature, (_, origin) in samples.items():
                add_if_new(connection, tables.samples, {"signature": signature}, {"origin": origin.signature})

    def samples(self) -> dict[str, str]:
        """Returns the signature of the layer sequence that each sample was made from, by the sample's signature."""
        with self._database.reading() as connection:
            return {row.signature: row.origin for row in connection.execute(select(tables.samples))}

    # Measurements

    def put_measurement(self, system: str, measurement: Measurement, sequence: LayerSequence | None = None) -> None:
        """Adds one measurement, which becomes a repeat if the system has one of the same signature already.

        Args:
            system: Name of a stored system.
            measurement: Measurement to add.
            sequence: Layer sequence of the measurement's signature; None if it is stored already.
        """
        with self._database.writing() as connection:
            if sequence is not None:
                insertion.put_sequences(connection, [sequence])
            insertion.put_measurements(connection, system, [measurement])

    def put_measurements(self, system: str, measurements: Iterable[Measurement]) -> None:
        """Adds measurements of stored sequences in one transaction, as `put_measurement` adds one.

        A transaction of its own for each measurement takes longer than timing a small layer: each one waits for the
        disk.
        """
        with self._database.writing() as connection:
            insertion.put_measurements(connection, system, measurements)

    def put_results(self, results: Results, *, replace_observed: bool = False) -> ImportSummary:
        """Adds the results of another store, completely or not at all; existing records are not changed.

        A measurement counts as existing if the store has one of the same system, signature, time of measuring and raw
        times. A model counts as existing if the store has one of the same name, lowering and layers; its family and
        digest are kept, and only missing granularities are added.

        Args:
            results: Results to add.
            replace_observed: Whether to first remove all latencies of the system that were observed elsewhere and
                imported, and to replace the record of the system. Of a record that is not replaced, only the
                interference is added if it lacks it.

        Raises:
            StoreError: The store has a model of the same name and lowering with other layers.
        """
        system = results.system
        removed = 0
        with self._database.writing() as connection:
            key, record = {"name": system.name}, {"record": system.to_dict()}
            if not add_if_new(connection, tables.systems, key, record):
                stored = connection.scalars(select(tables.systems.c.record).filter_by(**key).with_for_update()).one()
                if replace_observed:
                    removed = insertion.remove_observed(connection, system.name)
                if replace_observed or System.from_dict(stored).extrapolated:
                    connection.execute(update(tables.systems).filter_by(**key).values(record))
                elif added := _interference_to_add(stored["capabilities"], system.capabilities):
                    capabilities = {**stored["capabilities"], **added}
                    record = {"record": {**stored, "capabilities": capabilities}}
                    connection.execute(update(tables.systems).filter_by(**key).values(record))
            lock(connection, tables.sequences, tables.measurements)  # rows can then be added many at a time
            sequences = insertion.unknown_sequences(connection, results.sequences.values())
            if sequences:
                connection.execute(insert(tables.sequences), sequences)
            models = frozenset(model.name for model in results.models if insertion.add_model(connection, model))
            for signature, origin in sorted(results.samples.items()):
                add_if_new(connection, tables.samples, {"signature": signature}, {"origin": origin})
            measurements = insertion.unknown_measurements(connection, system.name, results.measurements)
            if measurements:
                connection.execute(insert(tables.measurements), measurements)
        return ImportSummary(len(measurements), len(results.measurements) - len(measurements), models, removed)

    def count_and_last_measurement(self, system: str) -> tuple[int, int, str]:
        """Returns the number of measurements of a system, and the id and the time of the last one; 0 and "" for none.

        Adding and replacing measurements changes this. SQLite gives the ids of removed rows to new ones, hence the
        time.
        """
        table = tables.measurements
        query = select(func.count(), func.coalesce(func.max(table.c.id), 0)).select_from(table).filter_by(system=system)
        with self._database.reading() as connection:
            count, last = connection.execute(query).one()
            measured_at = connection.scalar(select(table.c.measured_at).filter_by(id=last)) or ""
        return int(count), int(last), measured_at

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, float]:
        """Returns latencies on a system in microseconds by signature, each the median over its measurements.

        Args:
            system: Name of the system.
            signatures: Signatures whose latencies to return, as far as they were measured; None for all.
        """
        return {signature: timing.latency_us for signature, timing in self.timings(system, signatures).items()}

    def timings(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, Timing]:
        """Returns timings on a system by signature: of all measured signatures, or of those among `signatures`."""
        table = tables.measurements.c
        columns = (
            *(table.signature, table.latency_us, table.low_us, table.high_us, table.call_us),
            *(table.measured_at, table.stable),
        )
        with self._database.reading() as connection:
            # In a fixed order, so that training does not depend on the order in which rows were stored.
            query = select(*columns).filter_by(system=system).order_by(table.signature, table.repeat)
            rows = select_in(connection, query, table.signature, signatures)
        by_signature: dict[str, list[Timing]] = {}
        for row in rows:
            ended = (row.measured_at, row.measured_at)
            timing = Timing(row.latency_us, (row.low_us, row.high_us), row.call_us, ended, row.stable)
            by_signature.setdefault(row.signature, []).append(timing)
        return {signature: Timing.combine(timings) for signature, timings in by_signature.items()}

    def observed_latencies_us(self, system: str) -> dict[str, float]:
        """Returns the latencies, in microseconds, of whole models that were observed on a system and imported.

        They are by the signature of the whole model, each the median over the observations of the model.
        """
        table = tables.measurements.c
        wholes = table.signature.in_(select(tables.models.c.whole))  # few, and found by an index
        query = select(table.signature, table.latency_us).filter_by(system=system).where(wholes, insertion.IS_OBSERVED)
        by_signature: dict[str, list[float]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(query):
                by_signature.setdefault(row.signature, []).append(row.latency_us)
        return {signature: median(latencies_us) for signature, latencies_us in by_signature.items()}

    def repeated_signatures(self, system: str) -> set[str]:
        """Returns the signatures that were measured more than once on a system."""
        query = select(tables.measurements.c.signature).filter_by(system=system).where(tables.measurements.c.repeat > 0)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def measurements(
        self, system: str, signatures: Iterable[str] | None = None, *, repeats: bool = True
    ) -> Iterator[Measurement]:
        """Yields the measurements of a system, sorted by signature, the first of each signature before its repeats.

        Args:
            system: Name of the system.
            signatures: Signatures whose measurements to yield; None for all.
            repeats: Whether to include repeats, which are all measurements of a signature but the first.
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
                kind=row.kind,
                pass_times_us=tuple(tuple(times) for times in row.pass_times_us),
                reference_us=tuple(row.reference_us),
                stable=row.stable,
                overhead_us=row.overhead_us,
                data_dependent=row.data_dependent,
                environment=row.environment,
                measured_at=row.measured_at,
            )


def _interference_to_add(stored: Mapping[str, float], given: Mapping[str, float]) -> dict[str, float]:
    """Returns the capabilities about interference of a system, unless its stored record has some already."""
    if any(name.startswith(INTERFERENCE) for name in stored):
        return {}
    return {name: value for name, value in given.items() if name.startswith(INTERFERENCE)}
