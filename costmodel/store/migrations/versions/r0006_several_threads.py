"""Divides latencies that several threads took on a disturbed machine by 1.2 at most (docs/adr/0016)."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_MOST_SLOWDOWN = 1.2
_LEAST_US = 0.5
_BATCH = 1000


def upgrade() -> None:
    """Multiplies latencies and lower bounds that were divided by more."""
    _scale(1)


def downgrade() -> None:
    """Divides them again; what was cut at the smallest latency stays longer than it was."""
    _scale(-1)


def _scale(exponent: int) -> None:
    """Multiplies by what was divided by beyond the limit, to the power of `exponent`, which is 1 or -1."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT id, latency_us, low_us, high_us, circumstances FROM measurements")).all()
    scaled = []
    for row, latency_us, low_us, high_us, circumstances in rows:
        known = (json.loads(circumstances) if isinstance(circumstances, str) else circumstances) or {}
        excess = known.get("slowdown", 1.0) / _MOST_SLOWDOWN
        if known.get("threads", 1) > 1 and excess > 1:
            latency, low = (min(high_us, max(_LEAST_US, us * excess**exponent)) for us in (latency_us, low_us))
            # In a store from before revision 4, lower bounds were never divided.
            scaled.append({"id": row, "latency": latency, "low": min(low, latency)})
    fill = sa.text("UPDATE measurements SET latency_us = :latency, low_us = :low WHERE id = :id")
    for start in range(0, len(scaled), _BATCH):
        connection.execute(fill, scaled[start : start + _BATCH])
