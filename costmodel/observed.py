"""Latencies of whole models as somebody saw them, in production say: a table in CSV, read whole or not at all.

Columns: `model`, `latency_us`, and `runs`, how many runs the latency is the average of, if that is known. They were not
measured under our protocol, and their circumstances say so.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import BrickError
from costmodel.measurement import OBSERVED, Measurement

__all__ = ["Observed", "read_latencies"]

_NEEDED, _OPTIONAL = ("model", "latency_us"), ("runs",)


@dataclass(frozen=True, slots=True)
class Observed:
    """One row.

    Attributes:
        line: Where in the file, from 1.
        model: A file, or a name, as it stands there.
        latency_us: Of the whole model.
        runs: That it is the average of; None where that is not known.
    """

    line: int
    model: str
    latency_us: float
    runs: int | None = None

    def measurement(self, signature: str, measured_at: str) -> Measurement:
        """As a measurement of the model's signature: one time, and where it came from."""
        return Measurement(
            signature=signature,
            rounds_us=((self.latency_us,),),
            reference_us=(),
            stable=True,
            circumstances={"source": OBSERVED, "runs": self.runs},
            measured_at=measured_at,
        )


def read_latencies(path: Path) -> list[Observed]:
    """The rows of a table; at least one.

    Raises:
        BrickError: It cannot be read, has other columns, or a row is not sound; the message has the number of the line.
    """
    try:
        # As spreadsheets write it: a byte order mark, and any ends of lines.
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path, file))
    except FileNotFoundError as error:
        raise BrickError(f"{path} does not exist: check the path") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BrickError(f"{path} cannot be read as CSV in UTF-8 ({error}): save it as that") from error
    if not rows:
        raise BrickError(f"{path} has no row: give one with {' and '.join(_NEEDED)} for each model")
    lines: dict[str, int] = {}
    for row in rows:
        first = lines.setdefault(row.model, row.line)
        if first != row.line:
            raise BrickError(
                f"{path}, line {row.line}: {row.model} is in line {first} already: give each model once, with its "
                "typical latency"
            )
    return rows


def _rows(path: Path, lines: Iterator[str]) -> Iterator[Observed]:
    reader = csv.reader(lines)
    columns = [name.strip() for name in next(reader, [])]
    if sorted({*columns, *_OPTIONAL}) != sorted([*_NEEDED, *_OPTIONAL]) or len(set(columns)) != len(columns):
        found = f"has the columns {', '.join(columns)}" if columns else "is empty"
        raise BrickError(
            f"{path} {found}: its first line must be `{','.join(_NEEDED)}`, with `,{_OPTIONAL[0]}` behind it if "
            "the number of runs is known"
        )
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}, line {reader.line_num}"
        if len(cells) != len(columns):
            raise BrickError(f"{where}: {len(cells)} cells for {len(columns)} columns: quote names that have a comma")
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        if not row["model"]:
            raise BrickError(f"{where}: no model is named: give its file or its name")
        latency_us, runs = _number(row["latency_us"]), _number(row.get("runs") or "1")
        if latency_us is None:
            raise BrickError(
                f"{where}: {row['latency_us']!r} is no latency: give microseconds, as a number greater than 0"
            )
        if runs is None or runs != int(runs):
            raise BrickError(f"{where}: {row['runs']!r} is no number of runs: give a whole one, or leave it empty")
        yield Observed(reader.line_num, row["model"], latency_us, int(runs) if row.get("runs") else None)


def _number(text: str) -> float | None:
    """A finite number greater than 0; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
