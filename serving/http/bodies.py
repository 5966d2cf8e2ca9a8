"""Bodies of requests: a file to disk, its hash on the way; JSON to what it should be."""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from costmodel.serving.http.problems import Problem

__all__ = ["FILE_TYPES", "media_type", "parsed", "read_body", "uploaded"]

FILE_TYPES = ("application/octet-stream", "application/onnx", "application/x-onnx")
_PORTION = 4 << 20  # bytes that are hashed and written at once

_Model = TypeVar("_Model", bound=BaseModel)


def media_type(request: Request) -> str:
    """Of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, seconds: float, most_bytes: int) -> bytes:
    """All of it.

    Args:
        request: Whose.
        seconds: That it may take.
        most_bytes: Of it.

    Raises:
        Problem: It is too large or too slow.
    """
    found = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                found += part
                if len(found) > most_bytes:
                    raise Problem(
                        413, "body-too-large",
                        f"a request in JSON may have {most_bytes >> 20} MiB: ask in several, or send the model's file",
                    )  # fmt: skip
            return bytes(found)
    except TimeoutError:
        raise _too_slow(seconds) from None
    except ClientDisconnect:
        raise Problem(400, "invalid-request", "the connection ended before the request did") from None


def parsed(model: type[_Model], body: bytes) -> _Model:
    """The body as a model has it.

    Raises:
        Problem: It is not JSON, or not that; the sentence says where.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Problem(422, "invalid-request", explained(error)) from None


def explained(error: ValidationError) -> str:
    """The first complaint, and where."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    return " ".join((f"{where}: {what}" if where else what).split())


@asynccontextmanager
async def uploaded(request: Request, seconds: float) -> AsyncIterator[tuple[Path, str]]:
    """A file that is sent, on disk until the end of the block, and its content hash.

    Raises:
        Problem: It is too large, too slow, or empty.
    """
    with tempfile.TemporaryDirectory(prefix="costmodel-upload-") as folder:
        path = Path(folder) / "model.onnx"
        digest = hashlib.sha256()
        size = 0
        with path.open("wb") as file:

            def take(parts: list[bytes]) -> None:
                for part in parts:
                    digest.update(part)
                    file.write(part)

            try:
                async with asyncio.timeout(seconds):
                    parts: list[bytes] = []
                    held = 0
                    writing: asyncio.Future[None] | None = None
                    async for part in request.stream():
                        parts.append(part)
                        held += len(part)
                        if held >= _PORTION:
                            # While one portion is hashed and written in a thread, the next one arrives.
                            if writing is not None:
                                await writing
                            size += held
                            writing = asyncio.ensure_future(asyncio.to_thread(take, parts))
                            parts, held = [], 0
                    if writing is not None:
                        await writing
                    size += held
                    take(parts)
            except TimeoutError:
                raise _too_slow(seconds) from None
            except ClientDisconnect:
                raise Problem(400, "invalid-request", "the connection ended before the file did") from None
        if not size:
            raise Problem(422, "model-refused", "the file is empty (0 bytes): send an ONNX file as the body")
        yield path, f"sha256:{digest.hexdigest()}"


def _too_slow(seconds: float) -> Problem:
    return Problem(408, "body-too-slow", f"the body did not arrive within {seconds:g} s: send it again")
