"""Who is let in, and how much of what they send."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from costmodel.errors import CostModelError
from costmodel.serving.http.app import create_app
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.tokens import Tokens, add_token
from tests.served import FILE, Serve


def test_with_tokens_only_their_owners_are_answered(serve: Serve, tmp_path: Path) -> None:
    """But for what says nothing of models and systems."""
    token = add_token(tmp_path / "tokens", "scheduler")
    client = serve(tokens=tmp_path / "tokens")
    for wrong in (None, "Bearer", "Bearer cm_wrong", f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}"):
        response = client.get("/v1/systems", headers={"authorization": wrong} if wrong else {})
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert token not in response.text
    assert client.get("/v1/systems", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.get("/openapi.json").status_code == 401
    for path in ("/healthz", "/readyz", "/", "/systems", "/static/style.css", "/v2/health/live"):
        assert client.get(path).status_code == 200


def test_without_tokens_only_this_host_is_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, trained: object
) -> None:
    """Unless somebody says that something in front checks who asks."""
    app = serve().app
    for address, status in (
        ("127.0.0.1", 200),
        ("::1", 200),
        ("10.0.0.7", 401),
        ("203.0.113.9", 401),
        ("nowhere", 401),
    ):
        assert TestClient(app, client=(address, 1)).get("/v1/systems").status_code == status
    assert TestClient(serve(insecure=True).app, client=("10.0.0.7", 1)).get("/v1/systems").status_code == 200


def test_a_token_whose_line_is_deleted_is_revoked(serve: Serve, tmp_path: Path) -> None:
    """In a service that is running; and one that is added is let in."""
    file = tmp_path / "tokens"
    first = add_token(file, "one")
    client = serve(tokens=file, refresh_seconds=0.05)

    def becomes(token: str, status: int) -> bool:
        for _ in range(200):
            if client.get("/v1/systems", headers={"authorization": f"Bearer {token}"}).status_code == status:
                return True
            time.sleep(0.05)
        return False

    second = add_token(file, "two")
    assert becomes(second, 200)
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if line.startswith("two ")))
    assert becomes(first, 401)
    assert becomes(second, 200)
    file.write_text("damaged")
    assert becomes(second, 200)


def test_json_that_is_too_large_is_refused(serve: Serve) -> None:
    """Long before a file would be: it has to be held in memory."""
    client = serve(max_json_mib=1)
    response = client.post(
        "/v1/predict/bulk", content=b" " * (1 << 20) + b"{}", headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    assert "a request in JSON may have 1 MiB" in response.json()["detail"]


def test_a_setting_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the service answers anybody."""
    monkeypatch.setenv("COSTMODEL_SERVE_READERS", "0")
    with pytest.raises(CostModelError, match="the setting COSTMODEL_SERVE_READERS is none"):
        create_app()


def test_tokens_are_kept_as_hashes(tmp_path: Path) -> None:
    """For their owner only; nobody can read one back."""
    file = tmp_path / "tokens"
    first, second = add_token(file, "one"), add_token(file, "two")
    assert first not in file.read_text()
    assert f"one {hashlib.sha256(first.encode()).hexdigest()}" in file.read_text().splitlines()
    assert file.stat().st_mode & 0o077 == 0
    tokens = Tokens.read(file)
    assert [tokens.owner(f"Bearer {token}") for token in (first, second, "cm_x")] == ["one", "two", None]
    with pytest.raises(CostModelError, match="has a token of one"):
        add_token(file, "one")
    with pytest.raises(CostModelError, match="is no name for a token"):
        add_token(file, "two words")


@pytest.mark.parametrize("content", ["one", "one two three", "one 12", "\0"])
def test_a_file_of_tokens_that_is_none_stops_the_service(tmp_path: Path, content: str) -> None:
    """Before it answers anybody."""
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(CostModelError, match=r"make it (anew )?with `costmodel token`"):
        create_app(Settings(tokens=tmp_path / "tokens"))


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    """Whether its length is told before or not."""
    client = serve(max_body_mib=1)
    large = b"x" * (1 << 20) + b"x"
    told = client.post("/v1/predict", content=large, headers=FILE)

    def portions() -> Iterator[bytes]:
        yield from (large[start : start + 65536] for start in range(0, len(large), 65536))

    untold = client.post("/v1/predict", content=portions(), headers=FILE)
    for response in (told, untold):
        assert response.status_code == 413
        assert response.json()["detail"].startswith("a request may have 1 MiB: send the model without its weights")


def test_requests_have_numbers(client: TestClient) -> None:
    """Their own if they bring one that is no trouble in a log, a new one otherwise."""
    assert client.get("/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for odd in ("", "a b", "x" * 65, '"quoted"'):
        assert client.get("/healthz", headers={"x-request-id": odd}).headers["x-request-id"] != odd


def test_each_request_is_one_line_of_json(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """With what happened, whom it came from and how long it took, and nothing of what was sent."""
    from costmodel.serving.http.telemetry import _JsonLines

    with caplog.at_level(logging.INFO, logger="costmodel.service"):
        client.get("/v1/systems?secret=hidden", headers={"x-request-id": "traced"})
    (record,) = [found for found in caplog.records if getattr(found, "told", {}).get("request_id") == "traced"]
    line = json.loads(_JsonLines().format(record))
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/systems", 200)
    assert line["ms"] > 0
    assert "hidden" not in json.dumps(line)


def test_a_failure_of_ours_says_nothing_of_our_inside(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked gets the number of the request, and the log the rest."""
    client = serve()

    def fail(*_: object) -> None:
        raise RuntimeError("secret of the machine room")

    monkeypatch.setattr(client.app.state.desk.service, "estimate", fail)  # type: ignore[attr-defined]
    response = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH})
    assert response.status_code == 500
    assert response.json()["detail"] == "see the log of the service"
    assert "secret" not in response.text
    assert "secret of the machine room" in caplog.text
