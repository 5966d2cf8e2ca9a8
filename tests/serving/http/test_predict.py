"""POST /v1/predict gives the answer of the command line over HTTP."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import onnx
import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel import CostModel
from costmodel.onnx_io.anonymisation import anonymise
from costmodel.onnx_io.model import read_model, read_without_weights
from costmodel.paths import Home
from costmodel.runtimes.base import get_runtime
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.wire.problems import MEDIA_TYPE
from costmodel.training.artefact import load_bundle, promote, save_bundle
from tests.served import FILE, Serve
from tests.synthetic import SYSTEM, copied


def _sent(client: TestClient, content: bytes, **query: object) -> dict[str, object]:
    response = client.post("/v1/predict", params=query, content=content, headers=FILE)
    assert response.status_code == 200, response.text
    found: dict[str, object] = response.json()
    return found


def test_a_file_costs_what_it_costs_in_process(
    client: TestClient, served_home: Home, light_models: Mapping[str, Path], system: str
) -> None:
    """The answer is the in-process one with the model's digest; that and the hash of the sent file find the model."""
    content = light_models["resnet50"].read_bytes()
    answer = _sent(client, content, system=system, name="light_resnet50")
    expected = CostModel.load(system, home=served_home).predict(light_models["resnet50"]).to_dict()
    digest = answer.pop("digest")
    assert answer == json.loads(json.dumps(expected))
    sent_as = f"sha256:{hashlib.sha256(content).hexdigest()}"
    for known_as in (digest, sent_as):
        again = client.post("/v1/predict", json={"model": known_as, "name": "light_resnet50"}).json()
        assert again == answer | {"digest": digest}


def test_one_model_has_one_digest_whoever_sends_it(client: TestClient, light_models: Mapping[str, Path]) -> None:
    """A model has the same hash with or without weights, names and documentation."""
    proto = onnx.load(light_models["squeezenet"])
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.doc_string, other.producer_name, other.graph.name = "mine", "me", "other"
    for node in other.graph.node:
        node.doc_string = "trained again"
    bare = anonymise(ModelProto.FromString(read_without_weights(light_models["squeezenet"]))).content
    sent = [_sent(client, content) for content in (proto.SerializeToString(), other.SerializeToString(), bare)]
    assert len({answer["digest"] for answer in sent}) == 1
    assert len({answer["latency_us"] for answer in sent}) == 1
    assert sent[2]["digest"] == f"sha256:{hashlib.sha256(bare).hexdigest()}"


def test_a_model_is_sent_once(client: TestClient, convolution: ModelProto, system: str) -> None:
    """A model that was sent is then priced by its hash, also with other input shapes."""
    content = convolution.SerializeToString()
    first = _sent(client, content, system=system)
    again = client.post("/v1/predict", json={"model": first["digest"], "system": system}).json()
    assert again == first
    larger = client.post("/v1/predict", json={"model": first["digest"], "system": system, "batch": 8}).json()
    assert larger["latency_us"] > first["latency_us"]
    assert larger == _sent(client, content, system=system, batch=8)
    shaped = {"model": first["digest"], "system": system, "shapes": {"x": [8, 16, 28, 28]}}
    assert client.post("/v1/predict", json=shaped).json()["latency_us"] == larger["latency_us"]
    assert _sent(client, content, system=system, shape="x=8,16,28,28")["latency_us"] == larger["latency_us"]


def test_the_value_of_an_input(client: TestClient, branches: ModelProto, system: str) -> None:
    """A value chooses the branch, in the query string and in the body; one that cannot be is refused."""
    content = branches.SerializeToString()
    asked = {"system": system, "measured": False, "partial": True}
    cached, whole = (_sent(client, content, **asked, value=f"cached={flag}") for flag in (1, 0))
    operators = [[layer["op_type"] for layer in answer["layers"]] for answer in (cached, whole)]
    assert operators == [["Tanh"], ["MatMul", "Tanh"]]
    known = asked | {"model": cached["digest"]}
    for flag, answer in ((True, cached), (1, cached), (0.0, whole)):
        assert client.post("/v1/predict", json=known | {"values": {"cached": flag}}).json() == answer
    for wrong in ({"cached": 2}, {"cached": "x"}, {"cached": 1e13}, {"": 1}, {"other": 1}):
        assert client.post("/v1/predict", json=known | {"values": wrong}).status_code == 422
    refused = client.post(
        "/v1/predict", content=content, params={"value": "cached"}, headers={"content-type": "application/octet-stream"}
    )
    assert (refused.status_code, refused.json()["detail"][:6]) == (422, "value:")


def test_names_and_dimensions_of_source_weights_are_bounded(client: TestClient, system: str) -> None:
    """A graph may say how long the names of its source's weights are; absurd labels are refused or do no harm."""

    def asked(labels: object) -> httpx.Response:
        weights = {"stored": {"w": 4096}, "folded": {}, "dropped": ["nobody"], "labels": labels}
        graph = EXAMPLE_GRAPH | {"source_weights": weights}
        return client.post("/v1/predict", json={"graph": graph, "system": system, "measured": False})

    for labels in ({}, {"w": [40, 2]}, {"w": [100_000, 1000]}, {"w": [0, 0], "nobody": [5, 2]}):
        assert asked(labels).json()["peak_memory_bytes"] > 0, labels
    for labels in ({"w": [-1, 2]}, {"w": [40]}, {"w": [40, 1001]}, {"w": [100_001, 2]}, {"w": ["a", 2]}, [1]):
        assert asked(labels).status_code == 422


def test_a_graph_needs_no_file(client: TestClient, convolution: ModelProto, system: str) -> None:
    """A graph from lowering costs what the model costs."""
    graph = get_runtime().lower(read_model(convolution), "all").to_dict()
    response = client.post("/v1/predict", json={"graph": json.loads(json.dumps(graph)), "system": system})
    assert response.status_code == 200, response.text
    answer = response.json()
    sent = _sent(client, convolution.SerializeToString(), system=system)
    assert answer["latency_us"] == sent["latency_us"]
    assert [layer["signature"] for layer in answer["layers"]] == [layer["signature"] for layer in sent["layers"]]
    again = client.post("/v1/predict", json={"model": answer["digest"], "system": system})
    assert again.json() == answer
    refused = client.post("/v1/predict", json={"model": answer["digest"], "system": system, "batch": 2})
    assert refused.status_code == 422
    assert "leave out batch, shapes and values" in refused.json()["detail"]


def test_options_do_what_they_do_elsewhere(client: TestClient, light_models: Mapping[str, Path], system: str) -> None:
    """Granularity, composition and ignoring measurements work as on the command line."""
    content = light_models["squeezenet"].read_bytes()
    plain = _sent(client, content, system=system)
    assert plain["coverage"] == {"measured": 1.0, "predicted": 0.0, "extrapolated": 0.0}
    coarse = _sent(client, content, system=system, granularity=3)
    assert coarse["granularity"] == 3
    assert len(coarse["layers"]) < len(plain["layers"])  # type: ignore[arg-type]
    parallel = _sent(client, content, system=system, composition="parallel")
    assert parallel["latency_us"] < plain["latency_us"]  # type: ignore[operator]
    predicted = _sent(client, content, system=system, measured=False)
    assert predicted["coverage"]["measured"] == 0  # type: ignore[index]


def test_the_only_system_need_not_be_named(client: TestClient, convolution: ModelProto, system: str) -> None:
    """With one system, the request need not name it."""
    assert _sent(client, convolution.SerializeToString())["system"] == system


def test_an_answer_that_is_known_is_not_sent_again(client: TestClient, convolution: ModelProto, system: str) -> None:
    """The ETag follows the answer: a known answer gets 304, a changed one is sent."""
    digest = _sent(client, convolution.SerializeToString(), system=system)["digest"]
    asked = {"model": digest, "system": system}
    first = client.post("/v1/predict", json=asked)
    tag = first.headers["etag"]
    assert client.post("/v1/predict", json=asked, headers={"if-none-match": tag}).status_code == 200
    path = f"/v1/models/{digest}/prediction"
    known = client.get(path, headers={"if-none-match": f'"other", {tag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    assert client.get(path).json() == first.json()
    other = client.get(f"{path}?batch=2", headers={"if-none-match": tag})
    assert (other.status_code, other.headers["etag"] == tag) == (200, False)


def test_a_version_can_be_pinned(serve: Serve, trained: Home, tmp_path: Path, convolution: ModelProto) -> None:
    """A request may select a regressor version that is no longer champion; an unknown version is named."""
    home = copied(trained, tmp_path / "home")
    champion = next(path for path in (home.bundles / SYSTEM.name).iterdir() if path.is_dir())
    shifted = load_bundle(champion)
    from dataclasses import replace

    save_bundle(home.bundles, replace(shifted, version="other"))
    promote(home.bundles, SYSTEM.name, "other")
    client = serve(home)
    content = convolution.SerializeToString()
    assert _sent(client, content)["predictor"]["version"] == "other"  # type: ignore[index]
    assert _sent(client, content, version=champion.name)["predictor"]["version"] == champion.name  # type: ignore[index]
    missing = client.post("/v1/predict?version=never", content=content, headers=FILE)
    assert (missing.status_code, missing.json()["title"]) == (404, "There is no such regressor")
    for escape in ("../../etc", "%2e%2e", "."):
        assert client.post(f"/v1/predict?version={escape}", content=content, headers=FILE).status_code in (404, 422)


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({"model": "sha256:" + "0" * 64}, 404, "is not known here: send its file"),
        ({"model": "sha256:" + "0" * 64, "system": "elsewhere"}, 404, "nothing is measured for the system elsewhere"),
        ({"model": "latest"}, 422, "model: String should match pattern"),
        ({"model": "sha256:" + "0" * 64, "graph": None, "extra": 1}, 422, "extra: Extra inputs are not permitted"),
        ({}, 422, "give one of model and graph"),
        ({"model": "sha256:" + "0" * 64, "composition": "os:system"}, 422, "composition: String should match"),
        ({"model": "sha256:" + "0" * 64, "granularity": 0}, 422, "granularity: Input should be greater"),
        ({"graph": {"layers": []}}, 422, "graph.layers: List should have at least 1 item"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    client: TestClient, asked: Mapping[str, object], status: int, sentence: str
) -> None:
    """An error is a problem document with one sentence and the request id of the log."""
    response = client.post("/v1/predict", json=asked)
    problem = response.json()
    assert (response.status_code, problem["status"]) == (status, status)
    assert response.headers["content-type"] == MEDIA_TYPE
    assert sentence in problem["detail"]
    assert "\n" not in problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("content", "headers", "status", "sentence"),
    [
        (b"", FILE, 422, "the file is empty (0 bytes)"),
        (b"no model at all", FILE, 422, "is not an ONNX file or is truncated"),
        (b"{}", {"content-type": "text/csv"}, 415, "send an ONNX file as application/octet-stream"),
        (b"{", {"content-type": "application/json"}, 422, "Invalid JSON"),
        (b"\xff\xfe", {"content-type": "application/json"}, 422, "Invalid JSON"),
    ],
)
def test_bodies_that_are_none(
    client: TestClient, content: bytes, headers: Mapping[str, str], status: int, sentence: str
) -> None:
    """A file that is no model, and a body that is neither a file nor JSON, are refused."""
    response = client.post("/v1/predict", content=content, headers=headers)
    assert response.status_code == status
    assert sentence in response.json()["detail"]
    assert "/tmp" not in response.text


def test_the_words_are_those_of_the_command_line(client: TestClient, parse: Callable[..., ModelProto]) -> None:
    """A model with an open dimension is refused with the command line's sentence."""
    content = parse("(float[1, T] x) => (float[1, T] y) { y = Relu(x) }").SerializeToString()
    response = client.post("/v1/predict?name=mine", content=content, headers=FILE)
    assert response.status_code == 422
    assert response.json()["detail"] == (
        "mine has dimensions without a size: x axis 1 (T); give them with the option shape: --shape x=1,?"
    )


def test_layers_without_a_cost_are_named(serve: Serve, trained: Home, tmp_path: Path, convolution: ModelProto) -> None:
    """The error lists all unpriced layers, also as data; a partial answer is optional."""
    import shutil

    home = copied(trained, tmp_path / "home")
    shutil.rmtree(home.bundles)
    client = serve(home)
    response = client.post("/v1/predict", content=convolution.SerializeToString(), headers=FILE)
    assert (response.status_code, response.json()["title"]) == (422, "Layers have no cost on this system")
    assert len(response.json()["layers"]) >= 1
    partial = _sent(client, convolution.SerializeToString(), partial=True)
    assert partial["latency_us"] == 0
    assert partial["warnings"]


def test_a_graph_of_layers_that_no_runtime_makes_is_refused(client: TestClient) -> None:
    """Graphs with attributes of the wrong type, or operators without required inputs, are refused."""
    graph = {
        "layers": [{"name": "c", "op": "Conv", "in": ["x"], "out": ["y"], "attrs": {"pads": {"s": "none"}}}],
        "types": {"x": ["float32", [4, 4], False], "y": ["float32", [4, 4], False]},
        "inputs": ["x"],
        "outputs": ["y"],
    }
    response = client.post("/v1/predict", json={"graph": graph})
    assert response.status_code in (200, 422)
    if response.status_code == 422:
        assert "(Conv)" in response.json()["detail"]
