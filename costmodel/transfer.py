"""Results as Parquet: how they travel between machines and into data sets.

One file for one system, a row for each record. Usually these are measurements, complete in themselves: the sequence,
the raw times, the circumstances. Which model a sequence came from is not in it, and whole models are not either. A
file with models (`with_models`) has them too, with all that training, evaluation and reproduction need: names,
families, decompositions, end-to-end measurements, and where samples came from; `costmodel.records` says how they are
told apart.

Format history (`FORMAT_VERSION`): 1, first format; 2, `overhead_us`, what of each time is the call. Who reads 2 and
knows no models refuses a file with models, so those needed no number of their own.
"""

import json
import os
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.errors import BrickError, MissingExtraError
from costmodel.records import results_of, rows_of
from costmodel.results import Added, Results, StoredModel
from costmodel.store import Store
from costmodel.systems import System, check_same, validate_name

__all__ = ["FORMAT_VERSION", "collect_results", "export_results", "import_results"]

FORMAT_VERSION = 2
_KEY = b"costmodel"
# Of zstd: files are written once and kept for years; a few seconds more make them a third smaller.
_COMPRESSION = 19


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading and writing Parquet", "parquet") from error
    return pyarrow, pyarrow.parquet


def collect_results(store: Store, system_name: str, *, with_models: bool = False) -> Results:
    """What a store knows of one system.

    Without models, whole ones stay at home too: who imports them could not tell them from layers. With models, those
    come along that are measured on the system, if only a layer of them is, and every sequence that they and their
    samples have.

    Raises:
        UnknownSystemError: Nothing is known under that name.
    """
    system = store.system(system_name)
    measurements = tuple(store.measurements(system_name))
    models = store.models()
    if not with_models:
        wholes = {model.whole for model in models if len(model.pieces) > 1}
        measurements = tuple(m for m in measurements if m.signature not in wholes)
        return Results(system, measurements, store.sequences(m.signature for m in measurements))
    samples = store.samples()
    wanted = {m.signature for m in measurements}
    wanted |= {samples[signature] for signature in wanted & samples.keys()}
    models = list(_about(models, wanted))
    wanted = wanted.union(*(model.signatures for model in models))
    samples = {signature: origin for signature, origin in samples.items() if not wanted.isdisjoint((signature, origin))}
    wanted |= samples.keys() | samples.values()
    return Results(system, measurements, store.sequences(wanted), tuple(models), samples)


def _about(models: Iterable[StoredModel], wanted: Set[str]) -> Iterator[StoredModel]:
    """Those of the models, finer cuts first, that consist of what is wanted or have some that no finer cut has."""
    had: dict[tuple[str, str], set[str]] = {}
    for model in models:
        finer = had.setdefault((model.name, model.lowering), set())
        if not wanted.isdisjoint(model.signatures - finer) or wanted >= {piece.signature for piece in model.pieces}:
            yield model
        finer |= model.signatures


def export_results(store: Store, system_name: str, path: Path, *, with_models: bool = False) -> Results:
    """Write what is known of a system to a Parquet file, all of it or nothing.

    Args:
        store: Where it is known.
        system_name: Of the system.
        path: The file, replaced if it is there.
        with_models: As in `collect_results`.

    Returns:
        What was written.

    Raises:
        UnknownSystemError: Nothing is known under that name.
        BrickError: The file cannot be written.
    """
    pyarrow, parquet = _parquet()
    if not path.name:
        raise BrickError(f"{path} is a folder: give a file to write")
    results = collect_results(store, system_name, with_models=with_models)
    header = {_KEY: json.dumps({"format": FORMAT_VERSION, "system": results.system.to_dict()})}
    schema = _schema(pyarrow, with_models).with_metadata(header)
    table = pyarrow.Table.from_pylist(list(rows_of(results)), schema)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            parquet.write_table(table, partial, compression="zstd", compression_level=_COMPRESSION)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise BrickError(f"{path} cannot be written ({error.strerror or error}): check its folder") from error
    return results


def import_results(store: Store, path: Path, system_name: str | None = None) -> tuple[Results, Added]:
    """Add what is in a Parquet file to a store: all of it, or nothing if one record is not sound.

    Args:
        store: Where it goes.
        path: What `export_results` wrote, on any machine.
        system_name: Name to store it under; by default the one in the file.

    Returns:
        What is in the file, under that name, and what of it is new in the store.

    Raises:
        BrickError: The file is not one of ours, is of another format, or a record in it is not sound.
        SystemNameError: The name has odd characters.
        SystemMismatchError: The name belongs to another machine here.
        StoreError: The name of a model stands for other layers here.
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
    results = results_of(table.to_pylist(), system, path)
    return results, store.put_results(results)


def _schema(pyarrow: Any, with_models: bool) -> Any:
    text, time, times = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    columns = {
        "signature": text, "sequence": text, "latency_us": time, "rounds_us": pyarrow.list_(times),
        "reference_us": times, "overhead_us": time, "stable": pyarrow.bool_(), "data_dependent": pyarrow.bool_(),
        "circumstances": text, "measured_at": text,
    }  # fmt: skip
    if with_models:
        piece = {"signature": text, "layers": pyarrow.list_(text), "needs": pyarrow.list_(pyarrow.int32())}
        columns = {
            "record": text, **columns, "model": text, "family": text, "digest": text, "lowering": text,
            "granularity": pyarrow.int64(), "pieces": pyarrow.list_(pyarrow.struct(piece.items())), "origin": text,
        }  # fmt: skip
    return pyarrow.schema(columns.items())
