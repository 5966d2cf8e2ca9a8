"""Export and import of results as Parquet, for transfer between machines and for data sets.

A file holds the results of one system, with a row for each record. By default the records are measurements, each with
its layer sequence, raw times and environment; the file then contains neither whole models nor the models in which the
sequences occur. A file with models (`with_models`) has everything that training, evaluation and reproduction need:
names, families, decompositions, end-to-end measurements, and the origins of samples. `costmodel.store.records`
describes the kinds of records.

Format history (`FORMAT_VERSION`): 1, first format; 2, adds `overhead_us`, the call overhead in each time. Files with
models have no version of their own, because readers of version 2 without support for models refuse them.
"""

import json
import os
from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.errors import DataFileError, MissingExtraError
from costmodel.store.records import results_of, rows_of
from costmodel.store.results import ImportSummary, Results, StoredModel
from costmodel.store.store import Store
from costmodel.systems.system import System, check_same_system, validate_name

__all__ = ["FORMAT_VERSION", "collect_results", "export_results", "import_results"]

FORMAT_VERSION = 2
_KEY = b"costmodel"
# zstd level: files are written once and kept for years, and a few more seconds make them a third smaller.
_COMPRESSION = 19


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading and writing Parquet", "parquet") from error
    return pyarrow, pyarrow.parquet


def collect_results(store: Store, system_name: str, *, with_models: bool = False) -> Results:
    """Returns the results of one system in a store.

    Args:
        store: Store that has the results.
        system_name: Name of the system.
        with_models: Whether to include models: those of which at least one layer is measured on the system, with all
            sequences of these models and their samples. Without models, the measurements of whole models are left out
            as well, because an importer could not distinguish them from layers.

    Raises:
        UnknownSystemError: The store has no system of that name.
    """
    system = store.system(system_name)
    measurements = tuple(store.measurements(system_name))
    models = store.models()
    if not with_models:
        wholes = {model.whole for model in models if len(model.segments) > 1}
        measurements = tuple(m for m in measurements if m.signature not in wholes)
        return Results(system, measurements, store.sequences(m.signature for m in measurements))
    samples = store.samples()
    wanted = {m.signature for m in measurements}
    wanted |= {samples[signature] for signature in wanted & samples.keys()}
    models = list(_relevant(models, wanted))
    wanted = wanted.union(*(model.signatures for model in models))
    samples = {signature: origin for signature, origin in samples.items() if not wanted.isdisjoint((signature, origin))}
    wanted |= samples.keys() | samples.values()
    return Results(system, measurements, store.sequences(wanted), tuple(models), samples)


def _relevant(models: Iterable[StoredModel], wanted: Set[str]) -> Iterator[StoredModel]:
    """Yields the models whose segments are all wanted, or that have a wanted signature that no finer cut has.

    Args:
        models: Stored models; the granularities of a model from fine to coarse.
        wanted: Signatures that are to be exported.
    """
    signatures: dict[tuple[str, str], set[str]] = {}
    for model in models:
        finer = signatures.setdefault((model.name, model.lowering), set())
        if not wanted.isdisjoint(model.signatures - finer) or wanted >= {
            segment.signature for segment in model.segments
        }:
            yield model
        finer |= model.signatures


def export_results(store: Store, system_name: str, path: Path, *, with_models: bool = False) -> Results:
    """Writes the results of a system to a Parquet file, completely or not at all.

    Args:
        store: Store that has the results.
        system_name: Name of the system.
        path: Path of the file, which is replaced if it exists.
        with_models: Whether to include models, as in `collect_results`.

    Returns:
        The results that were written.

    Raises:
        UnknownSystemError: The store has no system of that name.
        DataFileError: The file cannot be written.
    """
    pyarrow, parquet = _parquet()
    if not path.name:
        raise DataFileError(f"{path} is a folder: give a file to write")
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
        raise DataFileError(f"{path} cannot be written ({error.strerror or error}): check its folder") from error
    return results


def import_results(store: Store, path: Path, system_name: str | None = None) -> tuple[Results, ImportSummary]:
    """Adds the results in a Parquet file to a store: all of them, or none if a record is invalid.

    Args:
        store: Store to which the results are added.
        path: File that `export_results` wrote, on any machine.
        system_name: Name of the system in the store; by default the name in the file.

    Returns:
        The results in the file, with the system under its name in the store, and a summary of what was new.

    Raises:
        DataFileError: The file was not written by costmodel, has another format version, or has an invalid record.
        SystemNameError: The system name is invalid.
        SystemMismatchError: The store has another system of that name.
        StoreError: The store has a model of the same name with other layers.
    """
    pyarrow, parquet = _parquet()
    try:
        table = parquet.read_table(path)
        header = json.loads((table.schema.metadata or {})[_KEY])
        version = header["format"]
        if version > FORMAT_VERSION:
            raise DataFileError(
                f"{path} has format {version} and this costmodel knows {FORMAT_VERSION}: upgrade costmodel"
            )
        if version < FORMAT_VERSION:
            raise DataFileError(
                f"{path} has format {version}, whose times cannot be compared with those of format {FORMAT_VERSION}: "
                "measure and export anew"
            )
        system = System.from_dict(header["system"])
    except FileNotFoundError as error:
        raise DataFileError(f"{path} does not exist: check the path") from error
    except (OSError, pyarrow.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataFileError(
            f"{path} is not a file of costmodel measurements: export them with `costmodel export`"
        ) from error
    system = replace(system, name=validate_name(system.name if system_name is None else system_name))
    known = store.systems().get(system.name)
    if known is not None and not system.asserted:
        check_same_system(known, system)
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
        segment = {"signature": text, "layers": pyarrow.list_(text), "needs": pyarrow.list_(pyarrow.int32())}
        columns = {
            "record": text, **columns, "model": text, "family": text, "digest": text, "lowering": text,
            "granularity": pyarrow.int64(), "pieces": pyarrow.list_(pyarrow.struct(segment.items())), "origin": text,
        }  # fmt: skip
    return pyarrow.schema(columns.items())
