"""The parent process of the web servers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from uvicorn import Config

from costmodel.serving.http.supervisor import Supervisor


@dataclass
class _Running:
    """A web server that answers."""

    pid: int

    def is_alive(self, timeout: float) -> bool:
        """It always is."""
        return True

    def is_ready(self, timeout: float) -> bool:
        """It always is."""
        return True


@pytest.fixture
def gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """Function that returns the names of the files with the numbers of web servers."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    for pid in (11, 12):
        for kind in ("gauge_livesum", "counter"):
            (tmp_path / f"{kind}_{pid}.db").touch()
    return lambda: {path.name for path in tmp_path.iterdir()}


def test_the_gauges_of_a_web_server_end_with_it(gauges: Callable[[], set[str]]) -> None:
    """What a web server counts at the moment goes when it ends; what it has counted stays."""
    supervisor = Supervisor(Config("unused"), [])
    supervisor.processes = [_Running(11), _Running(12)]  # type: ignore[list-item]
    supervisor.keep_subprocess_alive()
    everything = gauges()
    assert len(everything) == 4
    supervisor.processes[1] = _Running(13)  # type: ignore[call-overload]
    supervisor.keep_subprocess_alive()
    assert gauges() == everything - {"gauge_livesum_12.db"}
