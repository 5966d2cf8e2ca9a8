"""Reads observed latencies of whole models, for example from production, from a CSV file.

The columns are `model`, `latency_us` and, optionally, `runs`, the number of runs of which the latency is the average.
These latencies were not measured under the protocol of `costmodel.measure`; their environment marks them as observed.
A file with an invalid row is refused as a whole.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import DataFileError
from costmodel.measure.measurement import OBSERVED, Measurement

__all__ = ["ObservedLatency", "read_latencies"]

_NEEDED, _OPTIONAL = ("model", "latency_us"), ("runs",)


@dataclass(frozen=True, slots=True)
class ObservedLatency:
    """An observed latency: one row of the file.

    Attributes:
        line: Line number in the file, from 1.
        model: Path of a model file, or name of a model, as it is in the file.
        latency_us: Latency of the whole model in microseconds.
        runs: Number of runs of which the latency is the average; None if it is unknown.
    """

    line: int
    model: str
    latency_us: float
    runs: int | None = None

    def measurement(self, signature: str, measured_at: str) -> Measurement:
        """Returns a measurement with this latency as its only raw time, marked in its environment as observed.

        Args:
            signature: Signature of the whole model.
            measured_at: Time to record for the measurement, UTC in ISO 8601.
        """
        return Measurement(
            signature=signature,
            kind="model",
            pass_times_us=((self.latency_us,),),
            reference_us=(),
            stable=True,
            environment={"source": OBSERVED, "runs": self.runs},
            measured_at=measured_at,
        )


def read_latencies(path: Path) -> list[ObservedLatency]:
    """Returns the observed latencies in a CSV file, at least one.

    Raises:
        DataFileError: The file cannot be read, does not have the columns that the module describes, has no rows, has an
            invalid row, or has two rows for one model. For a faulty row the message has the line number.
    """
    try:
        # Accepts what spreadsheets write: a byte order mark and any line endings.
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path, file))
    except FileNotFoundError as error:
        raise DataFileError(f"{path} does not exist: check the path") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(f"{path} cannot be read as CSV in UTF-8 ({error}): save it as that") from error
    if not rows:
        raise DataFileError(f"{path} has no row: give one with {' and '.join(_NEEDED)} for each model")
    lines: dict[str, int] = {}
    for row in rows:
        first = lines.setdefault(row.model, row.line)
        if first != row.line:
            raise DataFileError(
                f"{path}, line {row.line}: {row.model} is in line {first} already: give each model once, with its "
                "typical latency"
            )
    return rows


def _rows(path: Path, lines: Iterator[str]) -> Iterator[ObservedLatency]:
    reader = csv.reader(lines)
    columns = [name.strip() for name in next(reader, [])]
    if sorted({*columns, *_OPTIONAL}) != sorted([*_NEEDED, *_OPTIONAL]) or len(set(columns)) != len(columns):
        fault = f"has the columns {', '.join(columns)}" if columns else "is empty"
        raise DataFileError(
            f"{path} {fault}: its first line must be `{','.join(_NEEDED)}`, with `,{_OPTIONAL[0]}` behind it if "
            "the number of runs is known"
        )
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}, line {reader.line_num}"
        if len(cells) != len(columns):
            raise DataFileError(
                f"{where}: {len(cells)} cells for {len(columns)} columns: quote names that have a comma"
            )
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        if not row["model"]:
            raise DataFileError(f"{where}: no model is named: give its file or its name")
        latency_us, runs = _number(row["latency_us"]), _number(row.get("runs") or "1")
        if latency_us is None:
            raise DataFileError(
                f"{where}: {row['latency_us']!r} is no latency: give microseconds, as a number greater than 0"
            )
        if runs is None or runs != int(runs):
            raise DataFileError(f"{where}: {row['runs']!r} is no number of runs: give a whole one, or leave it empty")
        yield ObservedLatency(reader.line_num, row["model"], latency_us, int(runs) if row.get("runs") else None)


def _number(text: str) -> float | None:
    """Returns the number that `text` is if it is finite and greater than 0; otherwise None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
