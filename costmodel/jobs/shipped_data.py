"""Shipped data: the Parquet files in the folder `data/` of a source checkout, by the system that they hold.

Nothing is imported until a command needs a system by name, because importing a system takes seconds and adds its models
to the store.
"""

import re
from dataclasses import replace
from pathlib import Path

from costmodel.paths import shipped_data_folder
from costmodel.process_state import garbage_collection_paused
from costmodel.store.parquet import read_results, read_system
from costmodel.store.results import Results
from costmodel.store.store import Store

__all__ = ["import_shipped", "is_shipped", "shipped_systems"]

# Names of the files that regressors are trained on, after the name of the system: -training-2 is a later session,
# -training-int8 a further corpus. The other files of a system are for experiments, and belong into a store of their own
# (data/README.md).
_TRAINING_FILE = re.compile(r"(-training(-.+)?)?")


def shipped_systems(folder: Path | None = None) -> dict[str, tuple[Path, ...]]:
    """Returns the files with the training data of each shipped system, by name of the system; reads only their headers.

    Args:
        folder: Folder of the files; by default that of the source checkout. Without a checkout there are no systems.

    Raises:
        DataFileError: A file in the folder was not written by costmodel, or has another format version.
        MissingExtraError: The optional dependency that reads Parquet is not installed.
    """
    folder = folder or shipped_data_folder()
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.parquet")) if folder is not None else ():
        name = read_system(path).name
        if path.stem.startswith(name) and _TRAINING_FILE.fullmatch(path.stem.removeprefix(name)):
            files.setdefault(name, []).append(path)
    return {name: tuple(paths) for name, paths in files.items()}


def is_shipped(name: str, folder: Path | None = None) -> bool:
    """Tells whether a system of this name is shipped, without reading any file.

    Args:
        name: Name of the system.
        folder: Folder of the shipped files; by default that of the source checkout.
    """
    folder = folder or shipped_data_folder()
    return folder is not None and (folder / f"{name}.parquet").exists()


@garbage_collection_paused()
def import_shipped(store: Store, name: str, folder: Path | None = None) -> bool:
    """Imports a shipped system into a store that does not know it; returns whether it was imported.

    All files of the system are imported, or none. A system that the store knows is left as it is, even if it lacks
    measurements that are shipped.

    Args:
        store: Store that receives the measurements and the models of the system.
        name: Name of the system; nothing is imported if no system of that name is shipped.
        folder: Folder of the shipped files; by default that of the source checkout.

    Raises:
        DataFileError: A file in the folder was not written by costmodel, or has an invalid record.
        StoreError: The store has a model of the same name as a shipped one with other layers.
    """
    if name in store.systems():
        return False
    parts = [read_results(path) for path in shipped_systems(folder).get(name, ())]
    if not parts:
        return False
    store.put_results(_merged(parts))
    return True


def _merged(parts: list[Results]) -> Results:
    """Returns the results of several files of one system as one."""
    first = parts[0]
    return replace(
        first,
        measurements=tuple(measurement for part in parts for measurement in part.measurements),
        sequences={signature: sequence for part in parts for signature, sequence in part.sequences.items()},
        models=tuple(model for part in parts for model in part.models),
        samples={signature: origin for part in parts for signature, origin in part.samples.items()},
    )
