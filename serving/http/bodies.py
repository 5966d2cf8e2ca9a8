"""Reads request bodies within limits on size and time: JSON into memory, files onto disk.

Memory or disk space for a body is reserved before it arrives, by the length that its request declares.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Request
from starlette.requests import ClientDisconnect

from costmodel.serving.http.state import AppState, owner_of, state_of
from costmodel.serving.wire.problems import Problem

__all__ = ["FILE_TYPES", "check_encoding", "json_body", "media_type", "uploaded"]

FILE_TYPES = ("application/octet-stream", "application/onnx", "application/x-onnx")
_PORTION = 4 << 20  # number of bytes that are hashed and written at once
_MIB = 1 << 20


def media_type(request: Request) -> str:
    """Returns the media type of a request body in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_encoding(request: Request) -> None:
    """Refuses a compressed request body, because its size is only known after decompression.

    Raises:
        Problem: 415, because the body has a content encoding.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem(
            415, "unsupported-media-type", f"send the body as it is, not encoded as {encoding[:40]}",
            headers={"Accept-Encoding": "identity"},
        )  # fmt: skip


@asynccontextmanager
async def json_body(request: Request) -> AsyncIterator[list[bytes]]:
    """Gives the JSON body of a request, as a list of byte strings, to an `async with` block.

    The memory of the body counts towards what the owner of the request may hold, until the end of the block.

    Raises:
        Problem: The body is not declared as JSON, is too large or too slow, or too many bytes of bodies are held
            already.
    """
    kind = media_type(request)
    if kind != "application/json":
        raise Problem(
            415, "unsupported-media-type",
            f"send an ONNX file as {FILE_TYPES[0]} if this path takes one, or a request as application/json, not as "
            f"{kind[:80] or 'nothing'}",
        )  # fmt: skip
    check_encoding(request)
    state = state_of(request)
    max_bytes = state.settings.max_json_bytes
    declared = _content_length(request)
    if declared is not None and declared > max_bytes:
        raise _too_large_json(max_bytes)
    owner = owner_of(request)
    with state.json_budget.reserved(owner, max_bytes if declared is None else declared, state.share):
        parts: list[bytes] = []
        size = 0
        async for part in _stream(request, state):
            size += len(part)
            if size > max_bytes:
                raise _too_large_json(max_bytes)
            parts.append(part)
        yield parts


@asynccontextmanager
async def uploaded(request: Request) -> AsyncIterator[tuple[Path, str]]:
    """Gives the path and the content hash of an uploaded file to an `async with` block, then deletes the file.

    Raises:
        Problem: The length is not declared, the file is too large, too slow or empty, or too many bytes of files are
            held already.
    """
    check_encoding(request)
    state = state_of(request)
    declared = _content_length(request)
    if declared is None:
        raise Problem(411, "length-required", "the length of the file is not declared: send the header Content-Length")
    if declared > state.settings.max_body_bytes:
        raise Problem(
            413, "body-too-large",
            f"a file may have {state.settings.max_body_mib} MiB: send the model without its weights, as `costmodel "
            "predict --server` does",
        )  # fmt: skip
    if not declared:
        raise Problem(422, "model-refused", "the file is empty (0 bytes): send an ONNX file as the body")
    with (
        state.scratch_budget.reserved(owner_of(request), declared, state.share),
        tempfile.TemporaryDirectory(prefix="costmodel-upload-", dir=state.settings.scratch) as folder,
    ):
        path = Path(folder) / "model.onnx"
        yield path, await _write(request, state, path)


async def _write(request: Request, state: AppState, path: Path) -> str:
    """Writes a request body to a file and returns its content hash."""
    digest = hashlib.sha256()
    writing: asyncio.Future[None] | None = None
    try:
        with path.open("wb") as file:

            def append(parts: list[bytes]) -> None:
                for part in parts:
                    digest.update(part)
                    file.write(part)

            parts: list[bytes] = []
            held = 0
            async for part in _stream(request, state):
                parts.append(part)
                held += len(part)
                if held >= _PORTION:
                    # The next portion arrives while a thread hashes and writes this one.
                    if writing is not None:
                        await writing
                    writing = asyncio.ensure_future(asyncio.to_thread(append, parts))
                    parts, held = [], 0
            if writing is not None:
                await writing
            await asyncio.to_thread(append, parts)
    except OSError as error:
        raise Problem(
            503, "overloaded", "the file cannot be stored now: ask again in 30 s", headers={"Retry-After": "30"}
        ) from error
    finally:
        if writing is not None and not writing.done():
            await asyncio.wait([writing])
    return f"sha256:{digest.hexdigest()}"


async def _stream(request: Request, state: AppState) -> AsyncIterator[bytes]:
    """Yields the parts of a request body as they arrive; if there are several owners, within the owner's data rate.

    Raises:
        Problem: The body does not arrive in time, or the connection ended.
    """
    owner = owner_of(request)
    deadline = asyncio.get_running_loop().time() + state.settings.upload_seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                part = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            seconds = state.settings.upload_seconds
            raise Problem(
                408, "body-too-slow", f"the body did not arrive within {seconds:g} s: send it again"
            ) from None
        except ClientDisconnect:
            raise Problem(400, "invalid-request", "the connection ended before the request did") from None
        if part:
            if state.several_owners:
                await state.byte_pacer.acquire(owner, len(part) / _MIB)
            yield part


def _content_length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


def _too_large_json(max_bytes: int) -> Problem:
    return Problem(
        413, "body-too-large",
        f"a request in JSON may have {max_bytes >> 20} MiB: split the request, or send the file of the model",
    )  # fmt: skip
