"""POST /v1/predict/bulk: many models in one request, each with its own answer or error."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel import CostModel
from costmodel.onnx_io.model import read_model
from costmodel.paths import Home
from costmodel.runtimes.base import get_runtime
from tests.fakes import elementwise
from tests.served import FILE


def _asked(client: TestClient, **asked: object) -> list[dict[str, object]]:
    response = client.post("/v1/predict/bulk", json=asked)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["failed"] == sum(item["error"] is not None if "error" in item else False for item in found["items"])
    items: list[dict[str, object]] = found["items"]
    return items


def test_models_of_listed_layers(
    client: TestClient, served_home: Home, light_models: Mapping[str, Path], system: str
) -> None:
    """Models refer to layers that are listed once, in full or by signature, and cost the same as elsewhere.

    All but the same: layers do not tell that some of the model's weights are equal, of which the runtime keeps one.
    """
    cost_model = CostModel.load(system, home=served_home)
    cut = cost_model.decompose(read_model(light_models["squeezenet"]))
    unique = list(cut.unique)
    layers = [
        {"signature": signature} if place % 2 else json.loads(cut.unique[signature].text)
        for place, signature in enumerate(unique)
    ]
    network = [unique.index(segment.sequence.signature) for segment in cut.segments]
    one, two = _asked(client, layers=layers, items=[{"name": "whole", "layers": network}, {"layers": network[:5]}])
    expected = cost_model.predict(light_models["squeezenet"])
    assert one["name"] == "whole"
    assert one["latency_us"] == pytest.approx(expected.latency_us, rel=0.01)
    assert one["interval_us"] == pytest.approx(list(expected.interval_us), rel=0.01)
    assert one["coverage"] == pytest.approx(expected.coverage)
    assert two["name"] == "item 1"
    assert two["latency_us"] < one["latency_us"]  # type: ignore[operator]


def test_a_layer_of_which_weights_are_missing_costs_its_models_an_answer(client: TestClient) -> None:
    """A layer that cannot be priced without its weights is an error of the models that contain it only."""
    good = json.loads(elementwise(1, 64, 28, 28).text)
    table = {
        "layers": [{"op": "EmbedLayerNormalization", "domain": "com.microsoft", "since": 1, "in": [0, 1], "out": [2]}],
        "values": [["int32", [1, 8], False, "input", None], ["float32", [8, 8], False, "constant", None],
                   ["float32", [1, 8, 8], False, "internal", None]],
        "outputs": [2],
    }  # fmt: skip
    bad = {**good, **table, "layers": [{**good["layers"][0], **table["layers"][0]}]}  # type: ignore[index]
    one, other = _asked(client, layers=[good, bad], items=[{"layers": [0]}, {"layers": [0, 1]}])
    assert one["latency_us"] > 0  # type: ignore[operator]
    assert "layer 1" in str(other["error"])


def test_each_item_has_its_own_error(client: TestClient) -> None:
    """An item's error leaves the other answers intact and in order."""
    good = json.loads(elementwise(1, 64, 28, 28).text)
    broken = {**good, "outputs": [7]}
    strange = {**good, "layers": [{**good["layers"][0], "op": "Conv", "attrs": {"strides": {"s": "x"}}}]}
    found = _asked(
        client,
        layers=[good, broken, {"signature": "0" * 32}, {"signature": "short"}, strange, {"op": "Relu"}],
        items=[
            {"layers": [0]}, {"layers": [0, 1]}, {"layers": [2]}, {"layers": [3]}, {"layers": [9]}, {"layers": []},
            {"name": "none"}, {"layers": [0], "model": "sha256:" + "0" * 64}, {"model": "sha256:" + "0" * 64},
            {"layers": ["0"]}, {"layers": [5]}, {"layers": [-1]}, {"layers": [0, 0]},
        ],
    )  # fmt: skip
    errors = [item.get("error") for item in found]
    assert [error is None for error in errors] == [True, *[False] * 11, True]
    for place, words in (
        (1, "layer 1 makes no sense"),
        (2, "layer 2 is not known here: send the layer itself"),
        (3, "layer 3 is no layer sequence (signature: String should match"),
        (4, "names the layer 9, and 6 are listed"),
        (5, "has no layers"),
        (6, "give one of layers, model and graph"),
        (7, "give one of layers, model and graph"),
        (8, "is not known here: send its file"),
        (9, "layers.0"),
        (10, "layer 5 is no layer sequence"),
        (11, "greater than or equal to 0"),
    ):
        assert words in str(errors[place]), errors[place]
    assert found[12]["latency_us"] > found[0]["latency_us"]  # type: ignore[operator]


def test_models_and_graphs_among_them(client: TestClient, convolution: ModelProto) -> None:
    """Items may be hashes of models sent before, or graphs."""
    sent = client.post("/v1/predict", content=convolution.SerializeToString(), headers=FILE).json()
    graph = json.loads(json.dumps(get_runtime().lower(read_model(convolution), "all").to_dict()))
    by_hash, by_graph = _asked(client, items=[{"model": sent["digest"]}, {"graph": graph}])
    assert by_hash["latency_us"] == by_graph["latency_us"] == sent["latency_us"]
    assert by_hash["interval_us"] == sent["interval_us"]


def test_too_many_are_refused_as_a_whole(serve, convolution: ModelProto) -> None:  # type: ignore[no-untyped-def]
    """Too many items are refused with the accepted number."""
    client = serve(max_items=3)
    response = client.post("/v1/predict/bulk", json={"items": [{"layers": [0]}] * 4})
    assert response.status_code == 413
    assert response.json()["detail"] == "4 items are more than 3: ask in several requests"
