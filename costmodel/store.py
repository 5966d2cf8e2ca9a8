"""The results store: systems, sequences, measurements and the models they came from, in any SQL database.

Format history (`FORMAT_VERSION`):
    1   first format.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from costmodel.decomposition import Decomposition
from costmodel.errors import MissingExtraError, StoreError, UnknownSystemError
from costmodel.measurement import Measurement
from costmodel.sequence import LayerSequence
from costmodel.systems import System

__all__ = ["FORMAT_VERSION", "Store", "StoredModel", "StoredPiece"]

FORMAT_VERSION = 1
_BUSY_SECONDS = 60

_metadata = MetaData()
_meta = Table("costmodel_meta", _metadata, Column("key", String(64), primary_key=True), Column("value", Text))
_systems = Table(
    "systems", _metadata, Column("name", String(64), primary_key=True), Column("record", JSON, nullable=False)
)
_sequences = Table(
    "sequences",
    _metadata,
    Column("signature", String(64), primary_key=True),
    Column("text", Text, nullable=False),
    Column("layers", Integer, nullable=False),
)
_measurements = Table(
    "measurements",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("system", ForeignKey("systems.name"), nullable=False),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    # 0 is the measurement that counts; later ones show how well it repeats.
    Column("repeat", Integer, nullable=False),
    Column("latency_us", Double, nullable=False),
    Column("rounds_us", JSON, nullable=False),
    Column("reference_us", JSON, nullable=False),
    Column("stable", Boolean, nullable=False),
    Column("data_dependent", Boolean, nullable=False),
    Column("circumstances", JSON, nullable=False),
    Column("measured_at", String(32), nullable=False),
    UniqueConstraint("system", "signature", "repeat"),
)
_models = Table(
    "models",
    _metadata,
    Column("name", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("family", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    # The whole model as one sequence: what its end-to-end latency is stored under.
    Column("whole", ForeignKey("sequences.signature"), nullable=False),
)
_pieces = Table(
    "pieces",
    _metadata,
    Column("model", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("granularity", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    Column("layers", JSON, nullable=False),
    Column("needs", JSON, nullable=False),
)

_samples = Table(
    "samples",
    _metadata,
    Column("signature", ForeignKey("sequences.signature"), primary_key=True),
    # The sequence of a model that it was made from: where that is held out, so is the sample.
    Column("origin", ForeignKey("sequences.signature"), nullable=False),
)


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """One sequence at its place in a stored model; fields as in `costmodel.decomposition.Piece`."""

    signature: str
    layers: tuple[str, ...]
    needs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model of the corpus.

    Attributes:
        name: Of the model.
        lowering: What made its graph of layers: runtime, version, level, vector width.
        granularity: Of its decomposition.
        family: Architecture lineage; never split across training and test.
        whole: Signature of the model as one sequence.
        pieces: Its decomposition.
    """

    name: str
    lowering: str
    granularity: int
    family: str
    whole: str
    pieces: tuple[StoredPiece, ...]


class Store:
    """Measurements and what they belong to, behind one URL. Every write is its own transaction."""

    def __init__(self, url: str) -> None:
        """Open the store at `url`, creating it if there is none.

        Args:
            url: SQLAlchemy URL: "sqlite:////absolute/path.db", "postgresql+psycopg://user@host/name".

        Raises:
            StoreError: It cannot be opened, is of a newer format, or is no store of costmodel's.
        """
        self.url = url
        self._engine = _connect(url)
        with self._writing() as connection:  # one transaction: no other process sees half a store, or makes it too
            existing = set(inspect(connection).get_table_names())
            if not existing:
                _metadata.create_all(connection)
                connection.execute(insert(_meta).values(key="format_version", value=str(FORMAT_VERSION)))
            elif _meta.name not in existing:
                raise StoreError(f"{self._place} is a database but not a costmodel store: give another with --store")
            self._check_format(connection)

    def _check_format(self, connection: Connection) -> None:
        found = str(connection.scalar(select(_meta.c.value).where(_meta.c.key == "format_version")))
        if not found.isdecimal():
            raise StoreError(f"{self._place} has no format that costmodel knows: give another store with --store")
        if int(found) > FORMAT_VERSION:
            raise StoreError(
                f"{self._place} has format {found} and this costmodel knows formats up to {FORMAT_VERSION}: "
                "upgrade costmodel, or give another store with --store"
            )

    @property
    def _place(self) -> str:
        return make_url(self.url).render_as_string(hide_password=True)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(f"the store {self._place} cannot be used ({reason}): {_advice(reason)}") from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._reporting(), self._engine.connect() as connection:
            connection.execution_options(writing=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._reporting(), self._engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # Systems

    def put_system(self, system: System) -> None:
        """Add a system, or replace what is known about it."""
        with self._writing() as connection:
            values = {"record": system.to_dict()}
            if not _add_if_new(connection, _systems, {"name": system.name}, values):
                connection.execute(update(_systems).where(_systems.c.name == system.name).values(values))

    def systems(self) -> dict[str, System]:
        """Every system that something is known about, by name."""
        with self._reading() as connection:
            rows = connection.execute(select(_systems).order_by(_systems.c.name)).all()
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
        with self._writing() as connection:
            _put_sequences(connection, sequences)

    def sequences(self, signatures: Iterable[str] | None = None) -> dict[str, LayerSequence]:
        """Stored sequences by signature: those asked for, or all."""
        query = select(_sequences.c.signature, _sequences.c.text)
        with self._reading() as connection:
            rows = _select_in(connection, query, _sequences.c.signature, signatures)
        return {row.signature: LayerSequence.from_text(row.text) for row in rows}

    def put_model(
        self, decomposition: Decomposition, whole: LayerSequence, *, digest: str, family: str, lowering: str
    ) -> None:
        """Add a model and one decomposition of it, in place of what was there for that granularity."""
        key = {"model": decomposition.model, "lowering": lowering, "granularity": decomposition.granularity}
        with self._writing() as connection:
            _put_sequences(connection, [whole, *decomposition.unique.values()])
            identity = {"name": decomposition.model, "lowering": lowering}
            values = {"family": family, "digest": digest, "whole": whole.signature}
            if not _add_if_new(connection, _models, identity, values):
                if connection.scalar(select(_models.c.digest).filter_by(**identity)) != digest:
                    del key["granularity"]  # another model under that name: what was cut from the old one goes too
                connection.execute(update(_models).filter_by(**identity).values(values))
            connection.execute(_pieces.delete().filter_by(**key))
            rows = [
                {
                    "model": decomposition.model,
                    "lowering": lowering,
                    "granularity": decomposition.granularity,
                    "position": position,
                    "signature": piece.sequence.signature,
                    "layers": list(piece.layers),
                    "needs": list(piece.needs),
                }
                for position, piece in enumerate(decomposition.pieces)
            ]
            connection.execute(insert(_pieces), rows)

    def models(self) -> list[StoredModel]:
        """The models of the corpus: one entry for each lowering and granularity, by name."""
        key = (_pieces.c.model, _pieces.c.lowering, _pieces.c.granularity)
        with self._reading() as connection:  # pieces first: the model of each is there by then, whoever is writing
            pieces = connection.execute(select(_pieces).order_by(*key, _pieces.c.position)).all()
            models = {(row.name, row.lowering): row for row in connection.execute(select(_models))}
        grouped: dict[tuple[str, str, int], list[StoredPiece]] = {}
        for row in pieces:
            piece = StoredPiece(row.signature, tuple(row.layers), tuple(row.needs))
            grouped.setdefault((row.model, row.lowering, row.granularity), []).append(piece)
        return [
            StoredModel(
                name,
                lowering,
                granularity,
                models[name, lowering].family,
                models[name, lowering].whole,
                tuple(of_model),
            )
            for (name, lowering, granularity), of_model in grouped.items()
        ]

    def put_samples(self, samples: Mapping[str, tuple[LayerSequence, LayerSequence]]) -> None:
        """Add sequences of no model, each with the one that it was sampled around."""
        with self._writing() as connection:
            _put_sequences(connection, [sequence for pair in samples.values() for sequence in pair])
            for signature, (_, origin) in samples.items():
                _add_if_new(connection, _samples, {"signature": signature}, {"origin": origin.signature})

    def samples(self) -> dict[str, str]:
        """For each sampled signature, the signature that it was sampled around."""
        with self._reading() as connection:
            return {row.signature: row.origin for row in connection.execute(select(_samples))}

    # Measurements

    def put_measurement(self, system: str, measurement: Measurement, sequence: LayerSequence | None = None) -> None:
        """Add one measurement; a signature measured before gets the next repeat.

        Args:
            system: Name of a stored system.
            measurement: What was measured.
            sequence: What its signature stands for, if that is not stored yet.
        """
        with self._writing() as connection:
            if sequence is not None:
                _put_sequences(connection, [sequence])
            _put_measurement(connection, system, measurement)

    def put_measurements(
        self, system: System, measured: Iterable[tuple[LayerSequence, Measurement]]
    ) -> tuple[int, int]:
        """Add what another machine measured, all or nothing; a record that is here already is left alone.

        Returns:
            How many were added, and how many were here already.
        """
        added = known = 0
        records = list(measured)
        with self._writing() as connection:
            _add_if_new(connection, _systems, {"name": system.name}, {"record": system.to_dict()})
            _put_sequences(connection, (sequence for sequence, _ in records))
            for _, measurement in records:
                same = select(_measurements.c.id).filter_by(
                    system=system.name, signature=measurement.signature, measured_at=measurement.measured_at
                )
                if connection.scalar(same.filter_by(latency_us=measurement.latency_us)) is not None:
                    known += 1
                else:
                    _put_measurement(connection, system.name, measurement)
                    added += 1
        return added, known

    def latencies_us(self, system: str, signatures: Iterable[str] | None = None) -> dict[str, float]:
        """Quiet latency of every measured signature of a system, or of those asked for; repeats do not count."""
        query = select(_measurements.c.signature, _measurements.c.latency_us).filter_by(system=system, repeat=0)
        with self._reading() as connection:
            rows = _select_in(connection, query, _measurements.c.signature, signatures)
        return {row.signature: row.latency_us for row in rows}

    def repeated(self, system: str) -> set[str]:
        """Signatures that were measured more than once on a system."""
        query = select(_measurements.c.signature).filter_by(system=system).where(_measurements.c.repeat > 0)
        with self._reading() as connection:
            return set(connection.scalars(query))

    def measurements(
        self, system: str, signatures: Iterable[str] | None = None, *, repeats: bool = True
    ) -> Iterator[Measurement]:
        """Measurements of a system, first ones before repeats, in order of signature."""
        query = select(_measurements).filter_by(system=system)
        if not repeats:
            query = query.filter_by(repeat=0)
        query = query.order_by(_measurements.c.signature, _measurements.c.repeat)
        with self._reading() as connection:
            rows = _select_in(connection, query, _measurements.c.signature, signatures)
        for row in rows:
            yield Measurement(
                signature=row.signature,
                rounds_us=tuple(tuple(times) for times in row.rounds_us),
                reference_us=tuple(row.reference_us),
                stable=row.stable,
                data_dependent=row.data_dependent,
                circumstances=row.circumstances,
                measured_at=row.measured_at,
            )


def _connect(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):  # SQLAlchemy's own choice is an older driver
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            if parsed.database in (None, "", ":memory:"):
                raise StoreError(f"{url} keeps nothing: give a file, such as sqlite:///results.db")
            # A file is cheap to open and must not be shared between threads or kept across a fork.
            engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            engine = create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        shown = re.sub(r"(?<=//)[^/@]*:[^/@]*(?=@)", "***", url)  # no password
        raise StoreError(f"{shown!r} is not the URL of a store: give one such as sqlite:///results.db") from error
    except ImportError as error:  # of psycopg too, where it finds no libpq
        if parsed.drivername == "postgresql+psycopg":
            raise MissingExtraError("a store in PostgreSQL", "postgres") from error
        raise StoreError(f"a store at {parsed.drivername} needs the package {error.name}: install it") from error
    return engine


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, not where the driver guesses
    try:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")  # a completed measurement survives a power cut
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise


def _write_ahead(connection: Any) -> None:
    """Switch a new database to write-ahead logging; SQLite does not wait for the lock that this takes, so we do."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return  # a folder that cannot have it, on a network say, keeps what it has
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at once when writing: a lock asked for half-way can be refused without waiting."""
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _advice(reason: str) -> str:
    """What to do about a database's complaint."""
    checks: Mapping[str, Callable[[str], bool]] = {
        "free some space and run again, what was stored before is safe": lambda r: "full" in r,
        "another process keeps it busy; wait until that ends and run again": lambda r: "locked" in r,
        "it is not a database; give another file with --store": lambda r: "not a database" in r or "malformed" in r,
        "store the system and the sequence that it refers to first": lambda r: "foreign key" in r.lower(),
        "check that its folder exists and can be written": lambda r: "unable to open" in r or "readonly" in r,
    }
    return next((advice for advice, fits in checks.items() if fits(reason)), "check the URL given with --store")


def _add_if_new(connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Insert a row unless its key is there, whoever else is inserting; whether it was added."""
    # In most databases a refused row ends the transaction, unless a savepoint stands before it. In SQLite it does not,
    # and on a full disk the savepoint's own complaint would hide the reason.
    savepoint = nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()
    try:
        with savepoint:
            connection.execute(insert(table).values(**key, **values))
    except IntegrityError:
        if connection.scalar(select(func.count()).select_from(table).filter_by(**key)) == 0:
            raise  # it is not the key: what the row refers to is not there, say
        return False
    return True


def _put_sequences(connection: Connection, sequences: Iterable[LayerSequence]) -> None:
    by_signature = {sequence.signature: sequence for sequence in sequences}
    known = _select_in(connection, select(_sequences.c.signature), _sequences.c.signature, by_signature)
    # In one order: two writers who take the same rows in different orders would wait for each other.
    for signature in sorted(by_signature.keys() - {row.signature for row in known}):
        sequence = by_signature[signature]
        values = {"text": sequence.text, "layers": len(sequence.layers)}
        _add_if_new(connection, _sequences, {"signature": signature}, values)


def _put_measurement(connection: Connection, system: str, measurement: Measurement) -> None:
    values = {
        "latency_us": measurement.latency_us,
        "rounds_us": [list(times) for times in measurement.rounds_us],
        "reference_us": list(measurement.reference_us),
        "stable": measurement.stable,
        "data_dependent": measurement.data_dependent,
        "circumstances": dict(measurement.circumstances),
        "measured_at": measurement.measured_at,
    }
    of_signature = {"system": system, "signature": measurement.signature}
    following = select(func.coalesce(func.max(_measurements.c.repeat) + 1, 0)).filter_by(**of_signature)
    while True:  # two writers may both see the same number: the later one takes the next
        key = {**of_signature, "repeat": connection.scalar(following)}
        if _add_if_new(connection, _measurements, key, values):
            return


def _select_in(connection: Connection, query: Any, column: Column[str], wanted: Iterable[str] | None) -> Sequence[Any]:
    """Rows of `query`, restricted to some values of `column` in portions that every database takes."""
    if wanted is None:
        return connection.execute(query).all()
    values = sorted(set(wanted))  # in order, so that a query's own order holds over all portions
    rows: list[Any] = []
    for start in range(0, len(values), 500):
        rows.extend(connection.execute(query.where(column.in_(values[start : start + 500]))).all())
    return rows
