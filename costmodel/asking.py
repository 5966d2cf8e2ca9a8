"""Asking a service what models cost, without sending it anybody's weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    try:
        with Client(server, token=token) as client:
            return [
                client.predict(without_weights(path), name=name, **options).document for name, path in files.items()
            ]
    except ServiceError as error:
        raise CostModelError(str(error)) from error
