"""Fixtures of a store with two models, measured whole and in layers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, fake_system
from tests.reproduced import CALL_US, LAYERS_US, TEXTS, WHOLE_US, Graphs, put, put_time


@pytest.fixture(scope="session")
def layer_graphs(parse: Callable[..., ModelProto]) -> Graphs:
    """The layer graphs of both models."""
    return {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """A store with a system and no measurements."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.put_system(fake_system())
    yield store
    store.close()


@pytest.fixture
def store(empty: Store, layer_graphs: Graphs) -> Store:
    """A store with both models measured whole and in layers, and decomposed in pairs of layers too."""
    known: set[str] = set()
    for name, graph in layer_graphs.items():
        for granularity in (1, 2):
            put(empty, name, graph, granularity)
            for signature, sequence in decompose(name, graph, granularity).unique.items():
                if signature not in known:
                    known.add(signature)
                    put_time(empty, sequence, LAYERS_US[sequence.kind] + CALL_US, CALL_US)
        put_time(empty, whole_model(graph), WHOLE_US[name])
    return empty
