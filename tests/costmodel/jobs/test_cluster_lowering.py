"""Models that are lowered on a Dask cluster have the graphs that this host gives."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from costmodel.errors import ClusterError
from costmodel.jobs.cluster_lowering import lower_on_cluster
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.lowering_cache import find_lowered
from costmodel.runtimes.ort.adapter import OnnxRuntime
from tests.fleet import Fleet, cluster


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A cluster without workers."""
    with cluster(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def models(light_models: Mapping[str, Path]) -> list[Model]:
    """Two models."""
    return [read_model(light_models[name]) for name in ("squeezenet", "shufflenet")]


def test_graphs_equal_those_of_this_host_and_are_made_once(fleet: Fleet, models: list[Model], tmp_path: Path) -> None:
    """The cache has the graph of each model afterwards, and a second call lowers nothing."""
    runtime = OnnxRuntime()
    with pytest.raises(ClusterError, match="has no worker"):
        lower_on_cluster(fleet.address, models, runtime, "all", tmp_path)
    fleet.start_dask_worker("one")
    stream = fleet.machines["one"].stderr
    assert stream is not None
    while "Registered to" not in stream.readline():
        pass
    reported: list[int] = []
    progress = lambda done, _total, _name: reported.append(done)  # noqa: E731
    assert lower_on_cluster(fleet.address, models, runtime, "all", tmp_path, progress=progress) == 2
    assert reported == [1, 2]
    for model in models:
        found = find_lowered(runtime, model, "all", tmp_path)
        assert found is not None
        assert found.to_dict() == runtime.lower(model, "all").to_dict()
    assert lower_on_cluster(fleet.address, models, runtime, "all", tmp_path) == 0
