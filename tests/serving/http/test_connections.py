"""Malformed requests, slow clients and too many connections."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest

from costmodel.paths import Home
from tests.served import InProcess, listening

Address = tuple[str, int]


@pytest.fixture(scope="module")
def address(served_home: Home) -> Iterator[Address]:
    """Address of a service with four connections per client and a short time limit for request heads."""
    settings = {"connections_per_address": 4, "header_seconds": 0.5, "max_json_mib": 1}
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(served_home, patch, make_engines=InProcess, **settings) as url,
    ):
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        yield parts.hostname, parts.port


def answer_to(sent: bytes, address: Address) -> HTTPResponse:
    """Returns the response to raw bytes."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(sent)
        response = HTTPResponse(connection)
        response.begin()
        response.body = response.read()  # type: ignore[attr-defined]
        return response


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"not a request at all\r\n\r\n", 400, "invalid-request"),
        (b"GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n", 400, "invalid-request"),
        (b"GET /healthz?" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431, "head-too-large"),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", 431, "head-too-large"),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000, 431, "head-too-large"),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x: a\r\n" * 20_000, 431, "head-too-large"),
    ],
    ids=["no request", "another version", "address", "header", "header without end", "headers without end"],
)
def test_what_is_no_request_is_answered_with_a_problem(address: Address, sent: bytes, status: int, kind: str) -> None:
    """A malformed request gets a problem document, and the connection is closed."""
    response = answer_to(sent, address)
    problem = json.loads(response.body)  # type: ignore[attr-defined]
    assert (response.status, problem["status"], problem["type"]) == (status, status, f"urn:costmodel:problem:{kind}")
    assert response.getheader("content-type") == "application/problem+json"
    assert response.getheader("connection") == "close"


def test_a_head_that_does_not_end_is_not_waited_for(address: Address) -> None:
    """An unfinished request head is timed out, so that slow clients cannot hold all connections."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost:")
        assert connection.recv(1) == b""


def test_connections_beyond_the_limit_are_closed_and_others_go_on(address: Address) -> None:
    """Four connections are served, a fifth is closed, and a freed one can be used again."""
    kept = [HTTPConnection(*address, timeout=30) for _ in range(4)]
    for connection in kept:
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
    with closing(HTTPConnection(*address, timeout=30)) as fifth:
        fifth.request("GET", "/healthz")
        with pytest.raises(ConnectionError):
            fifth.getresponse()
    kept[0].request("GET", "/healthz")
    assert kept[0].getresponse().status == 200
    for connection in kept:
        connection.close()
    again = HTTPConnection(*address, timeout=30)
    for _ in range(100):  # the service notices the closed connections a little later
        try:
            again.request("GET", "/healthz")
            assert again.getresponse().status == 200
            break
        except ConnectionError:
            again.close()
    else:
        pytest.fail("no place became free")
    again.close()


def test_a_refusal_reaches_a_client_that_still_sends(address: Address) -> None:
    """A refused body is read on, so that the client sees the response and not a broken connection."""
    connection = HTTPConnection(*address, timeout=30)
    connection.request("POST", "/v1/predict", body=b" " * (4 << 20), headers={"content-type": "application/json"})
    response = connection.getresponse()
    assert (response.status, json.load(response)["type"]) == (413, "urn:costmodel:problem:body-too-large")
    connection.close()
