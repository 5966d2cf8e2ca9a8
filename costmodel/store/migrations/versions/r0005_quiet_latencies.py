"""Divides latencies that were measured on a disturbed machine by the slowdown that its probes showed."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_LEAST_US = 0.5
_BATCH = 1000


def upgrade() -> None:
    """Divides the latencies; lower bounds are divided already."""
    _scale(-1)


def downgrade() -> None:
    """Multiplies the latencies again; one that was cut at the smallest latency stays longer than it was."""
    _scale(1)


def _scale(exponent: int) -> None:
    """Multiplies latencies by the slowdown of their measurement to the power of `exponent`, which is 1 or -1."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT id, latency_us, circumstances FROM measurements")).all()
    scaled = []
    for row, latency_us, circumstances in rows:
        known = json.loads(circumstances) if isinstance(circumstances, str) else circumstances
        slowdown = (known or {}).get("slowdown", 1.0)
        if slowdown > 1:
            scaled.append({"id": row, "latency": max(_LEAST_US, latency_us * slowdown**exponent)})
    fill = sa.text("UPDATE measurements SET latency_us = :latency WHERE id = :id")
    for start in range(0, len(scaled), _BATCH):
        connection.execute(fill, scaled[start : start + _BATCH])
