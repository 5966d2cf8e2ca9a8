"""Models that clients have sent: kept without weights, under their content hash, apart for each owner."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from costmodel.errors import ModelReadError
from costmodel.isolation.digest import DIGEST

__all__ = ["UploadedModel", "UploadedModelStore", "content_digest"]

_SUFFIXES = (".onnx", ".json")
# A file that names the model that another content hash stands for.
_ALIAS = ".alias"


def content_digest(content: bytes) -> str:
    """The content hash of a model: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True)
class UploadedModel:
    """A model that an owner has sent.

    Attributes:
        digest: Hash of what shapes the work of the model: the same with and without names, weights, documentation.
        kind: "onnx" for a file, "graph" for layers in JSON.
        nbytes: Size of what is kept of it.
        used_at: When it was asked about last; ISO 8601, UTC.
    """

    digest: str
    kind: str
    nbytes: int
    used_at: str


class UploadedModelStore:
    """Files in a folder that several processes share; each owner has a folder of its own and sees no other.

    Models that were not asked about for longest are forgotten first, beginning with the owner who keeps the most.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Make the folder.

        Args:
            folder: Where the models are kept.
            most_bytes: The most that all of them may take on the disk.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, owner: str, digest: str) -> Path | None:
        """The file of an owner's model, and from now on one that was used last; None if the owner sent none such.

        Args:
            owner: Whose model it is.
            digest: Hash of the model, or of the file as it was sent.

        Raises:
            ModelReadError: `digest` is not a content hash.
        """
        path = self._path(owner, digest)
        with suppress(OSError):
            path = self._path(owner, path.with_suffix(_ALIAS).read_text())
        for suffix in _SUFFIXES:
            found = path.with_suffix(suffix)
            with suppress(OSError):
                os.utime(found)
                return found
        return None

    def put(self, owner: str, digest: str, content: bytes, suffix: str, sent_as: str | None = None) -> None:
        """Keep a model, all of it or nothing.

        Args:
            owner: Whose model it is.
            digest: The digest of the model.
            content: The model without its weights, or its layers in JSON.
            suffix: ".onnx" or ".json".
            sent_as: Hash of the file that was sent, where that differs: the model is found under it too.
        """
        path = self._path(owner, digest)
        path.parent.mkdir(exist_ok=True)
        self._write(path.with_suffix(suffix), content)
        if sent_as is not None and sent_as != digest:
            self._write(self._path(owner, sent_as).with_suffix(_ALIAS), digest.encode())
        self.trim()

    def models(self, owner: str) -> list[UploadedModel]:
        """The models of an owner, by digest."""
        found = []
        for path, stat in _files(self._folder / _folder_of(owner)):
            if path.suffix in _SUFFIXES:
                used_at = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds")
                kind = "onnx" if path.suffix == ".onnx" else "graph"
                found.append(UploadedModel(f"sha256:{path.stem}", kind, stat.st_size, used_at))
        return sorted(found, key=lambda model: model.digest)

    def remove(self, owner: str, digest: str) -> bool:
        """Forget a model of an owner; whether there was one."""
        path = self.find(owner, digest)
        if path is None:
            return False
        with suppress(FileNotFoundError):
            path.unlink()
        for other, _ in _files(path.parent):
            with suppress(OSError):
                if other.suffix == _ALIAS and other.read_text() == f"sha256:{path.stem}":
                    other.unlink()
        return True

    def trim(self) -> None:
        """Forget models until the others fit."""
        by_owner = {
            folder: sorted(_files(folder), key=lambda found: found[1].st_mtime, reverse=True)
            for folder in self._folder.iterdir()
            if folder.is_dir()
        }
        sizes = {folder: sum(map(_disk_bytes, (stat for _, stat in files))) for folder, files in by_owner.items()}
        total = sum(sizes.values())
        while total > self._most_bytes:
            largest = max(sizes, key=lambda folder: sizes[folder])
            if not by_owner[largest]:
                break
            path, stat = by_owner[largest].pop()
            with suppress(OSError):
                path.unlink()
            sizes[largest] -= _disk_bytes(stat)
            total -= _disk_bytes(stat)

    def _path(self, owner: str, digest: str) -> Path:
        if not DIGEST.fullmatch(digest):
            raise ModelReadError(
                "a model is referred to by sha256: and the 64 hexadecimal digits of its content's hash"
            )
        return self._folder / _folder_of(owner) / digest.removeprefix("sha256:")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        partial.write_bytes(content)
        os.replace(partial, path)


def _folder_of(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            with suppress(OSError):
                yield path, path.stat()


def _disk_bytes(stat: os.stat_result) -> int:
    return stat.st_blocks * 512
