"""Asking a service what models cost, without sending it weights or names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from costmodel.anonymise import Anonymised, anonymise
from costmodel.errors import CostModelError, MissingExtraError
from costmodel.model import without_weights

try:
    from costmodel.client import Client, ServiceError
except ImportError as error:
    raise MissingExtraError("asking a service", "client") from error

__all__ = ["ask"]


def ask(
    server: str, token: str | None, files: Mapping[str, Path], options: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The answers of a service for some models, in their order.

    Args:
        server: Its URL.
        token: For it, if it wants one.
        files: Models by name.
        options: As `costmodel.client.Client.predict` has them.

    Raises:
        ModelError: A file is no model.
        CostModelError: The service does not answer, or has no answer.
    """
    if not server.startswith(("http://", "https://")):
        raise CostModelError(f"{server!r} is not the URL of a service: give one such as http://127.0.0.1:8000")
    with _client(server, token) as client:
        return [_answer(client, name, path, options) for name, path in files.items()]


def _client(server: str, token: str | None) -> Client:
    try:
        return Client(server, token=token)
    except ServiceError as error:
        raise CostModelError(str(error)) from error


def _answer(client: Client, name: str, path: Path, options: Mapping[str, Any]) -> Mapping[str, Any]:
    sent = anonymise(ModelProto.FromString(without_weights(path)))
    shapes = {sent.number(port): shape for port, shape in (options.get("shapes") or {}).items()}
    try:
        answer = client.predict(sent.content, name="model", **{**options, "shapes": shapes}).document
    except ServiceError as error:
        raise CostModelError(sent.restore(str(error))) from error
    return _restored(answer, name, sent)


def _restored(answer: Mapping[str, Any], name: str, sent: Anonymised) -> Mapping[str, Any]:
    """An answer with the names that the service was not told."""
    return {
        **answer,
        "model": name,
        "layers": [{**layer, "name": sent.restore(layer["name"])} for layer in answer["layers"]],
        "warnings": [sent.restore(warning) for warning in answer["warnings"]],
    }
