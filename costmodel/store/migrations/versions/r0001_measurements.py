"""Creates the schema of store format 2, which is older than the migrations.

It holds systems, sequences, measurements with their call overhead, models and samples.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the tables; on stores of format 2, which have them already, this migration is not run."""
    op.create_table("costmodel_meta", sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text))
    op.create_table(
        "systems",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("record", sa.JSON, nullable=False),
    )
    op.create_table(
        "sequences",
        sa.Column("signature", sa.String(64), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("layers", sa.Integer, nullable=False),
    )
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("system", sa.String(64), sa.ForeignKey("systems.name"), nullable=False),
        sa.Column("signature", sa.String(64), sa.ForeignKey("sequences.signature"), nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("latency_us", sa.Double, nullable=False),
        sa.Column("rounds_us", sa.JSON, nullable=False),
        sa.Column("reference_us", sa.JSON, nullable=False),
        sa.Column("overhead_us", sa.Double, nullable=False),
        sa.Column("stable", sa.Boolean, nullable=False),
        sa.Column("data_dependent", sa.Boolean, nullable=False),
        sa.Column("circumstances", sa.JSON, nullable=False),
        sa.Column("measured_at", sa.String(32), nullable=False),
        sa.UniqueConstraint("system", "signature", "repeat"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(256), primary_key=True),
        sa.Column("lowering", sa.String(128), primary_key=True),
        sa.Column("family", sa.String(128), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("whole", sa.String(64), sa.ForeignKey("sequences.signature"), nullable=False),
    )
    op.create_table(
        "pieces",
        sa.Column("model", sa.String(256), primary_key=True),
        sa.Column("lowering", sa.String(128), primary_key=True),
        sa.Column("granularity", sa.Integer, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("signature", sa.String(64), sa.ForeignKey("sequences.signature"), nullable=False),
        sa.Column("layers", sa.JSON, nullable=False),
        sa.Column("needs", sa.JSON, nullable=False),
    )
    op.create_table(
        "samples",
        sa.Column("signature", sa.String(64), sa.ForeignKey("sequences.signature"), primary_key=True),
        sa.Column("origin", sa.String(64), sa.ForeignKey("sequences.signature"), nullable=False),
    )
    op.execute("INSERT INTO costmodel_meta (key, value) VALUES ('format_version', '2')")


def downgrade() -> None:
    """Drops all tables of the store."""
    for table in ("samples", "pieces", "models", "measurements", "sequences", "systems", "costmodel_meta"):
        op.drop_table(table)
