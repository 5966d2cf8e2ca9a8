"""Ranking, observations, systems, models, health and metrics over HTTP."""

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient

from costmodel.paths import Home
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.store.store import Store
from tests.served import FILE, Serve
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, fill


@pytest.fixture(scope="module")
def two_systems(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a second system that has the same measurements and no regressor."""
    from dataclasses import replace

    home = copied(trained, tmp_path_factory.mktemp("two") / "home")
    models = corpus(home.cache)
    fill(
        Store(home.store_url), [models[name] for name in MEASURED], system=replace(SYSTEM, name="c5.xlarge"), samples=0
    )
    return home


def test_systems_are_ranked_against_an_objective(
    serve: Serve, two_systems: Home, light_models: Mapping[str, Path]
) -> None:
    """Systems that meet the objective come first, by price; those without an answer are listed with the reason."""
    client = serve(two_systems)
    sent = client.post(
        "/v1/predict?system=made.up", content=light_models["squeezenet"].read_bytes(), headers=FILE
    ).json()
    unknown = client.post(
        "/v1/predict?system=made.up", content=light_models["resnet50"].read_bytes(), headers=FILE
    ).json()
    asked = {
        "models": [{"model": sent["digest"], "name": "squeezenet"}, {"model": unknown["digest"], "name": "resnet50"}],
        "slo_us": sent["quantiles_us"]["p90"] * 1.01,
        "quantile": "p90",
    }
    answer = client.post("/v1/rank", json=asked).json()
    # c5.xlarge has a price in the catalogue, and without a regressor no cost of unmeasured layers.
    assert answer["best"]["system"] == "c5.xlarge"
    assert answer["best"]["usd_per_million"] == pytest.approx(0.17 / 3600 * answer["best"]["slo_latency_us"])
    assert [one["meets"] for one in answer["ranking"]] == [True, True, False]
    assert answer["ranking"][-1]["model"] == "resnet50"
    assert answer["ranking"][-1]["exceeds_by_us"] > 0
    (failed,) = answer["failed"]
    assert (failed["model"], failed["system"]) == ("resnet50", "c5.xlarge")
    assert "layers without a cost" in failed["error"]
    prices = {"made.up": 0.01, "c5.xlarge": 9.0}
    assert client.post("/v1/rank", json=asked | {"usd_per_hour": prices}).json()["best"]["system"] == "made.up"
    tight = client.post("/v1/rank", json=asked | {"memory_bytes": sent["peak_memory_bytes"]}).json()
    assert tight["memory_bytes"] == sent["peak_memory_bytes"]
    assert [one["fits"] for one in tight["ranking"]] == [True, True, False]
    busy = client.post("/v1/rank", json=asked | {"arrivals_per_s": 50.0, "quantile": "p99", "slo_us": 1e7}).json()
    assert busy["best"]["replicas"] >= 1
    assert client.post("/v1/rank", json=asked | {"arrivals_per_s": 50.0, "quantile": "quiet"}).status_code == 422
    only = client.post("/v1/rank", json=asked | {"systems": ["made.up"]}).json()
    assert {one["system"] for one in only["ranking"]} == {"made.up"}
    several = client.post("/v1/predict", json={"model": sent["digest"]})
    assert several.status_code == 404
    assert several.json()["detail"] == "name a system: c5.xlarge, made.up"


def test_what_a_ranking_has_no_time_for_is_reported(serve: Serve, system: str) -> None:
    """Models that are not reached in the time of a request are listed as failed; a single one is refused."""
    client = serve(request_seconds=1e-9)
    models = [{"graph": EXAMPLE_GRAPH, "name": name} for name in ("first", "second")]
    answer = client.post("/v1/rank", json={"models": models, "arrivals_per_s": 5.0, "slo_us": 1e6}).json()
    assert (answer["best"], answer["ranking"]) == (None, [])
    assert [(one["model"], one["system"]) for one in answer["failed"]] == [("first", system), ("second", system)]
    assert all("time limit" in one["error"] for one in answer["failed"])
    alone = client.post("/v1/rank", json={"models": models[:1]})
    assert (alone.status_code, alone.json()["type"].rpartition(":")[2]) == (422, "too-much")


def test_a_file_is_ranked(client: TestClient, convolution: ModelProto, system: str) -> None:
    """A file is ranked on all systems, by latency without an objective."""
    answer = client.post("/v1/rank?batch=4", content=convolution.SerializeToString(), headers=FILE).json()
    assert answer["best"]["system"] == system
    assert answer["best"]["meets"] is None


def test_observations_are_kept_beside_their_prediction(serve: Serve, convolution: ModelProto) -> None:
    """Observations are stored with their prediction and give the drift, in answers and in metrics."""
    client = serve()
    sent = client.post("/v1/predict", content=convolution.SerializeToString(), headers=FILE).json()
    asked = {"model": sent["digest"], "name": "small", "latency_us": 2 * sent["quantiles_us"]["p50"], "runs": 50}
    assert client.get(f"/v1/systems/{SYSTEM.name}").json()["drift"]["ratio"] is None
    for _ in range(10):
        stored = client.post("/v1/observations", json=asked)
        assert stored.status_code == 201, stored.text
    answer = stored.json()
    assert answer["ratio"] == pytest.approx(2)
    assert answer["predicted_us"] == pytest.approx(sent["quantiles_us"]["p50"])
    assert not answer["covered"]
    assert datetime.fromisoformat(answer["observed_at"]).tzinfo is not None
    client.app.state.costmodel.refresh()  # type: ignore[attr-defined]
    drift = client.get(f"/v1/systems/{SYSTEM.name}").json()["drift"]
    assert (drift["observations"], drift["models"], drift["owners"], drift["drifted"]) == (10, 1, 1, True)
    assert drift["ratio"] == pytest.approx(2)
    assert 'costmodel_drift_ratio{system="made.up"} 2.0' in client.get("/metrics").text
    wrong = client.post("/v1/observations", json=asked | {"latency_us": -1})
    assert wrong.status_code == 422


def test_a_new_measurement_changes_no_observation(serve: Serve) -> None:
    """The prediction stored with an observation does not change with new measurements."""
    client = serve()
    asked = {"graph": EXAMPLE_GRAPH, "latency_us": 1000.0, "observed_at": "2026-01-01T00:00:00Z"}
    answer = client.post("/v1/observations", json=asked).json()
    assert answer["observed_at"] == "2026-01-01T00:00:00Z"
    assert answer["version"] != "none"
    assert client.post("/v1/observations", json=asked | {"observed_at": None}).status_code == 201
    for moment in ("2026-02-30T00:00:00Z", "9999-01-01T00:00:00Z", "2026-01-01", "\u0000", 5):
        assert client.post("/v1/observations", json=asked | {"observed_at": moment}).status_code == 422


def test_an_observation_is_safely_sent_again_later(serve: Serve) -> None:
    """An observation without a time that is sent again with its key in another second is the one that is stored."""
    client = serve()
    asked = {"graph": EXAMPLE_GRAPH, "latency_us": 1000.0}
    first = client.post("/v1/observations", json=asked, headers={"Idempotency-Key": "mine"})
    time.sleep(1.1)
    again = client.post("/v1/observations", json=asked, headers={"Idempotency-Key": "mine"})
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert first.json() == again.json()


def test_systems_and_regressors_are_listed(client: TestClient, system: str) -> None:
    """Systems are listed with their champions and their accuracy."""
    (listed,) = client.get("/v1/systems").json()["systems"]
    assert listed["name"] == system
    assert listed["measurements"] > 100
    assert listed["accuracy"]["mape"] > 0
    assert client.get(f"/v1/systems/{system}").json() == listed
    found = client.get("/v1/regressors").json()["regressors"]
    (champion,) = (one for one in found if one["champion"])
    assert champion["version"] == listed["champion"]["version"]
    assert champion["age_s"] >= 0
    assert client.get(f"/v1/regressors?system={system}").json()["regressors"]
    assert not client.get("/v1/regressors?system=other").json()["regressors"]
    assert client.get("/v1/systems/nowhere").status_code == 404


def test_it_says_whether_it_lives_and_can_answer(client: TestClient, system: str) -> None:
    """Liveness and readiness have Kubernetes' endpoints."""
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json() == {"status": "ok", "systems": 1, "warnings": []}
    assert client.head("/readyz").status_code == 200


def test_an_empty_store_is_ready(serve: Serve, tmp_path: Path) -> None:
    """An empty store is ready, and the answer says that measurements are missing."""
    (tmp_path / "empty" / "data").mkdir(parents=True)
    client = serve(Home(tmp_path / "empty"))
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert "nothing is measured yet" in ready.json()["warnings"][0]
    response = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH})
    assert (response.status_code, response.json()["detail"]) == (404, "name a system: none is measured yet")
    assert client.get("/v1/systems").json() == {"systems": [], "next": None}


def test_a_store_that_is_down_at_the_start_is_waited_for(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """Without its store the service is live but not ready, and becomes ready once the store is reachable."""
    home = copied(trained, tmp_path / "home")
    store = home.data / "costmodel.db"
    away = store.rename(tmp_path / "away.db")
    store.mkdir()  # a folder, which cannot be opened as a store
    client = serve(home, refresh_seconds=0.02)
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    refused = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH})
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:costmodel:problem:store-unavailable")
    assert refused.headers["retry-after"]
    assert client.post("/v1/predict", content=b"a file", headers=FILE).status_code == 503
    assert client.get("/v1/systems").status_code == 503
    store.rmdir()
    away.rename(store)
    client.app.state.costmodel.refresh()  # type: ignore[attr-defined]
    assert client.get("/readyz").status_code == 200
    assert client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH}).status_code == 200


def test_metrics_tell_what_happened(client: TestClient) -> None:
    """Request metrics are labelled by route, so that system names do not multiply them."""
    client.get("/v1/systems/nowhere")
    text = client.get("/metrics").text
    assert 'costmodel_http_requests_total{method="GET",path="/v1/systems/{name}",status="404"}' in text
    assert "costmodel_http_request_duration_seconds_bucket" in text


def test_metrics_tell_where_time_went_and_what_runs(client: TestClient) -> None:
    """Metrics cover waiting, working and reading times, cache hits and the release."""
    for _ in range(2):
        client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH, "name": "timed"})
    text = client.get("/metrics").text
    for name in ("queue", "engine", "reader"):
        assert f"costmodel_{name}_duration_seconds_count" in text
    assert "costmodel_answer_cache_hits_total" in text
    assert 'costmodel_build_info{onnxruntime="' in text
    assert "costmodel_store_up 1.0" in text


def test_unknown_paths_and_methods_are_problems_too(client: TestClient) -> None:
    """Unknown paths and methods are problem documents that say where the allowed ones are listed."""
    assert client.get("/v1/nothing").json()["detail"].endswith("/openapi.json lists what is")
    response = client.get("/v1/predict")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert client.put("/v1/models").headers["allow"] == "GET, HEAD, POST"


def test_what_is_compared_is_priced_as_a_whole(client: TestClient) -> None:
    """Ranking and observations refuse partial estimates, which would be too low."""
    graph = {"graph": EXAMPLE_GRAPH, "partial": True}
    for path, body in (("/v1/rank", {"models": [graph]}), ("/v1/observations", {**graph, "latency_us": 5.0})):
        response = client.post(path, json=body)
        assert response.status_code == 422
        assert "partial" in response.json()["detail"]


def test_capacity_is_planned(client: TestClient, convolution: ModelProto, system: str) -> None:
    """A graph, a file and an uploaded model get the traffic that they carry; what contradicts itself is refused."""
    asked = {"graph": EXAMPLE_GRAPH, "system": system, "slo_us": 50_000, "arrivals_per_s": 120, "usd_per_hour": 0.36}
    answer = client.post("/v1/capacity", json=asked).json()
    assert (answer["system"], answer["objective"], answer["batch_policy"]) == (system, "p99", "none")
    assert answer["result"]["meets"] is True
    assert answer["usd_per_million"] == pytest.approx(answer["replicas"] * 0.36 / 3600 / 120 * 1e6)
    refused = client.post("/v1/capacity", json=asked | {"max_batch": 8})
    assert (refused.status_code, "send the ONNX file" in refused.json()["detail"]) == (422, True)
    wrong = client.post("/v1/capacity", json=asked | {"scenario": "multi-stream"})
    assert (wrong.status_code, "has no rate of arrivals" in wrong.json()["detail"]) == (422, True)
    content = convolution.SerializeToString()
    sent = client.post("/v1/capacity?slo_us=50000&max_batch=2&max_wait_us=1000", content=content, headers=FILE).json()
    assert [one["batch_size"] for one in sent["latencies"]] == [1, 2]
    again = client.post(
        "/v1/capacity", json={"model": sent["digest"], "slo_us": 50_000, "max_batch": 2, "max_wait_us": 1000}
    )
    assert again.json() == sent
    assert client.post("/v1/capacity?max_batch=0&slo_us=5", content=content, headers=FILE).status_code == 422
    assert "needs a latency objective" in client.post("/v1/capacity", content=content, headers=FILE).json()["detail"]


def test_the_value_of_an_input_decides_what_is_carried(client: TestClient, switched: ModelProto, system: str) -> None:
    """A value chooses the branch whose latencies count, in the query string and in the body."""
    asked = {"system": system, "slo_us": 50_000, "max_batch": 2, "max_wait_us": 1000}
    small, large = (
        client.post(
            "/v1/capacity",
            params=asked | {"value": f"large={flag}"},
            content=switched.SerializeToString(),
            headers=FILE,
        ).json()
        for flag in (0, 1)
    )
    assert [one["batch_size"] for one in small["latencies"]] == [1, 2]
    assert small["highest_rate_per_s"] > large["highest_rate_per_s"]
    for flag, answer in ((False, small), (1, large)):
        known = asked | {"model": answer["digest"], "values": {"large": flag}}
        assert client.post("/v1/capacity", json=known).json() == answer
    refused = client.post("/v1/capacity", json=asked | {"model": small["digest"], "values": {"large": 2}})
    assert (refused.status_code, "cannot be 2" in refused.json()["detail"]) == (422, True)
