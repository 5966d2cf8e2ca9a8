"""HTTP connections with limits that uvicorn lacks: their number, and the time and the size of a request's head.

The head of a request is its request line and its headers.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from costmodel.serving.http.connection_limits import ConnectionLimits
from costmodel.serving.wire.problems import MEDIA_TYPE, Problem

__all__ = ["LimitedProtocol"]

_MOST_HEAD_BYTES = 64 << 10
_DRAINED_BYTES_PER_S = 8 << 20


class LimitedProtocol(HttpToolsProtocol):
    """One HTTP connection, closed if the head of a request (URL and headers) is too large or arrives too late.

    The application passes the limits in its ASGI lifespan state, under the key `connection_limits`.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        """Sets up the connection with the arguments that uvicorn passes."""
        super().__init__(config, server_state, app_state, _loop)
        self.shared: ConnectionLimits = app_state["connection_limits"]
        self._address: str | None = None
        self._head_bytes = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts the new connection as open, or refuses it if too many are open."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "local"
        if not self.shared.admit(address):
            self._close_later(transport)
            return
        self._address = address
        super().connection_made(transport)
        self._expect_head()

    def _close_later(self, transport: asyncio.Transport) -> None:
        """Holds a refused connection for some time without reading from it, then closes it.

        If too many refused connections are held already, it is closed at once.
        """
        self.transport = transport
        if self.shared.held >= self.shared.connections:
            transport.abort()
            return
        self.shared.held += 1
        transport.pause_reading()
        self._timer = self.loop.call_later(self.shared.spread_s(0.25, 0.75), self._close_refused)

    def _close_refused(self) -> None:
        self.shared.held -= 1
        self._timer = None
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Counts the connection as closed."""
        if self._address is None:
            if self._timer is not None:
                self.shared.held -= 1
            self._cancel_timer()
            return
        self._cancel_timer()
        self.shared.leave(self._address)
        self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Passes received data to the parser, and refuses a request whose head is too large."""
        if self._address is None:
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._timer is None:  # first bytes of another request on an idle connection
                self._expect_head()
        super().data_received(data)
        if self._in_head and self._head_bytes > _MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Ends the time limit for the head of a request, which has arrived.

        Raises:
            ValueError: The head is too large; the parser then stops, and `send_400_response` answers.
        """
        self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise ValueError
        self._cancel_timer()
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is invalid or has too large a head with problem details, and closes the connection.

        Args:
            msg: Message about the error, which uvicorn logs itself; it is not sent.
        """
        self._cancel_timer()
        if self._head_bytes > _MOST_HEAD_BYTES:
            detail = f"the URL and the headers take more than {_MOST_HEAD_BYTES >> 10} KiB: shorten them"
            problem = Problem(431, "head-too-large", detail)
        else:
            detail = "this is not a valid HTTP/1.1 request: /openapi.json lists the operations"
            problem = Problem(400, "invalid-request", detail)
        body = json.dumps(problem.to_dict()).encode()
        head = (
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Receives a part of a request body; after the request was answered, the rest is read slowly and discarded."""
        super().on_body(body)
        if self.cycle.response_complete:  # a client that still sends would miss the answer if the connection closed
            self.flow.pause_reading()
            self.loop.call_later(len(body) / _DRAINED_BYTES_PER_S, self._resume)

    def _resume(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """Prepares for the head of the next request on the connection."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(self.shared.spread_s(1.0, 1.5), self._close_overdue)

    def _close_overdue(self) -> None:
        self._cancel_timer()
        if self._in_head and not self.transport.is_closing():
            self.transport.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
