"""Adds owner, idempotency key and storage time to observations, and widens their ids and numbers of runs to 64 bits."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MOST_RUNS = 2**31 - 1


def upgrade() -> None:
    """Adds the columns `owner`, `idempotency_key` and `stored_at`, and widens `id` and `runs` to 64 bits.

    In existing rows the owner becomes "local" and the storage time the current time, because both are unknown.
    """
    op.drop_index("ix_observations_system", "observations")
    op.add_column("observations", sa.Column("owner", sa.String(64)))
    op.add_column("observations", sa.Column("idempotency_key", sa.String(255)))
    op.add_column("observations", sa.Column("stored_at", sa.String(32)))
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    op.get_bind().execute(sa.text("UPDATE observations SET owner = 'local', stored_at = :now"), {"now": now})
    with op.batch_alter_table("observations", table_kwargs={"sqlite_autoincrement": True}) as table:
        table.alter_column("owner", existing_type=sa.String(64), nullable=False)
        table.alter_column("stored_at", existing_type=sa.String(32), nullable=False)
        table.alter_column("runs", existing_type=sa.Integer(), type_=sa.BigInteger())
        table.create_unique_constraint("uq_observations_owner_idempotency_key", ["owner", "idempotency_key"])
    if op.get_bind().dialect.name == "postgresql":  # SQLite's row numbers always have 64 bits
        op.alter_column("observations", "id", existing_type=sa.Integer(), type_=sa.BigInteger())
        op.execute("ALTER SEQUENCE observations_id_seq AS bigint")
    op.create_index("ix_observations_system_owner_id", "observations", ["system", "owner", "id"])
    op.create_index("ix_observations_owner_id", "observations", ["owner", "id"])
    op.create_index("ix_observations_stored_at", "observations", ["stored_at"])
    op.execute("UPDATE costmodel_meta SET value = '3' WHERE key = 'format_version'")


def downgrade() -> None:
    """Drops the columns that `upgrade` added, and narrows `id` and `runs` to 32 bits.

    A number of runs beyond 32 bits becomes the largest that fits.
    """
    for index in ("system_owner_id", "owner_id", "stored_at"):
        op.drop_index(f"ix_observations_{index}", "observations")
    op.get_bind().execute(sa.text("UPDATE observations SET runs = :most WHERE runs > :most"), {"most": _MOST_RUNS})
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER SEQUENCE observations_id_seq AS integer")
        op.alter_column("observations", "id", existing_type=sa.BigInteger(), type_=sa.Integer())
    with op.batch_alter_table("observations") as table:
        table.drop_constraint("uq_observations_owner_idempotency_key", type_="unique")
        table.alter_column("runs", existing_type=sa.BigInteger(), type_=sa.Integer())
        for column in ("owner", "idempotency_key", "stored_at"):
            table.drop_column(column)
    op.create_index("ix_observations_system", "observations", ["system"])
    op.execute("UPDATE costmodel_meta SET value = '2' WHERE key = 'format_version'")
