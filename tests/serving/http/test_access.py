"""Authentication, authorisation and request limits of the service."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Never

import pytest
from onnx import ModelProto
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from costmodel.errors import CostModelError
from costmodel.paths import Home
from costmodel.serving.engine.operations import Operations
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.http.app import create_app
from costmodel.serving.http.openapi import EXAMPLE_GRAPH
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.tokens import Tokens, add_token
from costmodel.serving.service import Service
from costmodel.serving.uploads import UploadedModelStore
from tests.served import FILE, HERE, InProcess, Serve
from tests.synthetic import copied


def test_with_tokens_only_their_owners_are_answered(serve: Serve, tmp_path: Path) -> None:
    """With tokens configured, only health checks and the web page are served without a valid one."""
    token = add_token(tmp_path / "tokens", "scheduler")
    client = serve(tokens=tmp_path / "tokens")
    for wrong in (None, "Bearer", "Bearer cm_wrong", f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}"):
        response = client.get("/v1/systems", headers={"authorization": wrong} if wrong else {})
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith('Bearer realm="costmodel"')
        assert token not in response.text
    assert client.get("/v1/systems", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert client.get("/openapi.json").status_code == 401
    for path in ("/healthz", "/readyz", "/", "/systems", "/static/style.css"):
        assert client.get(path).status_code == 200


def test_without_tokens_only_this_host_is_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, trained: object
) -> None:
    """Without tokens only this host is answered, unless a setting says that a proxy authenticates clients."""
    app = serve().app
    for address, status in (
        ("127.0.0.1", 200),
        ("::1", 200),
        ("10.0.0.7", 401),
        ("203.0.113.9", 401),
        ("nowhere", 401),
    ):
        response = TestClient(app, base_url=HERE, client=(address, 1)).get("/v1/systems")
        assert response.status_code == status
        assert status == 200 or response.headers["www-authenticate"]
    insecure = serve(insecure=True).app
    assert TestClient(insecure, client=("10.0.0.7", 1)).get("/v1/systems").status_code == 200


def test_who_has_no_address_is_not_on_this_host(serve: Serve) -> None:
    """A client without an address, as behind a Unix socket, is not taken for this host."""
    app = serve().app

    async def without_address(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": None} if scope["type"] == "http" else scope, receive, send)

    client = TestClient(without_address, base_url=HERE)
    assert client.get("/v1/systems").status_code == 401


def test_without_tokens_only_names_of_this_host_are_answered(serve: Serve) -> None:
    """A Host header that does not name this host is refused, against DNS rebinding."""
    client = serve()
    for host, status in (
        ("127.0.0.1:8000", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:8000", 200),
        ("evil.example.org", 421), ("localhost.evil.example.org", 421), ("127.0.0.1.evil.example.org:80", 421),
    ):  # fmt: skip
        for path in ("/v1/systems", "/"):
            assert client.get(path, headers={"host": host}).status_code == status
        assert client.get("/healthz", headers={"host": host}).status_code == 200
    named = serve(hosts=("costmodel.example.org",), insecure=True)
    assert named.get("/v1/systems", headers={"host": "costmodel.example.org"}).status_code == 200
    assert named.get("/v1/systems", headers={"host": "127.0.0.1"}).status_code == 421


def test_a_token_may_do_what_its_scopes_say(serve: Serve, tmp_path: Path) -> None:
    """A token allows only what its scopes include, and a refusal names the missing scope."""
    file = tmp_path / "tokens"
    tokens = {
        scope: {"authorization": f"Bearer {add_token(file, scope, scopes=[scope])}"}
        for scope in ("predict", "observe", "metrics", "admin")
    }
    client = serve(tokens=file)
    for path, needed in (("/v1/systems", "predict"), ("/v1/observations", "observe"), ("/metrics", "metrics")):
        for scope, headers in tokens.items():
            response = client.get(path, headers=headers)
            assert response.status_code == (200 if scope in (needed, "admin") else 403), (path, scope)
            if response.status_code == 403:
                assert f'scope="{needed}"' in response.headers["www-authenticate"]
    assert client.get("/openapi.json", headers=tokens["metrics"]).status_code == 200


def test_no_worker_answers_about_a_model_that_another_has_deleted(
    serve: Serve, tmp_path: Path, trained: Home, convolution: ModelProto
) -> None:
    """A cached prediction of an uploaded model is gone as soon as any process has deleted the model."""
    home = copied(trained, tmp_path / "home")
    client = serve(home)
    content = convolution.SerializeToString()
    digest = client.post("/v1/predict", content=content, headers=FILE).json()["digest"]
    for _ in range(2):
        assert client.get(f"/v1/models/{digest}/prediction").status_code == 200
    assert UploadedModelStore(home.data / "uploads", 1 << 30).remove("local", digest)
    assert client.get(f"/v1/models/{digest}/prediction").status_code == 404


def test_unknown_parameters_are_refused(serve: Serve) -> None:
    """A misspelt parameter is named, with those that there are, and changes no answer silently."""
    client = serve()
    refused = client.post("/v1/predict?batchs=8", content=b"", headers=FILE)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("'batchs' is no parameter of this request: there are batch, ")
    assert client.get("/v1/systems?of=mine").status_code == 422
    assert client.get("/healthz?from=probe").status_code == 200


def test_a_token_expires(serve: Serve, tmp_path: Path) -> None:
    """A token expires at the time in its line."""
    file = tmp_path / "tokens"
    now = datetime.now(UTC)
    old = add_token(file, "old", expires=now - timedelta(seconds=1))
    new = add_token(file, "new", expires=now + timedelta(days=1))
    client = serve(tokens=file)
    for token, status in ((old, 401), (new, 200)):
        assert client.get("/v1/systems", headers={"authorization": f"Bearer {token}"}).status_code == status


def test_one_owner_sees_nothing_of_another(serve: Serve, tmp_path: Path, convolution: ModelProto) -> None:
    """No owner reaches another's models, predictions or observations, even with known hashes and ids."""
    file = tmp_path / "tokens"
    one, other = ({"authorization": f"Bearer {add_token(file, name)}"} for name in ("one", "other"))
    client = serve(tokens=file)
    content = convolution.SerializeToString()
    sent = client.post("/v1/predict", content=content, headers=FILE | one).json()
    digest = sent["digest"]
    asked = {"model": digest, "latency_us": 5.0}
    observed = client.post("/v1/observations", json=asked, headers=one).json()
    assert client.get(f"/v1/models/{digest}", headers=one).json()["digest"] == digest
    assert [entry["digest"] for entry in client.get("/v1/models", headers=one).json()["models"]] == [digest]
    for method, path, body in (
        ("POST", "/v1/predict", {"model": digest}), ("GET", f"/v1/models/{digest}", None),
        ("GET", f"/v1/models/{digest}/prediction", None), ("DELETE", f"/v1/models/{digest}", None),
        ("POST", "/v1/observations", asked), ("DELETE", f"/v1/observations/{observed['id']}", None),
    ):  # fmt: skip
        assert client.request(method, path, json=body, headers=other).status_code == 404, (method, path)
    assert client.get("/v1/models", headers=other).json()["models"] == []
    assert client.get("/v1/observations", headers=other).json()["observations"] == []
    assert client.delete("/v1/observations", headers=other).json() == {"deleted": 0}
    # A copy that another owner sent belongs to that owner, and stays when the first owner deletes theirs.
    assert client.post("/v1/predict", content=content, headers=FILE | other).json()["digest"] == digest
    assert client.delete(f"/v1/models/{digest}", headers=one).status_code == 204
    assert client.post("/v1/predict", json={"model": digest}, headers=one).status_code == 404
    assert client.post("/v1/predict", json={"model": digest}, headers=other).status_code == 200
    assert client.delete(f"/v1/observations/{observed['id']}", headers=one).status_code == 204


def test_a_token_whose_line_is_deleted_is_revoked(serve: Serve, tmp_path: Path) -> None:
    """A running service notices added and deleted tokens; a damaged or missing file admits nobody."""
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
    assert becomes(second, 401)
    third = add_token(tmp_path / "others", "three")
    file.write_text((tmp_path / "others").read_text())
    assert becomes(third, 200)
    file.unlink()
    assert becomes(third, 401)


def test_json_that_is_too_large_is_refused(serve: Serve) -> None:
    """JSON has a smaller limit than files, because it is held in memory."""
    client = serve(max_json_mib=1)
    response = client.post(
        "/v1/predict/bulk", content=b" " * (1 << 20) + b"{}", headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    assert "a request in JSON may have 1 MiB" in response.json()["detail"]


def test_a_setting_that_is_none_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid setting is one sentence before the service starts."""
    monkeypatch.setenv("COSTMODEL_SERVE_ENGINES", "0")
    with pytest.raises(CostModelError, match="the setting COSTMODEL_SERVE_ENGINES is not valid"):
        create_app()


def test_tokens_are_kept_as_hashes(tmp_path: Path) -> None:
    """Tokens are stored as hashes in a file that only its owner can read."""
    file = tmp_path / "tokens"
    first, second = add_token(file, "one"), add_token(file, "two")
    assert first not in file.read_text()
    assert file.read_text().startswith(f"one {hashlib.sha256(first.encode()).hexdigest()} scopes=observe,predict\n")
    assert file.stat().st_mode & 0o077 == 0
    tokens = Tokens.read(file)
    found = [tokens.find(f"Bearer {token}") for token in (first, second, "cm_x")]
    assert [token and token.name for token in found] == ["one", "two", None]
    with pytest.raises(CostModelError, match="has a token of one"):
        add_token(file, "one")
    with pytest.raises(CostModelError, match="is no name for a token"):
        add_token(file, "two words")


@pytest.mark.parametrize(
    "content",
    ["one", "one two three", "one 12", "\0", f"one {64 * '0'} scopes=all", f"one {64 * '0'} expires=2030-01-01"],
)
def test_a_file_of_tokens_that_is_none_stops_the_service(tmp_path: Path, content: str) -> None:
    """An invalid token file prevents the start of the service."""
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(CostModelError, match=r"make it (anew )?with `costmodel token`"):
        create_app(Settings(tokens=tmp_path / "tokens"))


def test_a_file_is_admitted_by_its_declared_length(serve: Serve) -> None:
    """A file's declared length decides before a byte is read; one of undeclared length is refused."""
    client = serve(max_body_mib=1)
    refused = client.post("/v1/predict", content=b"x" * ((1 << 20) + 1), headers=FILE)
    assert refused.status_code == 413
    assert refused.json()["detail"].startswith("a file may have 1 MiB: send the model without its weights")

    def portions() -> Iterator[bytes]:
        yield b"x"

    assert client.post("/v1/predict", content=portions(), headers=FILE).status_code == 411
    assert client.post("/v1/predict", content=b"", headers=FILE).status_code == 422


def test_what_cannot_be_answered_is_refused_before_its_body(serve: Serve) -> None:
    """Unknown systems, versions, query parameters and encodings are refused before the body is read."""
    client = serve()
    for query, headers, status in (
        ("system=unknown", {}, 404), ("version=unknown", {}, 404), ("batch=0", {}, 422), ("shape=x", {}, 422),
        ("", {"content-encoding": "gzip"}, 415),
    ):  # fmt: skip
        response = client.post(f"/v1/predict?{query}", content=b"never read", headers={**FILE, **headers})
        assert response.status_code == status, query
    coded = {"content-type": "application/json", "content-encoding": "gzip"}
    response = client.post("/v1/predict", content=b"{}", headers=coded)
    assert (response.status_code, response.headers["accept-encoding"]) == (415, "identity")


def test_requests_have_numbers(client: TestClient) -> None:
    """A request keeps its own id if that is safe in a log, and gets a new one otherwise."""
    assert client.get("/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for odd in ("", "a b", "x" * 65, '"quoted"'):
        assert client.get("/healthz", headers={"x-request-id": odd}).headers["x-request-id"] != odd


def test_each_request_is_one_line_of_json(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """The log has one JSON line per request with result, client and duration, and no content."""
    from costmodel.serving.logs import JsonLines

    with caplog.at_level(logging.INFO, logger="costmodel.service"):
        client.get("/v1/systems?secret=hidden", headers={"x-request-id": "traced"})
    (record,) = [found for found in caplog.records if getattr(found, "fields", {}).get("request_id") == "traced"]
    line = json.loads(JsonLines().format(record))
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/systems", 422)
    assert line["ms"] > 0
    assert line["client"] == "127.0.0.1"
    assert "hidden" not in json.dumps(line)


def test_an_internal_error_reveals_nothing(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """An internal error returns only the request id; the details are in the log."""

    class Defective(Service):
        """A service with a defect."""

        def estimate(self, *_: object) -> Never:
            raise RuntimeError("secret of the machine room")

    class Failing(InProcess):
        """An engine with that service."""

        def __init__(self, size: int, settings: EngineSettings) -> None:
            super().__init__(size, settings)
            self.operations.close()
            self.operations = Operations(settings, Defective.open)

    client = serve(make_engines=Failing)
    response = client.post("/v1/predict", json={"graph": EXAMPLE_GRAPH})
    assert response.status_code == 500
    assert response.json()["detail"] == "see the log of the service"
    assert "secret" not in response.text
    assert "secret of the machine room" in caplog.text
