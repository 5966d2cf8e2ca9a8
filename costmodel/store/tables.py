"""The tables of the results store in the newest schema."""

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
    "measurements", "meta", "metadata", "models", "observations", "samples", "schema_version", "segments", "sequences",
    "systems",
]  # fmt: skip

metadata = MetaData()

# Releases from before the migrations read the format version from this table and refuse unknown formats.
meta = Table("costmodel_meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text))

# Alembic's own table, which is not part of the migrated schema.
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
    # 0 for the first measurement of the signature on the system; repeats are numbered from 1.
    Column("repeat", Integer, nullable=False),
    # What was timed: "layer", "sequence" or "model".
    Column("kind", String(8), nullable=False),
    # Derived from the raw times, by `costmodel.measure.measurement.Measurement.timing`, when a row is stored.
    Column("latency_us", Double, nullable=False),
    Column("low_us", Double, nullable=False),
    Column("high_us", Double, nullable=False),
    Column("call_us", Double, nullable=False),
    Column("rounds_us", JSON, key="pass_times_us", nullable=False),
    Column("reference_us", JSON, nullable=False),
    Column("overhead_us", Double, nullable=False),
    Column("stable", Boolean, nullable=False),
    Column("data_dependent", Boolean, nullable=False),
    Column("circumstances", JSON, key="environment", nullable=False),
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
    # Signature of the whole model as one sequence, under which its end-to-end latency is stored.
    Column("whole", ForeignKey("sequences.signature"), nullable=False),
)
segments = Table(
    "pieces",
    metadata,
    Column("model", String(256), primary_key=True),
    Column("lowering", String(128), primary_key=True),
    Column("granularity", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("signature", ForeignKey("sequences.signature"), nullable=False),
    Column("layers", JSON, nullable=False),
    Column("needs", JSON, key="predecessors", nullable=False),
)

samples = Table(
    "samples",
    metadata,
    Column("signature", ForeignKey("sequences.signature"), primary_key=True),
    # The sequence of a model that the sample was made from; a sample is held out together with its origin.
    Column("origin", ForeignKey("sequences.signature"), nullable=False),
)

# Latencies that users observed, with the predictions for them: used to detect drift, never for training.
observations = Table(
    "observations",
    metadata,
    # SQLite generates row numbers only if the column type is spelt INTEGER, which has 64 bits in SQLite.
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
    # Always from `costmodel.measure.measurement.now`, so that the strings sort in the order of the times.
    Column("stored_at", String(32), nullable=False),
    UniqueConstraint("owner", "idempotency_key", name="uq_observations_owner_idempotency_key"),
    Index("ix_observations_system_owner_id", "system", "owner", "id"),
    Index("ix_observations_owner_id", "owner", "id"),
    Index("ix_observations_stored_at", "stored_at"),
    sqlite_autoincrement=True,  # the id of a deleted row is never used again
)
