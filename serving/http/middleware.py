"""What holds for every request: a number, a host, a token with a scope, a pace, limits in time, a line in the log."""

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
    """Passes requests on to the application; plain ASGI, because every request goes through it."""

    def __init__(self, app: ASGIApp, *, access: Access, settings: Settings, metrics: Metrics) -> None:
        """Wrap an application.

        Args:
            app: What answers.
            access: Who is let in.
            settings: How fast and for how long.
            metrics: Told of each request.
        """
        self._app = app
        self._access = access
        self._settings = settings
        self._metrics = metrics
        self._pacer = Pacer(settings.requests_per_second, REQUEST_BURST_S)
        self._answer_pacer = Pacer(settings.mib_per_second, BYTE_BURST_S)
        self._in_flight: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        if self._settings.root_path:  # else what the server says
            scope["root_path"] = self._settings.root_path
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        scope["request_id"] = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        head = scope["method"] == "HEAD"
        if head:  # what a GET would answer, without the body
            scope = {**scope, "method": "GET"}  # a copy: the server looks at its own to leave the body out
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
            sender.status = 499  # as proxies log clients that went away
        except Exception:  # noqa: BLE001  # what it was is for the log; whoever asked gets its number
            _LOG.exception("failed", extra={"told": {"request_id": scope["request_id"]}})
            if not sender.started:
                failure = Problem(500, "internal-error", "see the log of the service")
                await problem_response(Request(scope), failure)(scope, receive, sender)
        finally:
            self._told(scope, sender, head, began)

    async def _paced(self, owner: str, scope: Scope, receive: Receive, sender: "_Sender") -> None:
        """Pass a request on when its owner may have another one, and answered bytes count for the next."""
        if not self._access.tells_owners_apart:  # all are one, and there is nobody to protect from him
            await self._app(scope, receive, sender)
            return
        flying = self._in_flight.get(owner, 0)
        if flying >= self._settings.requests_in_flight:
            raise Problem(
                429, "too-many-requests", f"{flying} requests of yours are under way: wait for their answers",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        self._in_flight[owner] = flying + 1
        try:
            await self._pacer.spend(owner)
            sender.pace = (self._answer_pacer, owner)
            await self._app(scope, receive, sender)
        finally:
            self._in_flight[owner] -= 1
            if not self._in_flight[owner]:
                del self._in_flight[owner]

    async def _refuse(self, owner: str, scope: Scope, receive: Receive, sender: "_Sender", problem: Problem) -> None:
        if sender.started:
            raise problem
        if problem.status == 401:  # guessing tokens, or asking without, costs its address time
            await self._pacer.spend(owner, 10.0)
        if problem.status in (429, 503):
            self._metrics.turned_away.inc()
        await problem_response(Request(scope), problem)(scope, receive, sender)

    def _told(self, scope: Scope, sender: "_Sender", head: bool, began: float) -> None:
        """Tell operators of a request that is over."""
        route = scope.get("route")
        path = scope["path"]
        pattern = getattr(route, "path", None) or ("/static" if path.startswith(OPEN_PREFIX) else "other")
        method = "HEAD" if head else scope["method"]
        if method not in ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"):
            method = "other"  # clients may invent methods, and each would be a series of its own
        self._metrics.requests.labels(pattern, method, str(sender.status)).inc()
        self._metrics.seconds.labels(pattern).observe(time.perf_counter() - began)
        told: dict[str, Any] = {
            "request_id": scope["request_id"], "method": method, "path": path[:200], "status": sender.status,
            "client": _address(scope), "sent_bytes": sender.nbytes,
        }  # fmt: skip
        token = scope.get("token")
        if token is not None:
            told["token"] = token.name
        for fact, seconds in scope.get("facts", {}).items():
            if fact.endswith("_seconds"):
                told[fact.removesuffix("_seconds") + "_ms"] = round(1e3 * seconds, 2)
        if scope.get("remembered"):
            told["remembered"] = True
        on_over = scope.get("on_over")  # traces, where they are wanted
        if on_over is not None:
            on_over(scope, told)
        log_request(told, began)


class _SlowReaderError(Exception):
    """A client does not read its answer."""


class _Sender:
    """Sends an answer with the headers that all answers have, and gives up where nobody reads it."""

    def __init__(self, send: Send, request_id: str, within_s: float, *, head: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._within_s = within_s
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
                await self.pace[0].spend(self.pace[1], size / _MIB)
        try:
            async with asyncio.timeout(self._within_s):
                await self._send(message)
        except TimeoutError:
            raise _SlowReaderError from None


def _address(scope: Scope) -> str:
    """Address of the client; "local" for a socket in the file system."""
    client = scope.get("client")
    if not client or not client[0]:
        return "local"
    try:
        return str(ip_address(client[0]))
    except ValueError:
        return "unknown"
