"""The results store: systems, sequences, measurements and the models they came from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from statistics import median

from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from costmodel import tables
from costmodel.database import WAIT_S, Database, add_if_new, select_in
from costmodel.decomposition import Decomposition
from costmodel.errors import StoreError, UnknownSystemError
from costmodel.measurement import Measurement, Timing
from costmodel.results import Added, Results, StoredModel, StoredPiece
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["Store", "StoredModel", "StoredPiece"]


class Store:
    """Measurements and what they belong to, behind one URL. Every write is its own transaction."""

    def __init__(self, url: str, *, create: bool = True, wait_s: float = WAIT_S, lazy: bool = False) -> None:
        """Open the store at `url`; one that an older costmodel wrote is upgraded.

        Args:
            url: SQLAlchemy URL: "sqlite:////absolute/path.db", "postgresql+psycopg://user@host/name".
            create: Whether to make the file of an SQLite store that is not there.
            wait_s: How long a statement may wait for a lock or a connection before it fails; in PostgreSQL, also how
                long it may run.
            lazy: Whether to open the store only when it is first used, and to try again at the next use if that
                fails: for a service that is to start, and to recover, while its database is down.

        Raises:
            StoreError: It is not there and not to be made, cannot be opened, is of a newer costmodel, or is no store
                of costmodel's; when `lazy`, only where `url` is no URL of a store.
        """
        self.url = url
        self._database = Database(url, create=create, wait_s=wait_s, lazy=lazy)

    def version(self) -> tuple[int, ...] | None:
        """A value that differs after every write, whoever it was; None where that cannot be told without a query."""
        return self._database.version()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    # Systems

    def put_system(self, system: System) -> None:
        """Add a system, or replace what is known about it; what a newer costmodel wrote about it stays."""
        key = {"name": system.name}
        with self._database.writing() as connection:
            if add_if_new(connection, tables.systems, key, {"record": system.to_dict()}):
                return
            stored = connection.scalars(select(tables.systems.c.record).filter_by(**key).with_for_update()).one()
            unknown = {**System.from_dict(stored).unknown, **system.unknown}
            record = replace(system, unknown=unknown).to_dict()
            connection.execute(update(tables.systems).filter_by(**key).values(record=record))

    def systems(self) -> dict[str, System]:
        """Every system that something is known about, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.systems).order_by(tables.systems.c.name)).all()
        return {row.name: System.from_dict(row.record) for row in rows}

    def system(self, name: str) -> System:
        """One system.

        Raises:
            UnknownSystemError: Nothing is known under that name.
        """
        found = self.systems()
        if name not in found:
            known = f"known here: {', '.join(found)}" if found else "none is known yet"
            raise UnknownSystemError(
                f"nothing is measured for the system {name} ({known}); run `costmodel bench --system {name}` on that "
                "machine, or import its results with `costmodel import`"
            )
        return found[name]

    # Sequences and models

    def put_sequences(self, sequences: Iterable[LayerSequence]) -> None:
        """Add those that are new."""
        with self._database.writing() as connection:
            _put_sequences(connection, sequences)

    def sequences(self, signatures: Iterable[str] | None = None) -> dict[str, LayerSequence]:
        """Stored sequences by signature: those asked for, or all."""
        query = select(tables.sequences.c.signature, tables.sequences.c.text)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.sequences.c.signature, signatures)
        return {row.signature: LayerSequence.from_text(row.text) for row in rows}

    def put_model(
        self, decomposition: Decomposition, whole: LayerSequence, *, digest: str, family: str, lowering: str
    ) -> None:
        """Add a model and one decomposition of it, in place of what was there for that granularity."""
        key = {"model": decomposition.model, "lowering": lowering, "granularity": decomposition.granularity}
        with self._database.writing() as connection:
            _put_sequences(connection, [whole, *decomposition.unique.values()])
            identity = {"name": decomposition.model, "lowering": lowering}
            values = {"family": family, "digest": digest, "whole": whole.signature}
            if not add_if_new(connection, tables.models, identity, values):
                if connection.scalar(select(tables.models.c.digest).filter_by(**identity)) != digest:
                    del key["granularity"]  # another model under that name: what was cut from the old one goes too
                connection.execute(update(tables.models).filter_by(**identity).values(values))
            connection.execute(tables.pieces.delete().filter_by(**key))
            pieces = [StoredPiece(p.sequence.signature, p.layers, p.needs) for p in decomposition.pieces]
            _put_pieces(connection, decomposition.model, lowering, decomposition.granularity, pieces)

    def models(self) -> list[StoredModel]:
        """The models of the corpus: one entry for each lowering and granularity, by name."""
        key = (tables.pieces.c.model, tables.pieces.c.lowering, tables.pieces.c.granularity)
        with (
            self._database.reading() as connection
        ):  # pieces first: the model of each is there by then, whoever is writing
            pieces = connection.execute(select(tables.pieces).order_by(*key, tables.pieces.c.position)).all()
            models = {(row.name, row.lowering): row for row in connection.execute(select(tables.models))}
        grouped: dict[tuple[str, str, int], list[StoredPiece]] = {}
        for row in pieces:
            piece = StoredPiece(row.signature, tuple(row.layers), tuple(row.needs))
            grouped.setdefault((row.model, row.lowering, row.granularity), []).append(piece)
        return [
            StoredModel(name, lowering, granularity, row.family, row.whole, tuple(of_model), row.digest)
            for (name, lowering, granularity), of_model in grouped.items()
            for row in [models[name, lowering]]
        ]

    def wholes(self) -> set[str]:
        """Signatures of whole models."""
        with self._database.reading() as connection:
            return set(connection.scalars(select(tables.models.c.whole)))

    def put_samples(self, samples: Mapping[str, tuple[LayerSequence, LayerSequence]]) -> None:
        """Add sequences of no model, each with the one that it was sampled around."""
        with self._database.writing() as connection:
            _put_sequences(connection, [sequence for pair in samples.values() for sequence in pair])
            for signature, (_, origin) in samples.items():
                add_if_new(connection, tables.samples, {"signature": signature}, {"origin": origin.signature})

    def samples(self) -> dict[str, str]:
        """For each sampled signature, the signature that it was sampled around."""
        with self._database.reading() as connection:
            return {row.signature: row.origin for row in connection.execute(select(tables.samples))}

    # Measurements

    def put_measurement(self, system: str, measurement: Measurement, sequence: LayerSequence | None = None) -> None:
        """Add one measurement; a signature measured before gets the next repeat.

        Args:
            system: Name of a stored system.
            measurement: What was measured.
            sequence: What its signature stands for, if that is not stored yet.
        """
        with self._database.writing() as connection:
            if sequence is not None:
                _put_sequences(connection, [sequence])
            _put_measurement(connection, system, measurement)

    def put_results(self, results: Results) -> Added:
        """Add what another machine measured, all or nothing; what is here already is left alone.

        A measurement is here already if one of that signature, date and raw times is. A model is if its name is, for
        that lowering, and has the same layers: its family and digest stay, and only granularities are added.

        Raises:
            StoreError: The name of a model stands for other layers here.
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
                same = select(tables.measurements.c.rounds_us).filter_by(
                    system=system.name, signature=measurement.signature, measured_at=measurement.measured_at
                )
                # Raw times: another release may make another latency of them.
                if [list(times) for times in measurement.rounds_us] not in connection.scalars(same).all():
                    _put_measurement(connection, system.name, measurement)
                    new += 1
        return Added(new, len(results.measurements) - new, models)

    def measured(self, system: str) -> tuple[int, int]:
        """How many measurements a system has, and the number of the last one: they differ when one is added."""
        table = tables.measurements
        query = select(func.count(), func.coalesce(func.max(table.c.id), 0)).select_from(table).filter_by(system=system)
        with self._database.reading() as connection:
            count, last = connection.execute(query).one()
        return int(count), int(last)

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, float]:
        """Latency of every measured signature of a system, or of those asked for: the median of its measurements."""
        query = select(tables.measurements.c.signature, tables.measurements.c.latency_us).filter_by(system=system)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.measurements.c.signature, signatures)
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(row.signature, []).append(row.latency_us)
        return {signature: median(latencies_us) for signature, latencies_us in found.items()}

    def timings(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, Timing]:
        """What is known of every measured signature of a system, or of those asked for."""
        measurements = self.measurements(system, signatures)
        return {signature: Timing.of(list(same)) for signature, same in groupby(measurements, lambda m: m.signature)}

    def repeated(self, system: str) -> set[str]:
        """Signatures that were measured more than once on a system."""
        query = select(tables.measurements.c.signature).filter_by(system=system).where(tables.measurements.c.repeat > 0)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def measurements(
        self, system: str, signatures: Iterable[str] | None = None, *, repeats: bool = True
    ) -> Iterator[Measurement]:
        """Measurements of a system, first ones before repeats, in order of signature."""
        query = select(tables.measurements).filter_by(system=system)
        if not repeats:
            query = query.filter_by(repeat=0)
        query = query.order_by(tables.measurements.c.signature, tables.measurements.c.repeat)
        with self._database.reading() as connection:
            rows = select_in(connection, query, tables.measurements.c.signature, signatures)
        for row in rows:
            yield Measurement(
                signature=row.signature,
                rounds_us=tuple(tuple(times) for times in row.rounds_us),
                reference_us=tuple(row.reference_us),
                stable=row.stable,
                overhead_us=row.overhead_us,
                data_dependent=row.data_dependent,
                circumstances=row.circumstances,
                measured_at=row.measured_at,
            )


def _put_sequences(connection: Connection, sequences: Iterable[LayerSequence]) -> None:
    by_signature = {sequence.signature: sequence for sequence in sequences}
    known = select_in(connection, select(tables.sequences.c.signature), tables.sequences.c.signature, by_signature)
    # In one order: two writers who take the same rows in different orders would wait for each other.
    for signature in sorted(by_signature.keys() - {row.signature for row in known}):
        sequence = by_signature[signature]
        values = {"text": sequence.text, "layers": len(sequence.layers)}
        add_if_new(connection, tables.sequences, {"signature": signature}, values)


def _put_pieces(
    connection: Connection, model: str, lowering: str, granularity: int, pieces: Iterable[StoredPiece]
) -> None:
    rows = [
        {
            "model": model,
            "lowering": lowering,
            "granularity": granularity,
            "position": position,
            "signature": piece.signature,
            "layers": list(piece.layers),
            "needs": list(piece.needs),
        }
        for position, piece in enumerate(pieces)
    ]
    connection.execute(insert(tables.pieces), rows)


def _added_model(connection: Connection, model: StoredModel) -> bool:
    """Add a model, or one that is here at a granularity that is not; whether that was needed."""
    identity = {"name": model.name, "lowering": model.lowering}
    values = {"family": model.family, "digest": model.digest, "whole": model.whole}
    if not add_if_new(connection, tables.models, identity, values):
        # The file may be another and the layers the same: what is measured of the one is true of the other.
        if connection.scalar(select(tables.models.c.whole).filter_by(**identity)) != model.whole:
            raise StoreError(
                f"the model {model.name} is here already and has other layers (both lowered by {model.lowering}), so "
                "nothing was imported: import into a store of its own with --store"
            )
        cut = {"model": model.name, "lowering": model.lowering, "granularity": model.granularity}
        if connection.scalar(select(func.count()).select_from(tables.pieces).filter_by(**cut)):
            return False
    _put_pieces(connection, model.name, model.lowering, model.granularity, model.pieces)
    return True


def _put_measurement(connection: Connection, system: str, measurement: Measurement) -> None:
    values = {
        "latency_us": measurement.latency_us,
        "rounds_us": [list(times) for times in measurement.rounds_us],
        "reference_us": list(measurement.reference_us),
        "overhead_us": measurement.overhead_us,
        "stable": measurement.stable,
        "data_dependent": measurement.data_dependent,
        "circumstances": dict(measurement.circumstances),
        "measured_at": measurement.measured_at,
    }
    of_signature = {"system": system, "signature": measurement.signature}
    following = select(func.coalesce(func.max(tables.measurements.c.repeat) + 1, 0)).filter_by(**of_signature)
    while True:  # two writers may both see the same number: the later one takes the next
        key = {**of_signature, "repeat": connection.scalar(following)}
        if add_if_new(connection, tables.measurements, key, values):
            return
