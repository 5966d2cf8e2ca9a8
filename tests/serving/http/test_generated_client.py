"""A typed client generated from the OpenAPI document can use every operation."""

import importlib
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from onnx import ModelProto
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

from costmodel.paths import Home
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.http.tokens import add_token
from tests.fakes import elementwise
from tests.served import InProcess, listening
from tests.synthetic import SYSTEM, copied

_PACKAGE = "generated_costmodel"
# On a busy machine the service may ask for patience, which is no error.
_BUSY, _TRIES = (429, 503), 10


class _Generated:
    """The generated package, and clients with and without a token."""

    def __init__(self, package: ModuleType, url: str, token: str) -> None:
        self.models = importlib.import_module(f"{_PACKAGE}.models")
        self.types = importlib.import_module(f"{_PACKAGE}.types")
        self.client = package.AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
        self.anonymous = package.Client(base_url=url, raise_on_unexpected_status=True)

    def ask(self, operation: str, *given: Any, **options: Any) -> Any:
        """Returns the parsed answer of an operation, such as "predictions.predict"; asks again if it is busy."""
        for _ in range(_TRIES):
            answer = self.detailed(operation, *given, **options)
            if answer.status_code not in _BUSY:
                break
            time.sleep(1)
        return answer.parsed

    def detailed(self, operation: str, *given: Any, **options: Any) -> Any:
        """Returns the answer of an operation with status and headers."""
        module = importlib.import_module(f"{_PACKAGE}.api.{operation}")
        return module.sync_detailed(*given, **({"client": self.client} | options))


@pytest.fixture(scope="module")
def generated(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Generated]:
    """A client generated from the document of the running service."""
    home = copied(trained, tmp_path_factory.mktemp("generated") / "home")
    token = add_token(home.root / "tokens", "test")
    folder = tmp_path_factory.mktemp("package")
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(home, patch, tokens=home.root / "tokens", make_engines=InProcess) as url,
    ):
        document = httpx.get(f"{url}/openapi.json", headers={"authorization": f"Bearer {token}"})
        (folder / "openapi.json").write_bytes(document.content)
        config = Config.from_sources(
            ConfigFile(post_hooks=[]), MetaType.NONE, folder / "openapi.json", "utf-8", overwrite=False,
            output_path=folder / _PACKAGE,
        )  # fmt: skip
        assert list(generate(config=config)) == []
        patch.syspath_prepend(folder)
        found = _Generated(importlib.import_module(_PACKAGE), url, token)
        with found.client, found.anonymous:
            yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
        del sys.modules[name]


def test_a_graph_is_priced(generated: _Generated) -> None:
    """A graph built from the client's classes, attributes included, is priced."""
    models = generated.models
    axis, wide = models.WireSequenceLayerAttrs(), models.WireLayerAttrs()
    axis["axis"] = models.WireAttribute(i=-1)
    wide["axis"] = models.WireAttribute(i=-1)
    layer = models.WireLayer(name="softmax", op="Softmax", since=13, attrs=wide, in_=["x"], out=["y"])
    types = models.WireGraphTypes()
    types["x"] = types["y"] = [models.DType.FLOAT32, [12, 128, 128], False]
    graph = models.WireGraph(layers=[layer], types=types, inputs=["x"], outputs=["y"])
    answer = generated.ask("predictions.predict", body=models.PredictRequest(graph=graph, system=SYSTEM.name))
    assert isinstance(answer, models.PredictAnswer)
    assert answer.layers[0].op_type == "Softmax"
    values = [
        [models.DType.FLOAT32, [12, 128, 128], 0, models.Role.INPUT, None],
        [models.DType.FLOAT32, [12, 128, 128], 0, models.Role.INTERNAL, None],
    ]
    single = models.WireSequenceLayer(op="Softmax", since=13, attrs=axis, in_=[0], out=[1])
    bulk = models.BulkRequest(
        items=[models.BulkItem(layers=[0])],
        layers=[models.WireSequence(layers=[single], values=values, outputs=[1])],
    )
    (item,) = generated.ask("predictions.predict_bulk", body=bulk).items
    assert item.latency_us == pytest.approx(answer.layers[0].latency_us)


def test_a_graph_survives_the_clients_classes(generated: _Generated) -> None:
    """The document's example graph is unchanged after parsing and serialising."""
    assert generated.models.WireGraph.from_dict(EXAMPLE_GRAPH).to_dict() == EXAMPLE_GRAPH


def test_many_are_priced(generated: _Generated, light_models: Mapping[str, Path]) -> None:
    """A bulk request mixes listed layers, known layers, a graph and an item with an error."""
    models = generated.models
    graph = models.WireGraph.from_dict(EXAMPLE_GRAPH)
    file = generated.types.File(io.BytesIO(light_models["squeezenet"].read_bytes()))
    measured = generated.ask("predictions.predict", body=file).layers[0]
    known = models.KnownSequence(signature=measured.signature)
    asked = models.BulkRequest(
        layers=[models.WireSequence.from_dict(json.loads(elementwise(1, 64, 28, 28).text)), known],
        items=[
            models.BulkItem(name="listed", layers=[0, 0]), models.BulkItem(name="graph", graph=graph),
            models.BulkItem(name="bad", layers=[7]), models.BulkItem(name="known", layers=[1]),
        ],
    )  # fmt: skip
    answer = generated.ask("predictions.predict_bulk", body=asked)
    assert isinstance(answer, models.BulkAnswer)
    listed, whole, bad, by_signature = answer.items
    assert isinstance(listed, models.BulkItemAnswer)
    assert isinstance(listed.coverage, models.Coverage)
    assert listed.interval_us[0] <= listed.latency_us <= listed.interval_us[1]
    assert whole.latency_us > 0
    assert "names the layer 7" in bad.error
    assert isinstance(bad.latency_us, generated.types.Unset)
    assert by_signature.coverage.measured == 1


def test_models_are_sent_ranked_listed_and_deleted(generated: _Generated, convolution: ModelProto) -> None:
    """Model files are uploaded unchanged, ranked, listed and deleted."""
    models, types = generated.models, generated.types
    file = types.File(io.BytesIO(convolution.SerializeToString()))
    digest = generated.ask("models.send_model", body=file).digest
    file = types.File(io.BytesIO(convolution.SerializeToString()))
    answer = generated.ask("predictions.predict", body=file, batch=1, name="mine")
    assert (answer.digest, answer.model) == (digest, "mine")
    page = generated.ask("models.list_models", limit=1000)
    assert page.next_ is None
    assert digest in {model.digest for model in page.models}
    assert generated.ask("models.get_model", digest).kind is models.ModelAnswerKind.ONNX
    assert generated.detailed("models.get_model_head", digest).status_code == 200
    first = generated.detailed("models.get_prediction", digest, batch=1)
    again = generated.detailed("models.get_prediction", digest, batch=1, if_none_match=first.headers["etag"])
    assert (first.parsed.latency_us, again.status_code) == (answer.latency_us, 304)
    rank = models.RankRequest(models=[models.RankModel(model=digest, batch=1)], slo_us=1e9)
    ranked = generated.ask("predictions.rank", body=rank)
    assert isinstance(ranked.best, models.Ranked)
    assert ranked.best.meets
    asked = models.CapacityRequest(model=digest, slo_us=1e9, max_batch=2, arrivals_per_s=1.0)
    planned = generated.ask("predictions.capacity", body=asked)
    assert isinstance(planned, models.CapacityAnswer)
    assert (planned.digest, planned.replicas, planned.result.meets) == (digest, 1, True)
    assert generated.detailed("models.delete_model", digest).status_code == 204
    assert generated.detailed("models.get_model_head", digest).status_code == 404


def test_observations_are_stored_listed_and_deleted(generated: _Generated) -> None:
    """An observation with a key is stored once, listed and deleted."""
    models = generated.models
    graph = models.WireGraph.from_dict(EXAMPLE_GRAPH)
    asked = models.ObservationRequest(graph=graph, latency_us=2500.0, runs=10, system=SYSTEM.name)
    stored = generated.ask("observations.create_observation", body=asked, idempotency_key="one")
    assert isinstance(stored, models.ObservationAnswer)
    assert generated.ask("observations.create_observation", body=asked, idempotency_key="one").id == stored.id
    page = generated.ask("observations.list_observations", system=SYSTEM.name)
    assert [one.id for one in page.observations] == [stored.id]
    assert generated.detailed("observations.delete_observation", stored.id).status_code == 204
    generated.ask("observations.create_observation", body=asked)
    assert generated.ask("observations.delete_observations").deleted == 1


def test_what_is_known_is_listed(generated: _Generated) -> None:
    """Systems, regressors and health are listed."""
    models = generated.models
    (system,) = generated.ask("systems.list_systems").systems
    assert isinstance(system.drift, models.Drift)
    assert generated.ask("systems.get_system", system.name).to_dict() == system.to_dict()
    regressors = generated.ask("systems.list_regressors", system=system.name).regressors
    assert [one.version for one in regressors if one.champion] == [system.champion.version]
    health = generated.ask("health.get_readiness", client=generated.anonymous)
    assert (health.status, health.systems) == (models.HealthStatus.OK, 1)


def test_errors_are_parsed(generated: _Generated) -> None:
    """Every error is parsed as a problem document."""
    models = generated.models
    unknown = generated.detailed("systems.get_system", "never")
    for problem, status, kind in (
        (unknown.parsed, 404, "unknown-system"),
        (generated.ask("systems.list_systems", client=generated.anonymous), 401, "unauthorized"),
        (generated.ask("health.get_metrics"), 403, "forbidden"),
        (generated.ask("predictions.predict", body=models.PredictRequest(model="sha256:0")), 422, "invalid-request"),
        (
            generated.ask("predictions.predict", body=models.PredictRequest(model=f"sha256:{'0' * 64}")),
            404,
            "unknown-model",
        ),
        (generated.ask("predictions.predict"), 415, "unsupported-media-type"),
    ):
        assert isinstance(problem, models.ProblemAnswer)
        assert (problem.status, problem.type_) == (status, f"urn:costmodel:problem:{kind}")
    assert unknown.parsed.request_id == unknown.headers["x-request-id"]
