"""Bodies of requests: admitted by their declared length, then read within a deadline, JSON to memory, files to disk."""

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
_PORTION = 4 << 20  # bytes that are hashed and written at once
_MIB = 1 << 20


def media_type(request: Request) -> str:
    """Media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_encoding(request: Request) -> None:
    """Refuse bodies that are compressed: they would have to be unpacked before their size is known.

    Raises:
        Problem: 415.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem(
            415, "unsupported-media-type", f"send the body as it is, not encoded as {encoding[:40]}",
            headers={"Accept-Encoding": "identity"},
        )  # fmt: skip


@asynccontextmanager
async def json_body(request: Request) -> AsyncIterator[list[bytes]]:
    """The body of a request in JSON, in parts; its memory is the owner's until the end of the block.

    Raises:
        Problem: It is no JSON, too large or too slow, or too much is held already.
    """
    kind = media_type(request)
    if kind != "application/json":
        raise Problem(
            415, "unsupported-media-type",
            f"send an ONNX file as {FILE_TYPES[0]} where one is taken, or a question as application/json, not as "
            f"{kind[:80] or 'nothing'}",
        )  # fmt: skip
    check_encoding(request)
    state = state_of(request)
    most = state.settings.max_json_bytes
    declared = _declared(request)
    if declared is not None and declared > most:
        raise _too_large_json(most)
    owner = owner_of(request)
    with state.json_budget.reserved(owner, most if declared is None else declared, state.share):
        parts: list[bytes] = []
        size = 0
        async for part in _stream(request, state):
            size += len(part)
            if size > most:
                raise _too_large_json(most)
            parts.append(part)
        yield parts


@asynccontextmanager
async def uploaded(request: Request) -> AsyncIterator[tuple[Path, str]]:
    """A file that is sent, on disk until the end of the block, and its content hash.

    Raises:
        Problem: Its length is not declared, it is too large, too slow or empty, or too much is held already.
    """
    check_encoding(request)
    state = state_of(request)
    declared = _declared(request)
    if declared is None:
        raise Problem(411, "length-required", "say how long the file is (Content-Length): send it as a whole")
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
        yield path, await _written(request, state, path)


async def _written(request: Request, state: AppState, path: Path) -> str:
    """Write a body to a file; its content hash."""
    digest = hashlib.sha256()
    writing: asyncio.Future[None] | None = None
    try:
        with path.open("wb") as file:

            def take(parts: list[bytes]) -> None:
                for part in parts:
                    digest.update(part)
                    file.write(part)

            parts: list[bytes] = []
            held = 0
            async for part in _stream(request, state):
                parts.append(part)
                held += len(part)
                if held >= _PORTION:
                    # While one portion is hashed and written in a thread, the next one arrives.
                    if writing is not None:
                        await writing
                    writing = asyncio.ensure_future(asyncio.to_thread(take, parts))
                    parts, held = [], 0
            if writing is not None:
                await writing
            await asyncio.to_thread(take, parts)
    except OSError as error:
        raise Problem(
            503, "overloaded", "the file cannot be stored now: ask again in 30 s", headers={"Retry-After": "30"}
        ) from error
    finally:
        if writing is not None and not writing.done():
            await asyncio.wait([writing])
    return f"sha256:{digest.hexdigest()}"


async def _stream(request: Request, state: AppState) -> AsyncIterator[bytes]:
    """The parts of a body as they arrive; where there are several owners, no faster than each may send."""
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
                await state.byte_pacer.spend(owner, len(part) / _MIB)
            yield part


def _declared(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


def _too_large_json(most: int) -> Problem:
    return Problem(
        413, "body-too-large",
        f"a request in JSON may have {most >> 20} MiB: ask in several, or send the model's file",
    )  # fmt: skip
