"""The service under overload, and changes of store and champion while it runs."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from onnx import ModelProto

from costmodel.paths import Home
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.http.admission import AdmissionController, ByteBudget
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.wire.problems import Problem
from costmodel.store.store import Store
from costmodel.training.artefact import champion_of, load_bundle, promote, save_bundle
from tests.fakes import elementwise
from tests.served import FILE, InProcess, Serve
from tests.synthetic import SYSTEM, copied, made_up_measurement


def test_requests_beyond_the_queue_are_turned_away_at_once() -> None:
    """With two requests at work and one queued, a fourth is refused with Retry-After; freed slots are reused."""

    async def ask() -> None:
        admission = AdmissionController(places=2, share=2, queue=1, queue_s=30)
        await admission.acquire("one")
        await admission.acquire("one")
        waiting = asyncio.create_task(admission.acquire("one"))
        await asyncio.sleep(0)
        assert admission.waiting == 1
        with pytest.raises(Problem) as refused:
            await admission.acquire("one")
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "30"})
        admission.release("one")
        await waiting
        assert admission.waiting == 0

    asyncio.run(ask())


def test_no_request_waits_longer_than_the_queue_allows() -> None:
    """A request that waits too long gets 503, and one that was cancelled holds no slot."""

    async def ask() -> None:
        admission = AdmissionController(places=1, share=1, queue=5, queue_s=0.05)
        await admission.acquire("one")
        gone = asyncio.create_task(admission.acquire("one"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(Problem, match="the service is busy"):
            await admission.acquire("one")
        assert admission.waiting == 0
        admission.release("one")
        await admission.acquire("one")

    asyncio.run(ask())


def test_an_owner_never_has_all_places_and_delays_himself() -> None:
    """An owner with many requests waits behind their own; another owner's later request is served next."""

    async def ask() -> list[str]:
        admission = AdmissionController(places=2, share=1, queue=20, queue_s=30)
        order = []

        async def work(owner: str) -> None:
            await admission.acquire(owner)
            order.append(owner)
            await asyncio.sleep(0)
            admission.release(owner)

        await admission.acquire("greedy")
        greedy = [asyncio.create_task(work("greedy")) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.wait_for(work("modest"), 5)  # one slot is beyond the greedy owner's share
        assert order == ["modest"]
        admission.release("greedy")
        modest = [asyncio.create_task(work("modest")) for _ in range(2)]
        await asyncio.gather(*greedy, *modest)
        return order

    order = asyncio.run(ask())
    assert sorted(order) == ["greedy"] * 5 + ["modest"] * 3
    assert "modest" in order[1:4]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_places_are_neither_lost_nor_made(steps: list[tuple[str, bool]], places: int, share: int) -> None:
    """Never more slots are taken than exist or than an owner's share, and all are free in the end."""

    async def settled() -> None:
        for _ in range(10):  # passing on a slot wakes two tasks, one after the other
            await asyncio.sleep(0)

    async def run() -> None:
        admission = AdmissionController(places=places, share=share, queue=10, queue_s=30)
        tasks: list[tuple[str, asyncio.Task[None]]] = []
        for owner, finish in steps:
            if finish and any(task.done() for _, task in tasks):
                done = next(entry for entry in tasks if entry[1].done())
                tasks.remove(done)
                if done[1].exception() is None:
                    admission.release(done[0])
            else:
                tasks.append((owner, asyncio.create_task(admission.acquire(owner))))
            await settled()
            working = Counter(owner for owner, task in tasks if task.done() and task.exception() is None)
            assert working.total() <= places
            assert all(count <= share for count in working.values())
        while tasks:
            await settled()
            done_now = [entry for entry in tasks if entry[1].done()]
            assert done_now  # at least one task always makes progress
            for entry in done_now:
                tasks.remove(entry)
                if entry[1].exception() is None:
                    admission.release(entry[0])
        for _ in range(min(places, share)):
            await asyncio.wait_for(admission.acquire("last"), 5)

    asyncio.run(run())


def test_bytes_that_are_held_have_a_limit() -> None:
    """Bodies in memory are limited in total and per owner; one that fits alone is accepted when none is held."""
    budget = ByteBudget(100)
    with budget.reserved("one", 40, 0.5), budget.reserved("other", 50, 0.5):
        for owner, nbytes in (("one", 11), ("third", 11)):
            with pytest.raises(Problem), budget.reserved(owner, nbytes, 0.5):
                pass
        with budget.reserved("one", 10, 0.5):
            pass
    with budget.reserved("one", 150, 0.5):
        pass


def test_a_new_champion_answers_without_a_restart(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """During a change of champion, each request is answered completely by the old or the new one."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=0.02)
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    first = load_bundle(path)
    # Ten times as wide, so that the interval shows which champion answered.
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
    """If a new champion cannot be loaded, the old one answers, and the list of systems says why."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=60)
    before = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH}).json()
    path = champion_of(home.bundles, SYSTEM.name)
    assert path is not None
    save_bundle(home.bundles, replace(load_bundle(path), version="damaged"))
    (home.bundles / SYSTEM.name / "damaged" / "model.onnx").write_bytes(b"none")
    promote(home.bundles, SYSTEM.name, "damaged")
    client.app.state.costmodel.refresh()  # type: ignore[attr-defined]
    client.app.state.costmodel.engines.operations.service.predictors.refresh()  # type: ignore[attr-defined]
    assert client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH}).json() == before
    (warning,) = client.get(f"/v1/systems/{SYSTEM.name}").json()["warnings"]
    assert "cannot be loaded" in warning
    assert "/" not in warning
    assert client.get("/readyz").json()["warnings"]


def test_new_measurements_are_taken_over(serve: Serve, trained: Home, tmp_path: Path) -> None:
    """New measurements invalidate the cached answers that depend on them."""
    home = copied(trained, tmp_path / "home")
    client = serve(home, refresh_seconds=0.001)
    new = elementwise(1, 64, 41, 41)
    import json

    asked = {"layers": [json.loads(new.text)], "items": [{"layers": [0]}]}

    def ask() -> dict[str, dict[str, float]]:
        (item,) = client.post("/v1/predict/bulk", json=asked).json()["items"]
        found: dict[str, dict[str, float]] = item
        return found

    assert ask()["coverage"]["predicted"] == 1
    Store(home.store_url).put_measurement(SYSTEM.name, made_up_measurement(new.signature, 123.0), new)
    client.app.state.costmodel.refresh()  # type: ignore[attr-defined]
    after = ask()
    assert after["coverage"]["measured"] == 1
    assert after["latency_us"] == pytest.approx(123.0)


def test_a_busy_service_says_when_to_come_back(serve: Serve, convolution: ModelProto) -> None:
    """A busy service refuses new files with Retry-After and still gives cached answers."""
    began, release = threading.Event(), threading.Event()

    class Slow(InProcess):
        """An engine that waits before it reads a file."""

        def perform(self, call: Call) -> Reply:
            if call.operation == "predict_file":
                began.set()
                release.wait()
            return super().perform(call)

    client = serve(queue=0, engines=1, make_engines=Slow)
    asked = {"graph": EXAMPLE_GRAPH}
    known = client.post("/v1/predict", json=asked).json()
    with ThreadPoolExecutor(2) as threads:
        content = convolution.SerializeToString()
        running = threads.submit(client.post, "/v1/predict?batch=2", content=content, headers=FILE)
        began.wait()
        refused = client.post("/v1/predict?batch=4", content=content, headers=FILE)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert client.post("/v1/predict", json=asked).json() == known
        for path in ("/v1/systems", "/v1/regressors", "/v1/models", "/v1/observations", "/metrics"):
            assert client.get(path).status_code == 200
        release.set()
        assert running.result().status_code == 200
    assert "costmodel_http_requests_rejected_total 1.0" in client.get("/metrics").text
