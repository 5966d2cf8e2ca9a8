"""What holds for every request: a number, a token, a body that is neither too large nor too slow, a line in the log."""

import logging
import re
import secrets
import time
from collections.abc import Mapping
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from costmodel.serving.http.problems import Problem, problem_response
from costmodel.serving.http.telemetry import Metrics, log_request
from costmodel.serving.http.tokens import TokenFile

__all__ = ["Frame"]

_LOG = logging.getLogger("costmodel.service")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Open to everybody: they say nothing of models or systems. The page asks for the token itself.
_OPEN = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready", "/", "/systems"})
_OPEN_PREFIX = "/static/"
_SECURITY: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
_HEADERS = [(name.encode(), value.encode()) for name, value in _SECURITY.items()]


class Frame:
    """Around the application; plain ASGI, because it is passed by every request."""

    def __init__(
        self, app: ASGIApp, *, tokens: TokenFile | None, insecure: bool, max_body_bytes: int, metrics: Metrics
    ) -> None:
        """Around an application.

        Args:
            app: What answers.
            tokens: Who is let in; None lets in whoever is on this host.
            insecure: Whether, without tokens, everybody else is let in too.
            max_body_bytes: Of a request.
            metrics: Told of each request.
        """
        self._app = app
        self._tokens = tokens
        self._insecure = insecure
        self._max_body_bytes = max_body_bytes
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["request_id"] = request_id
        status = 500
        started = False

        async def sending(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *_HEADERS]
            await send(message)

        owner = None
        try:
            owner = self._admit(scope, headers)
            await self._app(scope, self._bounded(receive), sending)
        except Problem as problem:
            if started:
                raise
            await problem_response(Request(scope), problem)(scope, receive, sending)
        except Exception:  # noqa: BLE001  # what it was is for the log; whoever asked gets its number
            _LOG.exception("failed", extra={"told": {"request_id": request_id}})
            if not started:
                failure = Problem(500, "internal-error", "see the log of the service")
                await problem_response(Request(scope), failure)(scope, receive, sending)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", None) or ("/static" if scope["path"].startswith(_OPEN_PREFIX) else "other")
            self._metrics.requests.labels(path, scope["method"], str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - began)
            told = {
                "request_id": request_id, "method": scope["method"], "path": scope["path"], "status": status,
            }  # fmt: skip
            if owner:
                told["token"] = owner
            log_request(told, began)

    def _admit(self, scope: Scope, headers: Headers) -> str | None:
        """Whose token it is.

        Raises:
            Problem: It is nobody's, or the body is said to be too large.
        """
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._max_body_bytes:
            raise self._too_large()
        path = scope["path"]
        if path in _OPEN or path.startswith(_OPEN_PREFIX):
            return None
        if self._tokens is None:
            if self._insecure or _is_here(scope.get("client")):
                return None
            raise Problem(401, "unauthorized", "without tokens this service answers its own host only: give it some")
        owner = self._tokens.owner(headers.get("authorization"))
        if owner is None:
            raise Problem(
                401, "unauthorized",
                "send a token that the operator of this service gave you: Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip
        return owner

    def _bounded(self, receive: Receive) -> Receive:
        left = self._max_body_bytes

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
                if left < 0:
                    raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> Problem:
        return Problem(
            413, "body-too-large",
            f"a request may have {self._max_body_bytes >> 20} MiB: send the model without its weights, as "
            "`costmodel predict --server` does",
        )  # fmt: skip


def _is_here(client: tuple[str, int] | None) -> bool:
    """Whether somebody asks from this host; a socket in the file system has no address."""
    if client is None:
        return True
    try:
        return ip_address(client[0]).is_loopback
    except ValueError:
        return False
