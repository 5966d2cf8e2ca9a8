"""Engine processes: they answer calls, die and are replaced without loss of other answers."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from costmodel.errors import BusyError
from costmodel.paths import Home
from costmodel.serving.engine.call import Call
from costmodel.serving.engine.pool import EnginePool
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from tests.processes import await_end
from tests.synthetic import SYSTEM, copied


@pytest.fixture(scope="module")
def settings(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> EngineSettings:
    """Settings of the engines."""
    home = copied(trained, tmp_path_factory.mktemp("engine") / "home")
    return EngineSettings(store_url=home.store_url, bundles=home.bundles, uploads=home.data / "uploads")


@pytest.fixture(scope="module")
def engines(settings: EngineSettings) -> Iterator[EnginePool]:
    """Two engines, one of which is started."""
    pool = EnginePool(2, settings)
    pool.start()
    yield pool
    pool.close()


def _ask(name: str = "model") -> Call:
    import json

    return Call("predict", "local", {}, (json.dumps({"graph": EXAMPLE_GRAPH, "name": name}).encode(),))


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def test_an_engine_answers(engines: EnginePool) -> None:
    """A reply has the document, what it depends on, and the time of each stage."""
    reply = engines.perform(_ask())
    assert reply.problem is None
    assert reply.system == SYSTEM.name
    assert reply.identity
    assert reply.facts["engine_seconds"] >= reply.facts["reader_seconds"] >= 0
    assert b"latency_us" in reply.body


def test_an_engine_that_was_killed_is_replaced(engines: EnginePool) -> None:
    """A call to a dead engine is repeated by another one, and the dead engine's reader process ends too."""
    expected = engines.perform(_ask()).body
    (engine,) = engines.pids
    (reader,) = _children(engine)
    os.kill(engine, signal.SIGKILL)
    assert engines.perform(_ask()).body == expected
    assert engines.deaths == 1
    assert engine not in engines.pids
    await_end(reader)


def test_a_call_that_takes_too_much_memory_is_refused(settings: EngineSettings) -> None:
    """A call that exceeds the memory limit fails alone, and the next one is answered."""
    pool = EnginePool(1, replace(settings, memory_bytes=48 << 20))
    try:
        many = b'{"items": [{"layers": [' + b",".join([b"1234567"] * 2_000_000) + b"]}]}"
        refused = pool.perform(Call("bulk", "local", {}, (many,)))
        assert refused.problem is not None
        assert refused.problem.status in (413, 422)
    finally:
        pool.close()


def test_problems_and_parts_cross_the_border(engines: EnginePool) -> None:
    """A body in several parts is joined; a problem keeps its status, sentence and members between processes."""
    whole = _ask("parts").body[0]
    parts = tuple(whole[start : start + 7] for start in range(0, len(whole), 7))
    assert engines.perform(Call("predict", "local", {}, parts)).body == engines.perform(_ask("parts")).body
    problem = engines.perform(Call("predict", "local", {}, (b"{",))).problem
    assert problem is not None
    assert (problem.status, problem.kind) == (422, "invalid-request")


def test_nothing_is_left_of_an_engine_that_ended(settings: EngineSettings, tmp_path: Path) -> None:
    """Its folder, in which its reader keeps the files of clients, is deleted when it dies and when the pool closes."""
    pool = EnginePool(1, replace(settings, scratch=tmp_path))
    try:
        assert pool.perform(_ask()).problem is None
        (folder,) = tmp_path.iterdir()
        assert list(folder.iterdir())
        (engine,) = pool.pids
        os.kill(engine, signal.SIGKILL)
        assert pool.perform(_ask()).problem is None
        (other,) = tmp_path.iterdir()
        assert other != folder
    finally:
        pool.close()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_for_temporary_files_an_engine_does_not_start(settings: EngineSettings) -> None:
    """The error says what to look at, and the client is asked to come again."""
    pool = EnginePool(1, replace(settings, scratch=Path("/nonexistent")))
    with pytest.raises(BusyError, match="check the free memory and the folder for temporary files"):
        pool.perform(_ask())
    pool.close()
