"""Models that were seen before, by their content: nobody has to send one twice."""

import hashlib
import os
import re
import threading
from contextlib import suppress
from pathlib import Path

from costmodel.errors import ModelReadError

__all__ = ["SeenModels", "content_digest"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def content_digest(content: bytes) -> str:
    """The content hash of a model, as clients may compute it: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class SeenModels:
    """Files without weights in a folder that several processes share; those not asked about for longest go first."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Make the folder.

        Args:
            folder: Where they are kept.
            most_bytes: Of all of them.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str, suffix: str = ".onnx") -> Path:
        """Where a model is kept, whether it is there or not.

        Raises:
            ModelReadError: That is no content hash.
        """
        if not _DIGEST.fullmatch(digest):
            raise ModelReadError(
                "a model is referred to by sha256: and the 64 hexadecimal digits of its content's hash"
            )
        return self._folder / f"{digest.removeprefix('sha256:')}{suffix}"

    def find(self, digest: str) -> Path | None:
        """The file of a model or of its graph; None if it was never seen, or was forgotten."""
        for suffix in (".onnx", ".json"):
            path = self.path(digest, suffix)
            with suppress(OSError):
                os.utime(path)
                return path
        return None

    def put(self, content: bytes, path: Path) -> None:
        """Keep a file, all of it or nothing."""
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        partial.write_bytes(content)
        os.replace(partial, path)

    def trim(self) -> None:
        """Forget models until the others fit."""
        found = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._most_bytes:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
