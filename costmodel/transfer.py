"""Measurements as Parquet: how results travel between machines and into data sets.

One row for each measurement, complete in itself: the sequence, the raw times, the circumstances and the system.
Which model a sequence came from is not in it. Format history (`FORMAT_VERSION`): 1, first format; 2, `overhead_us`,
what of each time is the call.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.errors import BrickError, MissingExtraError
from costmodel.measurement import Measurement
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System, check_same, validate_name

__all__ = ["FORMAT_VERSION", "export_measurements", "import_measurements"]

FORMAT_VERSION = 2
_KEY = b"costmodel"


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading and writing Parquet", "parquet") from error
    return pyarrow, pyarrow.parquet


def export_measurements(store: Store, system_name: str, path: Path) -> int:
    """Write the measured sequences of a system to a Parquet file, all of it or nothing; gives their number.

    Whole models stay at home: what travels says nothing of them, and who imports it could not tell them from layers.

    Raises:
        UnknownSystemError: Nothing is known under that name.
        BrickError: The file cannot be written.
    """
    pyarrow, parquet = _parquet()
    if not path.name:
        raise BrickError(f"{path} is a folder: give a file to write")
    system = store.system(system_name)
    wholes = {model.whole for model in store.models() if len(model.pieces) > 1}
    measurements = [m for m in store.measurements(system_name) if m.signature not in wholes]
    texts = {signature: s.text for signature, s in store.sequences(m.signature for m in measurements).items()}
    table = pyarrow.table(
        {
            "signature": [m.signature for m in measurements],
            "sequence": [texts[m.signature] for m in measurements],
            "latency_us": [m.latency_us for m in measurements],
            "rounds_us": pyarrow.array(
                [m.rounds_us for m in measurements], type=pyarrow.list_(pyarrow.list_(pyarrow.float64()))
            ),
            "reference_us": pyarrow.array(
                [m.reference_us for m in measurements], type=pyarrow.list_(pyarrow.float64())
            ),
            "overhead_us": [m.overhead_us for m in measurements],
            "stable": [m.stable for m in measurements],
            "data_dependent": [m.data_dependent for m in measurements],
            "circumstances": [json.dumps(m.circumstances, sort_keys=True) for m in measurements],
            "measured_at": [m.measured_at for m in measurements],
        }
    ).replace_schema_metadata({_KEY: json.dumps({"format": FORMAT_VERSION, "system": system.to_dict()})})
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            parquet.write_table(table, partial, compression="zstd")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise BrickError(f"{path} cannot be written ({error.strerror or error}): check its folder") from error
    return len(measurements)


def import_measurements(store: Store, path: Path, system_name: str | None = None) -> tuple[str, int, int]:
    """Add the measurements in a Parquet file to a store: all of them, or none if one is not sound.

    Args:
        store: Where they go.
        path: What `export_measurements` wrote, on any machine.
        system_name: Name to store them under; by default the one in the file.

    Returns:
        Name of the system, number of measurements added, number that were here already.

    Raises:
        BrickError: The file is not one of ours, is of a newer format, or a measurement in it is not sound.
        SystemNameError: The name has odd characters.
        SystemMismatchError: The name belongs to another machine here.
    """
    pyarrow, parquet = _parquet()
    try:
        table = parquet.read_table(path)
        header = json.loads((table.schema.metadata or {})[_KEY])
        version = header["format"]
        if version > FORMAT_VERSION:
            raise BrickError(
                f"{path} has format {version} and this costmodel knows {FORMAT_VERSION}: upgrade costmodel"
            )
        if version < FORMAT_VERSION:
            raise BrickError(
                f"{path} has format {version}, whose times cannot be compared with those of format {FORMAT_VERSION}: "
                "measure and export anew"
            )
        system = System.from_dict(header["system"])
    except FileNotFoundError as error:
        raise BrickError(f"{path} does not exist: check the path") from error
    except (OSError, pyarrow.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrickError(
            f"{path} is not a file of costmodel measurements: export them with `costmodel export`"
        ) from error
    system = replace(system, name=validate_name(system.name if system_name is None else system_name))
    known = store.systems().get(system.name)
    if known is not None and not system.asserted:
        check_same(known, system)
    added, present = store.put_measurements(system, list(_rows(table, path)))
    return system.name, added, present


def _rows(table: Any, path: Path) -> Iterator[tuple[LayerSequence, Measurement]]:
    for number, row in enumerate(table.to_pylist(), start=1):
        try:
            sequence = LayerSequence.from_text(row["sequence"])
            measurement = _measurement(row)
            times_us = [*measurement.times_us, *measurement.reference_us, row["latency_us"]]
            sound = bool(measurement.times_us) and all(math.isfinite(t) and t > 0 for t in times_us)
            sound = sound and math.isfinite(measurement.overhead_us) and measurement.overhead_us >= 0
        except (LookupError, TypeError, ValueError) as error:
            raise BrickError(f"{path}: row {number} is incomplete ({error}); nothing was imported") from error
        if sequence.signature != measurement.signature:
            raise BrickError(f"{path}: row {number} has a signature that is not its sequence's; nothing was imported")
        if not sound:
            raise BrickError(
                f"{path}: row {number} has a time that is no positive number; nothing was imported, "
                "measure it again and export anew"
            )
        yield sequence, measurement


def _measurement(row: Mapping[str, Any]) -> Measurement:
    absent = [name for name, value in row.items() if value is None]
    if absent:
        raise ValueError(f"no {', '.join(absent)}")
    return Measurement(
        signature=row["signature"],
        rounds_us=tuple(tuple(times) for times in row["rounds_us"]),
        reference_us=tuple(row["reference_us"]),
        stable=bool(row["stable"]),
        overhead_us=float(row["overhead_us"]),
        data_dependent=bool(row["data_dependent"]),
        circumstances=dict(json.loads(row["circumstances"])),
        measured_at=str(row["measured_at"]),
    )
