"""HTTP connections with limits that uvicorn does not have: how many there are, and how long and large a head may be."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from costmodel.serving.http.limits import ConnectionLimits
from costmodel.serving.wire.problems import MEDIA_TYPE, Problem

__all__ = ["LimitedProtocol"]

_MOST_HEAD_BYTES = 64 << 10
_DRAINED_BYTES_PER_S = 8 << 20


class LimitedProtocol(HttpToolsProtocol):
    """One connection; a head that does not arrive in time or is too large ends it.

    The application hands over the limits in the state of its lifespan, as `connection_limits`.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        """Take over what uvicorn gives each connection."""
        super().__init__(config, server_state, app_state, _loop)
        self.shared: ConnectionLimits = app_state["connection_limits"]
        self._address: str | None = None
        self._head_bytes = 0
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or close it."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else "local"
        if not self.shared.admit(address):
            self._hold(transport)
            return
        self._address = address
        super().connection_made(transport)
        self._expect_head()

    def _hold(self, transport: asyncio.Transport) -> None:
        """Close a connection that is refused, but not at once, and read nothing from it until then."""
        self.transport = transport
        if self.shared.held >= self.shared.connections:
            transport.abort()
            return
        self.shared.held += 1
        transport.pause_reading()
        self._late = self.loop.call_later(self.shared.spread_s(0.25, 0.75), self._release)

    def _release(self) -> None:
        self.shared.held -= 1
        self._late = None
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        if self._address is None:
            if self._late is not None:
                self.shared.held -= 1
            self._cancel()
            return
        self._cancel()
        self.shared.leave(self._address)
        self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, and count those of a head."""
        if self._address is None:
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._late is None:  # the first bytes of another request on a connection that was idle
                self._expect_head()
        super().data_received(data)
        if self._in_head and self._head_bytes > _MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """Stop waiting for the head.

        Raises:
            ValueError: The head is too large; the parser ends with it and `send_400_response` answers.
        """
        self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._head_bytes > _MOST_HEAD_BYTES:
            raise ValueError
        self._cancel()
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or has too large a head, with a problem document, and close the connection.

        Args:
            msg: What uvicorn would say; it is in its log.
        """
        self._cancel()
        if self._head_bytes > _MOST_HEAD_BYTES:
            detail = f"the address and the headers take more than {_MOST_HEAD_BYTES >> 10} KiB: put less into them"
            problem = Problem(431, "head-too-large", detail)
        else:
            detail = "that is not a request of HTTP/1.1: /openapi.json says what can be asked"
            problem = Problem(400, "invalid-request", detail)
        body = json.dumps(problem.to_dict()).encode()
        head = (
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; one that was answered already, with a refusal, is read to its end slowly."""
        super().on_body(body)
        if self.cycle.response_complete:  # closing the connection would take the refusal from a client that still sends
            self.flow.pause_reading()
            self.loop.call_later(len(body) / _DRAINED_BYTES_PER_S, self._go_on)

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """Expect the head of the next request."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(self.shared.spread_s(1.0, 1.5), self._end)

    def _end(self) -> None:
        self._cancel()
        if self._in_head and not self.transport.is_closing():
            self.transport.abort()

    def _cancel(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
