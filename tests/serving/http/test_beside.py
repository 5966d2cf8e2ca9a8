"""Predictions and rankings of models beside others over HTTP."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from costmodel.estimate.interference import Interference
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.served import FILE, Serve
from tests.synthetic import SYSTEM, copied

LAW = Interference(0.5, 60.0, 0.5, memory=0.9, computing=0.0)


def _digest(client: TestClient, path: Path) -> str:
    return str(client.post("/v1/models", content=path.read_bytes(), headers=FILE).json()["digest"])


@pytest.fixture
def measured_home(trained: Home, tmp_path: Path) -> Home:
    """A home in which the interference of the synthetic system is known."""
    home = copied(trained, tmp_path / "measured")
    store = Store(home.store_url)
    system = store.system(SYSTEM.name)
    store.put_system(replace(system, capabilities={**system.capabilities, **LAW.capabilities()}))
    store.close()
    return home


def test_predictions_and_rankings_beside_another_model(
    serve: Serve, measured_home: Home, light_models: Mapping[str, Path]
) -> None:
    """Both take the latency beside the other model, which is named by its digest."""
    client = serve(measured_home)
    vgg, zfnet = (_digest(client, light_models[name]) for name in ("vgg19", "zfnet512"))
    asked = {"model": vgg, "system": SYSTEM.name}
    alone = client.post("/v1/predict", json=asked).json()
    neighbour = {"model": zfnet, "name": "zfnet"}
    beside = client.post("/v1/predict", json={**asked, "beside": [neighbour]}).json()
    assert (alone["beside"], alone["slowdown"]) == ([], 1.0)
    assert beside["beside"] == ["zfnet"]
    assert beside["slowdown"] > 1.05
    assert beside["latency_us"] == pytest.approx(beside["slowdown"] * alone["latency_us"])
    ranked = client.post("/v1/rank", json={"models": [{"model": vgg, "beside": [neighbour]}, {"model": vgg}]}).json()
    assert [one["latency_us"] for one in ranked["ranking"]] == pytest.approx([
        alone["latency_us"], beside["latency_us"]
    ])  # fmt: skip


def test_what_is_unknown_is_said(client: TestClient, light_models: Mapping[str, Path]) -> None:
    """Without measured interference there is no answer; a model that was not sent is named."""
    digest = _digest(client, light_models["squeezenet"])
    asked = {"model": digest, "system": SYSTEM.name}
    refused = client.post("/v1/predict", json={**asked, "beside": [{"model": digest}]})
    assert refused.status_code == 404
    assert "run `costmodel interference`" in refused.json()["detail"]
    unknown = "sha256:" + "0" * 64
    missing = client.post("/v1/predict", json={**asked, "beside": [{"model": unknown}]})
    assert missing.status_code == 404
    assert unknown in missing.json()["detail"]
    many = client.post("/v1/predict", json={**asked, "beside": [{"model": digest}] * 9})
    assert many.status_code == 422
