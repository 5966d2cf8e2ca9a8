"""Writes a folder of shipped data with two tiny models, and a standard set of both for two runtimes."""

from pathlib import Path

from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.parquet import export_results
from costmodel.store.store import Store
from costmodel.training.standard_set import StandardModel, StandardSet, standard_set_file
from tests.fakes import fake_system
from tests.reproduced import FAMILIES, LAYERS_US, WHOLE_US, Graphs, put, put_time

__all__ = ["BASE", "put_shipped_data"]

BASE = "fake-1"  # system of `put_time`


def put_shipped_data(folder: Path, graphs: Graphs) -> StandardSet:
    """Creates a folder of shipped data: "deep" is in the first file of the base, "wide" in that for training.

    "-training-2-more" has a second measurement of "wide", and "-second", which is no training data, one of "deep". All
    layers of "deep" are in the standard set, and "wide" is in it as a whole.
    """
    folder.mkdir(parents=True)
    files = (("", "deep"), ("-training", "wide"), ("-training-2-more", "wide"), ("-second", "deep"))
    for ending, name in files:
        store = Store(f"sqlite:///{folder / 'shipped.db'}")
        store.put_system(fake_system(BASE, capabilities={"layer_us": 1.5}))
        graph = graphs[name]
        put(store, name, graph)
        put_time(store, whole_model(graph), WHOLE_US[name])
        for sequence in decompose(name, graph, 1).unique.values():
            put_time(store, sequence, LAYERS_US[sequence.kind] + 2.0, 2.0)
        export_results(store, BASE, folder / f"{BASE}{ending}.parquet", with_models=True)
        store.close()
        (folder / "shipped.db").unlink()
    wholes = {name: whole_model(graph).signature for name, graph in graphs.items()}
    standard = StandardSet(
        base=BASE,
        fingerprint="0123456789abcdef",
        layers=2,
        seconds=60.0,
        models=tuple(StandardModel(name, FAMILIES[name], wholes[name], name == "deep") for name in ("deep", "wide")),
    )
    for runtime in ("fake", "onnxruntime"):
        standard.write(folder / standard_set_file(runtime))
    return standard
