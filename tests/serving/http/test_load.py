"""What happens when more is asked than can be answered, and when what answers changes meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto

from costmodel.home import Home
from costmodel.serving.http.gate import Gate
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.wire.problems import Problem
from costmodel.store import Store
from costmodel.training.artefact import champion_of, load_bundle, promote, save_bundle
from tests.fakes import elementwise
from tests.served import FILE, Serve
from tests.synthetic import SYSTEM, copied, made_up_measurement


def test_work_beyond_the_queue_is_turned_away_at_once() -> None:
    """Two work, one waits, the fourth is told when to come back; the others are answered."""

    async def ask() -> list[object]:
        gate = Gate(threads=2, queue=1, queue_s=30)
        release = threading.Event()

        def work() -> str:
            release.wait()
            return "done"

        running = [asyncio.create_task(gate.run(work)) for _ in range(3)]
        while gate.waiting < 1:
            await asyncio.sleep(0.001)
        with pytest.raises(Problem) as refused:
            await gate.run(work)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "30"})
        release.set()
        found = await asyncio.gather(*running)
        gate.close()
        return list(found)

    assert asyncio.run(ask()) == ["done"] * 3


def test_nobody_waits_longer_than_the_queue_allows() -> None:
    """Then the answer is 503 too, and the place is free again."""

    async def ask() -> None:
        gate = Gate(threads=1, queue=5, queue_s=0.05)
        release = threading.Event()
        running = asyncio.create_task(gate.run(release.wait))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="more is asked than can be answered now"):
            await gate.run(lambda: None)
        assert gate.waiting == 0
        release.set()
        await running
        assert await gate.run(lambda: "again") == "again"
        gate.close()

    asyncio.run(ask())


def test_whoever_leaves_gives_the_place_back_when_the_work_is_done() -> None:
    """Not before: the processor is still busy with it."""

    async def ask() -> None:
        gate = Gate(threads=1, queue=0, queue_s=1)
        release = threading.Event()
        running = asyncio.create_task(gate.run(release.wait))
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(Problem):
            await gate.run(lambda: None)
        release.set()
        while True:
            try:
                assert await gate.run(lambda: "free") == "free"
                break
            except Problem:
                await asyncio.sleep(0.001)
        gate.close()

    asyncio.run(ask())


def test_a_new_champion_answers_without_a_restart(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """Requests that come all the while are answered, each by one of the two and never by a mixture."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=0.02)
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    first = load_bundle(path)
    # Ten times as wide: an answer of the one is told from that of the other by its interval.
    wide = replace(first.calibration, by_distance=tuple(3 * width for width in first.calibration.by_distance))
    asked = {"graph": EXAMPLE_GRAPH, "measured": False}
    before = client.post("/v1/predict", json=asked).json()
    answers = []
    stop = threading.Event()

    def keep_asking() -> None:
        while not stop.is_set():
            response = client.post("/v1/predict", json=asked)
            answers.append((response.status_code, response.json()))

    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(keep_asking) for _ in range(3)]
        for number in range(6):
            version = f"new-{number}"
            save_bundle(
                home.bundles, replace(first, version=version, calibration=wide if number % 2 else first.calibration)
            )
            promote(home.bundles, SYSTEM.name, version)
            while not any(answer["predictor"]["version"] == version for _, answer in answers[-20:]):
                if stop.wait(0.005):
                    break
        stop.set()
        for one in asking:
            one.result()
    assert {status for status, _ in answers} == {200}
    by_version: dict[str, set[tuple[float, ...]]] = {}
    for _, answer in answers:
        by_version.setdefault(answer["predictor"]["version"], set()).add(tuple(answer["interval_us"]))
    assert {f"new-{number}" for number in range(6)} <= by_version.keys()
    assert all(len(intervals) == 1 for intervals in by_version.values())
    assert by_version["new-1"] != by_version["new-0"] == {tuple(before["interval_us"])}


def test_a_champion_that_cannot_be_loaded_changes_nothing(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """The one before goes on answering, and the list of systems says why."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=60)
    before = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH}).json()
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    save_bundle(home.bundles, replace(load_bundle(path), version="damaged"))
    (home.bundles / SYSTEM.name / "damaged" / "model.onnx").write_bytes(b"none")
    promote(home.bundles, SYSTEM.name, "damaged")
    client.app.state.desk.refresh()  # type: ignore[attr-defined]
    assert client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH}).json() == before
    (warning,) = client.get(f"/v1/systems/{SYSTEM.name}").json()["warnings"]
    assert "cannot be loaded" in warning
    assert "/" not in warning
    assert client.get("/readyz").json()["warnings"]


def test_new_measurements_are_taken_over(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """Remembered answers that they make untrue are forgotten."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=60)
    new = elementwise(1, 64, 41, 41)
    import json

    asked = {"layers": [json.loads(new.text)], "items": [{"layers": [0]}]}

    def ask() -> dict[str, dict[str, float]]:
        (item,) = client.post("/v1/predict/bulk", json=asked).json()["items"]
        found: dict[str, dict[str, float]] = item
        return found

    assert ask()["coverage"]["predicted"] == 1
    Store(home.store_url).put_measurement(SYSTEM.name, made_up_measurement(new.signature, 123.0), new)
    client.app.state.desk.refresh()  # type: ignore[attr-defined]
    after = ask()
    assert after["coverage"]["measured"] == 1
    assert after["latency_us"] == pytest.approx(123.0)


def test_a_busy_service_says_when_to_come_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, convolution: ModelProto
) -> None:
    """A file that cannot be read now is refused; what is remembered is answered all the same."""
    client = serve(queue=0, readers=1)
    desk = client.app.state.desk  # type: ignore[attr-defined]
    asked = {"graph": EXAMPLE_GRAPH}
    known = client.post("/v1/predict", json=asked).json()
    release = threading.Event()
    original: Callable[..., object] = desk.service.estimate

    def slow(*given: object) -> object:
        release.wait()
        return original(*given)

    monkeypatch.setattr(desk.service, "estimate", slow)
    with ThreadPoolExecutor(2) as threads:
        content = convolution.SerializeToString()
        running = [threads.submit(client.post, f"/v1/predict?batch={n}", content=content, headers=FILE) for n in (2, 3)]
        while not desk.gate._free.locked():
            pass
        refused = client.post("/v1/predict?batch=4", content=content, headers=FILE)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert client.post("/v1/predict", json=asked).json() == known
        release.set()
        assert [one.result().status_code for one in running] == [200, 200]
    assert "costmodel_requests_turned_away_total 1.0" in client.get("/metrics").text
