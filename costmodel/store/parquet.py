"""Export and import of results as Parquet, for transfer between machines and for data sets.

A file holds the results of one system, with a row for each record. By default the records are measurements, each with
its layer sequence, raw times and environment; the file then contains neither whole models nor the models in which the
sequences occur. A file with models (`with_models`) has everything that training, evaluation and reproduction need:
names, families, decompositions, end-to-end measurements, and the origins of samples. `costmodel.store.records`
describes the kinds of records.

Format history (`FORMAT_VERSION`): 1, first format; 2, adds `overhead_us`, the call overhead in each time. Files with
models have no format version of their own, because releases that read version 2 but do not support models refuse them
anyway.
"""

import json
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.atomic_write import atomic_file
from costmodel.errors import DataFileError, MissingExtraError
from costmodel.process_state import garbage_collection_paused
from costmodel.store.records import results_of, rows_of
from costmodel.store.results import ImportSummary, Results, StoredModel
from costmodel.store.store import Store
from costmodel.systems.names import validate_name
from costmodel.systems.system import System, check_same_system

__all__ = [
    "FORMAT_VERSION",
    "collect_results",
    "export_results",
    "import_results",
    "read_models",
    "read_results",
    "read_system",
]

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
        with_models: Whether to include the models of which at least one sequence is measured on the system, with all
            their sequences and samples. If false, the measurements of whole models are left out as well, because they
            would disclose the models' layers.

    Raises:
        UnknownSystemError: The store has no system of that name.
    """
    system = store.system(system_name)
    measurements = tuple(store.measurements(system_name))
    if not with_models:
        measurements = tuple(m for m in measurements if m.kind != "model")
        return Results(system, measurements, store.sequences(m.signature for m in measurements))
    samples = store.samples()
    wanted = {m.signature for m in measurements}
    wanted |= {samples[signature] for signature in wanted & samples.keys()}
    models = list(_relevant(store.models(), wanted))
    wanted = wanted.union(*(model.signatures for model in models))
    samples = {signature: origin for signature, origin in samples.items() if not wanted.isdisjoint((signature, origin))}
    wanted |= samples.keys() | samples.values()
    return Results(system, measurements, store.sequences(wanted), tuple(models), samples)


def _relevant(models: Iterable[StoredModel], wanted: Set[str]) -> Iterator[StoredModel]:
    """Yields the models that are to be exported, at each granularity at which they are needed.

    A model is needed at a granularity if all its segments at that granularity are wanted, or if one of its signatures
    there is wanted and occurs in the model at no finer granularity.

    Args:
        models: Stored models; the granularities of a model come in order from fine to coarse.
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
    try:
        with atomic_file(path) as partial:
            parquet.write_table(table, partial, compression="zstd", compression_level=_COMPRESSION)
    except OSError as error:
        raise DataFileError(f"{path} cannot be written ({error.strerror or error}): check its folder") from error
    return results


@garbage_collection_paused()
def import_results(
    store: Store, path: Path, system_name: str | None = None, *, models_only: bool = False
) -> tuple[Results, ImportSummary]:
    """Adds the results in a Parquet file to a store: all of them, or none if a record is invalid.

    Args:
        store: Store to which the results are added.
        path: File that `export_results` wrote, on any machine.
        system_name: Name of the system in the store; by default the name in the file.
        models_only: Whether to add the latencies of whole models only, which make better known what predictions are
            judged by, and leave what regressors learn from as it is.

    Returns:
        The results in the file, with their system under the name that it has in the store, and a summary of what was
        new to the store.

    Raises:
        DataFileError: The file was not written by costmodel, has another format version, or has an invalid record.
        SystemNameError: The system name is invalid.
        SystemMismatchError: The store has another system of that name.
        StoreError: The store has a model of the same name with other layers.
    """
    results = read_results(path)
    system = results.system
    system = replace(system, name=validate_name(system.name if system_name is None else system_name))
    known = store.systems().get(system.name)
    if known is not None and not system.asserted:
        check_same_system(known, system)
    measurements = tuple(m for m in results.measurements if m.kind == "model" or not models_only)
    results = replace(results, system=system, measurements=measurements)
    return results, store.put_results(results)


def read_results(path: Path) -> Results:
    """Returns the results in a Parquet file.

    Raises:
        DataFileError: The file was not written by costmodel, has another format version, or has an invalid record.
    """
    _, parquet = _parquet()
    with _reading(path):
        table = parquet.read_table(path)
        system = _system_in(table.schema, path)
    return results_of(table.to_pylist(), system, path)


def read_system(path: Path) -> System:
    """Returns the system whose results are in a Parquet file; reads no record of the file.

    Raises:
        DataFileError: The file was not written by costmodel, or has another format version.
    """
    _, parquet = _parquet()
    with _reading(path):
        return _system_in(parquet.read_schema(path), path)


def read_models(path: Path, wholes: Set[str]) -> Results:
    """Returns models in a Parquet file, cut at granularity 1, with their layer sequences and without measurements.

    Other records of the file are not read, so that this takes a moment where reading all results takes long.

    Args:
        path: File that `export_results` wrote.
        wholes: Signatures of whole models; those that the file does not have are left out.

    Raises:
        DataFileError: The file was not written by costmodel, has another format version, or has an invalid record.
    """
    _, parquet = _parquet()
    with _reading(path):
        schema = parquet.read_schema(path)
        system = _system_in(schema, path)
        if not wholes or "record" not in schema.names:
            return Results(system, (), {})
        filters = [("record", "==", "model"), ("granularity", "==", 1), ("signature", "in", sorted(wholes))]
        models = parquet.read_table(path, filters=filters).to_pylist()
        if not models:
            return Results(system, (), {})
        signatures = {row["signature"] for row in models} | {p["signature"] for row in models for p in row["pieces"]}
        filters = [("record", "in", ["measurement", "sequence"]), ("signature", "in", sorted(signatures))]
        texts = parquet.read_table(path, columns=["signature", "sequence"], filters=filters).to_pylist()
    sequences = {row["signature"]: {**row, "record": "sequence"} for row in texts}
    return results_of([*sequences.values(), *models], system, path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns an error of reading a Parquet file inside the context into a `DataFileError` that names the file."""
    pyarrow, _ = _parquet()
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileError(f"{path} does not exist: check the path") from error
    except (OSError, pyarrow.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataFileError(
            f"{path} is not a file of costmodel measurements: export them with `costmodel export`"
        ) from error


def _system_in(schema: Any, path: Path) -> System:
    """Returns the system in the header of a Parquet file, given its schema, after checking the format version."""
    header = json.loads((schema.metadata or {})[_KEY])
    version = header["format"]
    if version > FORMAT_VERSION:
        raise DataFileError(f"{path} has format {version} and this costmodel knows {FORMAT_VERSION}: upgrade costmodel")
    if version < FORMAT_VERSION:
        raise DataFileError(
            f"{path} has format {version}, whose times cannot be compared with those of format {FORMAT_VERSION}: "
            "measure and export anew"
        )
    return System.from_dict(header["system"])


def _schema(pyarrow: Any, with_models: bool) -> Any:
    text, time, times = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    columns = {
        "signature": text, "sequence": text, "kind": text, "latency_us": time, "rounds_us": pyarrow.list_(times),
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
