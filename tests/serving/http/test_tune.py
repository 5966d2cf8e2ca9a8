"""`POST /v1/tune`."""

from typing import Any

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from tests.served import FILE


def test_a_graph_is_tuned(client: TestClient, system: str) -> None:
    """A graph keeps its runtime and its level; its threads are chosen."""
    asked = {"graph": EXAMPLE_GRAPH, "system": system, "name": "mine", "slo_us": 1e9, "usd_per_hour": 0.36}
    answer = client.post("/v1/tune", json=asked).json()
    assert (answer["model"], answer["objective"], answer["slo"]) == ("mine", "latency", "p99")
    assert answer["best"]["system"] == system
    assert answer["best"]["setting"]["threads"] == 2
    assert answer["best"]["predicted"]["meets"] is True
    assert (answer["measurement"], answer["best"]["measured"]) == (None, None)
    assert {one["setting"]["level"] for one in answer["settings"]} == {"all"}
    assert "mine.onnx" in answer["snippet"]
    refused = client.post("/v1/tune", json=asked | {"max_batch": 8, "objective": "throughput"})
    assert (refused.status_code, "send ONNX files" in refused.json()["detail"]) == (422, True)


def test_a_file_is_tuned_for_throughput(client: TestClient, convolution: ModelProto, system: str) -> None:
    """A file and the uploaded model get the same answer, with batches, sessions and a price."""
    content = convolution.SerializeToString()
    query = f"system={system}&objective=cost&max_batch=4&usd_per_hour=0.36"
    sent = client.post(f"/v1/tune?{query}", content=content, headers=FILE)
    assert sent.status_code == 200, sent.text
    answer: dict[str, Any] = sent.json()
    assert {one["setting"]["batch"] for one in answer["settings"]} == {1, 2, 4}
    assert {one["setting"]["sessions"] for one in answer["settings"]} == {1, 2}
    assert answer["best"]["predicted"]["usd_per_million"] == pytest.approx(
        0.36 / 3600 / answer["best"]["predicted"]["throughput_per_s"] * 1e6
    )
    asked = {"model": answer["digest"], "system": system, "objective": "cost", "max_batch": 4, "usd_per_hour": 0.36}
    assert client.post("/v1/tune", json=asked).json() == answer
    int8 = client.post("/v1/tune", json=asked | {"int8": answer["digest"]}).json()
    assert {one["setting"]["precision"] for one in int8["settings"]} == {"float32", "int8"}


def test_the_value_of_an_input_decides_what_is_priced(client: TestClient, switched: ModelProto, system: str) -> None:
    """A value chooses the branch that is tuned, in the query string and in the body."""
    small, large = (
        client.post(
            "/v1/tune", params={"system": system, "value": f"large={flag}"}, content=switched.SerializeToString(),
            headers=FILE,
        ).json()
        for flag in (0, 1)
    )  # fmt: skip
    assert small["best"]["predicted"]["latency_us"] < large["best"]["predicted"]["latency_us"]
    known = {"system": system, "model": large["digest"], "values": {"large": True}}
    assert client.post("/v1/tune", json=known).json() == large


def test_what_cannot_be_answered_is_a_problem(client: TestClient, convolution: ModelProto, system: str) -> None:
    """An unknown system, a cost without a price and a wrong field are refused with a sentence."""
    asked = {"graph": EXAMPLE_GRAPH, "system": system}
    assert client.post("/v1/tune", json=asked | {"system": "nowhere"}).status_code == 404
    priceless = client.post("/v1/tune", json=asked | {"objective": "cost"})
    assert (priceless.status_code, "usd_per_hour" in priceless.json()["detail"]) == (422, True)
    assert client.post("/v1/tune", json=asked | {"measure": True}).status_code == 422
    assert client.post("/v1/tune?max_batch=0", content=convolution.SerializeToString(), headers=FILE).status_code == 422
