"""Adds columns to measurements: what was timed, and the interval and median run time computed from the raw times."""

import json
import math

import numpy as np
import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_LEAST_US = 0.5
_BATCH = 1000


def upgrade() -> None:
    """Adds the columns and fills them from the raw times; a measurement without call overhead is of a whole model."""
    for column in ("low_us", "high_us", "call_us"):
        op.add_column("measurements", sa.Column(column, sa.Double))
    op.add_column("measurements", sa.Column("kind", sa.String(8)))
    connection = op.get_bind()
    rows = connection.execute(
        sa.text(
            "SELECT m.id, m.overhead_us, m.rounds_us, s.layers FROM measurements m JOIN sequences s"
            " ON s.signature = m.signature"
        )
    ).all()
    fill = sa.text(
        "UPDATE measurements SET kind = :kind, low_us = :low, high_us = :high, call_us = :call WHERE id = :id"
    )
    for start in range(0, len(rows), _BATCH):
        connection.execute(fill, [_derived(*row) for row in rows[start : start + _BATCH]])
    with op.batch_alter_table("measurements") as table:
        for column in ("low_us", "high_us", "call_us"):
            table.alter_column(column, existing_type=sa.Double(), nullable=False)
        table.alter_column("kind", existing_type=sa.String(8), nullable=False)


def downgrade() -> None:
    """Drops the columns that `upgrade` added."""
    with op.batch_alter_table("measurements") as table:
        for column in ("kind", "low_us", "high_us", "call_us"):
            table.drop_column(column)


def _derived(row: int, overhead_us: float, passes: str | list[list[float]], layers: int) -> dict[str, object]:
    """Returns the new columns of a measurement, computed as costmodel did when this migration was written.

    Args:
        row: Id of the measurement.
        overhead_us: Call overhead in microseconds.
        passes: Raw times in microseconds, a list for each pass, or these lists as JSON text.
        layers: Number of layers of the sequence that was timed.
    """
    passes = json.loads(passes) if isinstance(passes, str) else passes
    times = np.sort([time_us for times_us in passes for time_us in times_us])
    middle = float(np.median(times))
    if not overhead_us:
        centre, spread = len(times) / 2, 1.645 * math.sqrt(len(times)) / 2
        low = min(float(times[max(0, math.floor(centre - spread))]), middle)
        high = max(float(times[min(len(times) - 1, math.ceil(centre + spread))]), middle)
        return {"id": row, "kind": "model", "low": low, "high": high, "call": middle}
    kept = times[times <= 2 * middle]
    mean, error = float(np.mean(kept)), 1.645 * float(np.std(kept)) / math.sqrt(len(kept))
    return {
        "id": row,
        "kind": "layer" if layers == 1 else "sequence",
        "low": max(_LEAST_US, max(float(times[0]), mean - error) - overhead_us),
        "high": max(_LEAST_US, min(float(times[-1]), mean + error) - overhead_us),
        "call": middle,
    }
