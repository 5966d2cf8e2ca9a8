"""The service in tests: started on a home, asked without a network."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from types import MappingProxyType

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from costmodel.home import Home
from costmodel.serving.http.app import create_app
from costmodel.serving.http.settings import Settings

__all__ = ["FILE", "Serve", "behind_prefix", "listening", "serving"]

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
    with _running(create_app(Settings(**settings))) as url:
        yield url


@contextmanager
def behind_prefix(url: str, prefix: str, passed: list[bytes] | None = None) -> Iterator[str]:
    """The URL of a proxy that passes what is below a prefix on to a service, without the prefix.

    Args:
        url: URL of the service.
        prefix: First part of the paths that the proxy serves, such as "/costmodel".
        passed: Receives the address, the headers and the body of every request.
    """

    async def pass_on(request: Request) -> Response:
        path = f"{request.path_params['path']}?{request.url.query}"
        if passed is not None:
            passed.append(
                b"\n".join([str(request.url).encode(), repr(request.headers.items()).encode(), await request.body()])
            )
        kept = {name: request.headers[name] for name in ("content-type", "authorization") if name in request.headers}
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            answer = await client.request(request.method, f"/{path}", content=await request.body(), headers=kept)
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return Response(answer.content, answer.status_code, headers)

    proxied = [Route("/{path:path}", pass_on, methods=["GET", "POST"])]
    with _running(Starlette(routes=[Mount(prefix, routes=proxied)])) as outside:
        yield f"{outside}{prefix}"


@contextmanager
def _running(app: ASGIApp) -> Iterator[str]:
    config = uvicorn.Config(app, port=0, log_config=None)
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
