"""The service in tests: started on a home, asked without a network."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import MappingProxyType

import pytest
import uvicorn
from starlette.testclient import TestClient

from costmodel.home import Home
from costmodel.serving.http.app import create_app
from costmodel.serving.http.settings import Settings

__all__ = ["FILE", "Serve", "listening", "serving"]

Serve = Callable[..., TestClient]
# What a model is sent as.
FILE = MappingProxyType({"content-type": "application/octet-stream"})


@contextmanager
def serving(home: Home, patch: pytest.MonkeyPatch, **settings: object) -> Iterator[TestClient]:
    """A service on a home, for as long as the block."""
    patch.setenv("COSTMODEL_HOME", str(home.root))
    with TestClient(create_app(Settings(**settings)), client=("127.0.0.1", 50000)) as client:
        yield client


@contextmanager
def listening(home: Home, patch: pytest.MonkeyPatch, **settings: object) -> Iterator[str]:
    """The URL of a service on a home that listens on a port, for as long as the block."""
    patch.setenv("COSTMODEL_HOME", str(home.root))
    config = uvicorn.Config(create_app(Settings(**settings)), port=0, log_config=None)
    socket = config.bind_socket()
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        socket.close()
