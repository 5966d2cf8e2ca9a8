"""Adds a table of latencies that users observed, which the service writes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Creates the table unless it exists: after a downgrade, a release without migrations may have made it."""
    op.create_table(
        "observations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("system", sa.String(64), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("latency_us", sa.Double, nullable=False),
        sa.Column("runs", sa.Integer),
        sa.Column("predicted_us", sa.Double, nullable=False),
        sa.Column("low_us", sa.Double, nullable=False),
        sa.Column("high_us", sa.Double, nullable=False),
        sa.Column("version", sa.String(128), nullable=False),
        sa.Column("observed_at", sa.String(32), nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_observations_system", "observations", ["system"], if_not_exists=True)


def downgrade() -> None:
    """Drops the table with all observations."""
    op.drop_table("observations")
