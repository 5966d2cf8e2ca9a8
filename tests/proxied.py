"""A reverse proxy in front of the service, as an operator would deploy it."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.running import running

__all__ = ["behind_prefix"]


@contextmanager
def behind_prefix(url: str, prefix: str, passed: list[bytes] | None = None) -> Iterator[str]:
    """Yields the URL of a proxy that forwards requests below a prefix to a service and removes the prefix.

    Args:
        url: URL of the service.
        prefix: First part of the paths that the proxy serves, such as "/costmodel".
        passed: Receives the address, the headers and the body of every request.
    """

    async def pass_on(request: Request) -> Response:
        path = f"{request.path_params['path']}?{request.url.query}"
        body = await request.body()
        if passed is not None:
            passed.append(b"\n".join([str(request.url).encode(), repr(request.headers.items()).encode(), body]))
        kept = {name: request.headers[name] for name in ("content-type", "authorization") if name in request.headers}
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            answer = await client.request(request.method, f"/{path}", content=body, headers=kept)
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return Response(answer.content, answer.status_code, headers)

    routes = [Mount(prefix, routes=[Route("/{path:path}", pass_on, methods=["GET", "POST"])])]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_config=None)
    with running(config) as proxy_url:
        yield f"{proxy_url}{prefix}"
