"""The tables of the results store, as the newest migration leaves them."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "measurements", "meta", "metadata", "models", "observations", "pieces", "samples", "schema_version", "sequences",
    "systems",
]  # fmt: skip

metadata = MetaData()

# Read by releases from before the migrations, which refuse a format that they do not know.
meta = Table("costmodel_meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text))

# Alembic's own table, which is no part of what it migrates.
schema_version = Table(
    "costmodel_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="costmodel_version_pkc"),
)

systems = Table(
    "systems", metadata, Column("name", String(64), primary_key=True), Column("record", JSON, nullable=False)
)
sequences = Table(
    "sequences",
    metadata,
    Column("signature", String(64), primary_key=True),
    Column("text", Text, nullable=False),
    Column("layers", Integer, nullable=False),
)
measurements = Table(
    "measurements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("system", ForeignKey("systems.name"), nullable=False),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    # 0 is the measurement that counts; later ones show how well it repeats.
    Column("repeat", Integer, nullable=False),
    Column("latency_us", Double, nullable=False),
    Column("rounds_us", JSON, nullable=False),
    Column("reference_us", JSON, nullable=False),
    Column("overhead_us", Double, nullable=False),
    Column("stable", Boolean, nullable=False),
    Column("data_dependent", Boolean, nullable=False),
    Column("circumstances", JSON, nullable=False),
    Column("measured_at", String(32), nullable=False),
    UniqueConstraint("system", "signature", "repeat"),
)
models = Table(
    "models",
    metadata,
    Column("name", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("family", String(128), nullable=False),
    Column("digest", String(64), nullable=False),
    # The whole model as one sequence: what its end-to-end latency is stored under.
    Column("whole", ForeignKey("sequences.signature"), nullable=False),
)
pieces = Table(
    "pieces",
    metadata,
    Column("model", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("granularity", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    Column("layers", JSON, nullable=False),
    Column("needs", JSON, nullable=False),
)

samples = Table(
    "samples",
    metadata,
    Column("signature", ForeignKey("sequences.signature"), primary_key=True),
    # The sequence of a model that it was made from: where that is held out, so is the sample.
    Column("origin", ForeignKey("sequences.signature"), nullable=False),
)

# Latencies that users saw, beside what was predicted of them: they tell of drift, and train nothing.
observations = Table(
    "observations",
    metadata,
    # SQLite numbers the rows of a table only where the type is spelt INTEGER; it has 64 bits there.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("system", String(64), nullable=False),
    Column("model", String(256), nullable=False),
    Column("digest", String(80), nullable=False),
    Column("latency_us", Double, nullable=False),
    Column("runs", BigInteger),
    Column("predicted_us", Double, nullable=False),
    Column("low_us", Double, nullable=False),
    Column("high_us", Double, nullable=False),
    Column("version", String(128), nullable=False),
    Column("observed_at", String(32), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("idempotency_key", String(255)),
    # Always written by `costmodel.measurement.now`, so that texts sort as the times do.
    Column("stored_at", String(32), nullable=False),
    UniqueConstraint("owner", "idempotency_key", name="uq_observations_owner_idempotency_key"),
    Index("ix_observations_system_owner_id", "system", "owner", "id"),
    Index("ix_observations_owner_id", "owner", "id"),
    Index("ix_observations_stored_at", "stored_at"),
    sqlite_autoincrement=True,  # the id of a row that was deleted never becomes that of another one
)
