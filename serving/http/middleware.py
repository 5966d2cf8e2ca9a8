"""Middleware for every request: request identifier, access control, rate limits, time limits, security headers, log."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from costmodel.serving.http.access import OPEN_PREFIX, Access
from costmodel.serving.http.admission import BYTE_BURST_S, REQUEST_BURST_S, Pacer
from costmodel.serving.http.responses import problem_response
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.telemetry import Metrics, log_request
from costmodel.serving.wire.problems import Problem

__all__ = ["RequestMiddleware"]

_LOG = logging.getLogger("costmodel.service")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
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
_MIB = 1 << 20


class RequestMiddleware:
    """Middleware that admits, limits and logs requests; plain ASGI for speed, because it handles every request."""

    def __init__(self, app: ASGIApp, *, access: Access, settings: Settings, metrics: Metrics) -> None:
        """Wraps an ASGI application.

        Args:
            app: Application that answers the requests.
            access: Rules by which requests are admitted.
            settings: Settings of the service, which have the limits on rates and times.
            metrics: Metrics in which each request is counted.
        """
        self._app = app
        self._access = access
        self._settings = settings
        self._metrics = metrics
        self._pacer = Pacer(settings.requests_per_second, REQUEST_BURST_S)
        self._answer_pacer = Pacer(settings.mib_per_second, BYTE_BURST_S)
        self._in_flight: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admits, answers and logs one HTTP request; other ASGI events go to the application unchanged."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        if self._settings.root_path:  # overrides the root path of the server
            scope["root_path"] = self._settings.root_path
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        scope["request_id"] = request_id if _REQUEST_ID.fullmatch(request_id) else secrets.token_hex(8)
        head = scope["method"] == "HEAD"
        if head:  # answered like a GET, without the body
            scope = {**scope, "method": "GET"}  # a copy, because the server needs the original method to omit the body
        sender = _Sender(send, scope["request_id"], self._settings.send_seconds, head=head)
        owner = f"address {_address(scope)}"
        try:
            token = self._access.admit(scope, headers)
            if token is not None:
                scope["token"] = token
                owner = f"token {token.name}"
            await self._paced(owner, scope, receive, sender)
        except Problem as problem:
            await self._refuse(owner, scope, receive, sender, problem)
        except _SlowReaderError:
            sender.status = 499  # the status under which nginx logs clients that disconnected
        except Exception:  # noqa: BLE001  # the details go to the log; the client gets the request identifier
            _LOG.exception("a request failed", extra={"fields": {"request_id": scope["request_id"]}})
            if not sender.started:
                failure = Problem(500, "internal-error", "see the log of the service")
                await problem_response(Request(scope), failure)(scope, receive, sender)
        finally:
            self._record(scope, sender, head, began)

    async def _paced(self, owner: str, scope: Scope, receive: Receive, sender: "_Sender") -> None:
        """Passes a request to the application within the owner's limits on concurrency, request rate and data rate."""
        if not self._access.has_tokens:  # there is only one owner, so nothing to share
            await self._app(scope, receive, sender)
            return
        in_flight = self._in_flight.get(owner, 0)
        if in_flight >= self._settings.requests_in_flight:
            raise Problem(
                429, "too-many-requests", f"{in_flight} requests of yours are in progress: wait for their answers",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        self._in_flight[owner] = in_flight + 1
        try:
            await self._pacer.acquire(owner)
            sender.pace = (self._answer_pacer, owner)
            await self._app(scope, receive, sender)
        finally:
            self._in_flight[owner] -= 1
            if not self._in_flight[owner]:
                del self._in_flight[owner]

    async def _refuse(self, owner: str, scope: Scope, receive: Receive, sender: "_Sender", problem: Problem) -> None:
        if sender.started:
            raise problem
        if problem.status == 401:  # slows down an address that guesses tokens or sends none
            await self._pacer.acquire(owner, 10.0)
        if problem.status in (429, 503):
            self._metrics.turned_away.inc()
        await problem_response(Request(scope), problem)(scope, receive, sender)

    def _record(self, scope: Scope, sender: "_Sender", head: bool, began: float) -> None:
        """Records a finished request in metrics, log and trace."""
        route = scope.get("route")
        path = scope["path"]
        pattern = getattr(route, "path", None) or ("/static" if path.startswith(OPEN_PREFIX) else "other")
        method = "HEAD" if head else scope["method"]
        if method not in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"):
            method = "other"  # clients may send arbitrary methods, and each would be a time series of its own
        self._metrics.requests.labels(pattern, method, str(sender.status)).inc()
        self._metrics.seconds.labels(pattern).observe(time.perf_counter() - began)
        fields: dict[str, Any] = {
            "request_id": scope["request_id"], "method": method, "path": path[:200], "status": sender.status,
            "client": _address(scope), "sent_bytes": sender.nbytes,
        }  # fmt: skip
        token = scope.get("token")
        if token is not None:
            fields["token"] = token.name
        for fact, seconds in scope.get("facts", {}).items():
            if fact.endswith("_seconds"):
                fields[fact.removesuffix("_seconds") + "_ms"] = round(1e3 * seconds, 2)
        if scope.get("cached"):
            fields["cached"] = True
        on_over = scope.get("on_over")  # set by the tracing middleware, if traces are enabled
        if on_over is not None:
            on_over(scope, fields)
        log_request(fields, began)


class _SlowReaderError(Exception):
    """A client did not read the response to its request in time."""


class _Sender:
    """Sender of one HTTP response: adds the common headers, and gives up if the client does not read it in time."""

    def __init__(self, send: Send, request_id: str, within_s: float, *, head: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._timeout_s = within_s
        self._head = head
        self.status = 500
        self.started = False
        self.nbytes = 0
        self.pace: tuple[Pacer, str] | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            message["headers"] = [
                *message.get("headers", ()), (b"x-request-id", self._request_id.encode()), *_HEADERS,
            ]  # fmt: skip
        elif message["type"] == "http.response.body":
            size = len(message.get("body", b""))
            self.nbytes += size
            if self._head:
                message = {**message, "body": b""}
            if self.pace is not None and size > 64 << 10:
                await self.pace[0].acquire(self.pace[1], size / _MIB)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            raise _SlowReaderError from None


def _address(scope: Scope) -> str:
    """Returns the IP address of the client of a request; "local" for a Unix socket, "unknown" for any other text."""
    client = scope.get("client")
    if not client or not client[0]:
        return "local"
    try:
        return str(ip_address(client[0]))
    except ValueError:
        return "unknown"
