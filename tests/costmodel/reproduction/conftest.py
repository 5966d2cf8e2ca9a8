"""A store in which two models are measured whole and in layers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.decomposition import decompose, whole_model
from costmodel.model import read_model
from costmodel.store import Store
from tests.fakes import FakeRuntime, fake_system
from tests.reproduced import CALL_US, LAYERS_US, TEXTS, WHOLE_US, Graphs, put, put_time


@pytest.fixture(scope="session")
def layer_graphs(parse: Callable[..., ModelProto]) -> Graphs:
    """The layers of both models."""
    return {name: FakeRuntime().lower(read_model(parse(text)), "all") for name, text in TEXTS.items()}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """A store that knows a system."""
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.put_system(fake_system())
    yield store
    store.close()


@pytest.fixture
def store(empty: Store, layer_graphs: Graphs) -> Store:
    """Both models, measured whole and in layers; cut in pairs of layers as well."""
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
