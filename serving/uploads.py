"""Stores uploaded models on disk: without weights, by content hash, separately for each owner."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from costmodel.atomic_write import atomic_file
from costmodel.errors import ModelReadError
from costmodel.serving.isolation.digest import DIGEST

__all__ = ["UploadedModel", "UploadedModelStore", "content_digest"]

_SUFFIXES = (".onnx", ".json")
# Suffix of a file that maps the hash of an uploaded file to the digest of its model.
_ALIAS = ".alias"
# File in the folder of the store with one byte for each model that was deleted.
_DELETIONS = "deletions"


def content_digest(content: bytes) -> str:
    """Returns the content hash of a model: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True)
class UploadedModel:
    """A model that an owner has uploaded.

    Attributes:
        digest: Content hash that identifies the model. That of an ONNX file does not depend on names, weights and
            documentation.
        kind: "onnx" for an ONNX file, "graph" for layers in JSON.
        stored_bytes: Size of the stored file in bytes.
        used_at: Time at which the model was last used, ISO 8601 in UTC.
    """

    digest: str
    kind: Literal["onnx", "graph"]
    stored_bytes: int
    used_at: str


class UploadedModelStore:
    """A store of uploaded models in a folder that several processes share, with a subfolder for each owner.

    If the models take too much space, those of the owner with the most data are deleted first, beginning with the least
    recently used one.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Creates the folder of the store if it does not exist.

        Args:
            folder: Folder of the models.
            most_bytes: Maximum disk space of all models together.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, owner: str, digest: str) -> Path | None:
        """Returns the path of a stored model and marks the model as used now; None if the owner has no such model.

        Args:
            owner: Name of the owner of the model.
            digest: Digest of the model, or hash of the uploaded file.

        Raises:
            ModelReadError: `digest` is not a content hash.
        """
        path = self._path(owner, digest)
        alias = path.with_suffix(_ALIAS)
        with suppress(OSError):
            path = self._path(owner, alias.read_text())
            os.utime(alias)
        for suffix in _SUFFIXES:
            found = path.with_suffix(suffix)
            with suppress(OSError):
                os.utime(found)
                return found
        return None

    def put(self, owner: str, digest: str, content: bytes, suffix: str, sent_as: str | None = None) -> None:
        """Stores a model atomically, and deletes others if the models then take too much space.

        Args:
            owner: Name of the owner of the model.
            digest: Digest of the model.
            content: The ONNX model without its weights, or its layers in JSON.
            suffix: Suffix of the stored file: ".onnx" or ".json".
            sent_as: Hash of the uploaded file, by which `find` finds the model too; None if no file was uploaded.

        Raises:
            ModelReadError: `digest` or `sent_as` is not a content hash.
        """
        path = self._path(owner, digest)
        path.parent.mkdir(exist_ok=True)
        self._write(path.with_suffix(suffix), content)
        if sent_as is not None and sent_as != digest:
            self._write(self._path(owner, sent_as).with_suffix(_ALIAS), digest.encode())
        self.trim()

    def models(self, owner: str) -> list[UploadedModel]:
        """Returns the stored models of an owner, sorted by digest."""
        found = []
        for path, stat in _files(self._folder / _folder_of(owner)):
            if path.suffix in _SUFFIXES:
                used_at = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(timespec="seconds")
                found.append(
                    UploadedModel(
                        f"sha256:{path.stem}", "onnx" if path.suffix == ".onnx" else "graph", stat.st_size, used_at
                    )
                )
        return sorted(found, key=lambda model: model.digest)

    def deletions(self) -> int:
        """Returns how many models any process has deleted so far, by request or for lack of space."""
        try:
            return (self._folder / _DELETIONS).stat().st_size
        except FileNotFoundError:
            return 0

    def remove(self, owner: str, digest: str) -> bool:
        """Deletes a model of an owner, and returns whether the owner had such a model."""
        path = self.find(owner, digest)
        if path is None:
            return False
        with suppress(FileNotFoundError):
            path.unlink()
        self._count_deletion()
        for other, _ in _files(path.parent):
            with suppress(OSError):
                if other.suffix == _ALIAS and other.read_text() == f"sha256:{path.stem}":
                    other.unlink()
        return True

    def trim(self) -> None:
        """Deletes models until the remaining ones fit the limit on disk space."""
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
                if path.suffix in _SUFFIXES:
                    self._count_deletion()
            sizes[largest] -= _disk_bytes(stat)
            total -= _disk_bytes(stat)

    def _count_deletion(self) -> None:
        with (self._folder / _DELETIONS).open("ab") as file:
            file.write(b".")

    def _path(self, owner: str, digest: str) -> Path:
        if not DIGEST.fullmatch(digest):
            raise ModelReadError(
                "a model is referred to by sha256: and the 64 hexadecimal digits of its content's hash"
            )
        return self._folder / _folder_of(owner) / digest.removeprefix("sha256:")

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        with atomic_file(path) as partial:
            partial.write_bytes(content)


def _folder_of(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            with suppress(OSError):
                yield path, path.stat()


def _disk_bytes(stat: os.stat_result) -> int:
    return stat.st_blocks * 512
