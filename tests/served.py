"""The service in tests: started on a home and queried in the same process."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import MappingProxyType
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from costmodel.paths import Home
from costmodel.serving.engine.call import Call, Reply
from costmodel.serving.engine.operations import Operations
from costmodel.serving.engine.pool import EnginePool
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.http.app import MakeEngines, create_app
from costmodel.serving.http.settings import Settings
from tests.running import running

__all__ = ["FILE", "HERE", "InProcess", "Serve", "listening", "serving"]

Serve = Callable[..., TestClient]
# Content type of an uploaded model.
FILE = MappingProxyType({"content-type": "application/octet-stream"})
HERE = "http://127.0.0.1"


class InProcess:
    """One engine in the test process, which starts at once and whose state tests can inspect."""

    def __init__(self, size: int, settings: EngineSettings) -> None:
        self.operations = Operations(settings)
        self.confinement: Mapping[str, Any] = {}
        self.deaths = 0
        self._lock = Lock()

    def start(self) -> None:
        """Start the engine's operations."""
        self.operations.start()

    def perform(self, call: Call) -> Reply:
        """Perform one call at a time, as an engine does."""
        with self._lock:
            return self.operations.perform(call)

    def close(self) -> None:
        """Stop the reader process."""
        self.operations.close()


@contextmanager
def serving(
    home: Home, patch: pytest.MonkeyPatch, *, make_engines: MakeEngines = InProcess, **settings: object
) -> Iterator[TestClient]:
    """Yields a client of a service on a home."""
    patch.setenv("COSTMODEL_HOME", str(home.root))
    app = create_app(Settings(**settings), make_engines=make_engines)
    with TestClient(app, base_url=HERE, client=("127.0.0.1", 50000)) as client:
        yield client


@contextmanager
def listening(
    home: Home, patch: pytest.MonkeyPatch, *, make_engines: MakeEngines = EnginePool, **settings: object
) -> Iterator[str]:
    """Yields the URL of a service on a home that listens on a port."""
    patch.setenv("COSTMODEL_HOME", str(home.root))
    app = create_app(Settings(**settings), make_engines=make_engines)
    config = uvicorn.Config(app, port=0, log_config=None, http="costmodel.serving.http.protocol:LimitedProtocol")
    with running(config) as url:
        yield url
