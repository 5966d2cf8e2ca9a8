"""Gets predictions of models from a service without sending it their weights or names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from costmodel.errors import CostModelError, MissingExtraError
from costmodel.onnx_io.anonymisation import Anonymised, anonymise
from costmodel.onnx_io.model import read_without_weights

try:
    from costmodel.client import Client, ServiceError
except ImportError as error:
    raise MissingExtraError("asking a service", "client") from error

__all__ = ["predict_remotely"]


def predict_remotely(
    server: str, token: str | None, files: Mapping[str, Path], options: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Returns the prediction of each model by a service as a JSON document, in the order of the models.

    Args:
        server: URL of the service.
        token: Token for the service, if it needs one.
        files: Paths of the model files, by name of the model.
        options: Keyword arguments of `costmodel.client.Client.predict`.

    Raises:
        ModelError: A file is not a model.
        CostModelError: The service does not respond, or responds with an error.
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
    sent = anonymise(ModelProto.FromString(read_without_weights(path)))
    shapes = {sent.number(port): shape for port, shape in (options.get("shapes") or {}).items()}
    values = {sent.number(port): value for port, value in (options.get("values") or {}).items()}
    try:
        answer = client.predict(
            sent.content, name="model", **{**options, "shapes": shapes, "values": values or None}
        ).document
    except ServiceError as error:
        raise CostModelError(sent.restore(str(error))) from error
    return _restored(answer, name, sent)


def _restored(answer: Mapping[str, Any], name: str, sent: Anonymised) -> Mapping[str, Any]:
    """Returns a service's prediction, a JSON document, with the names restored that were withheld from the service."""
    return {
        **answer,
        "model": name,
        "layers": [{**layer, "name": sent.restore(layer["name"])} for layer in answer["layers"]],
        "warnings": [sent.restore(warning) for warning in answer["warnings"]],
    }
