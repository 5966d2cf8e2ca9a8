"""Uploaded models: stored under their content hash, separately for each owner, up to a total size."""

import os
from pathlib import Path

import pytest

from costmodel.errors import ModelReadError
from costmodel.serving.uploads import UploadedModelStore, content_digest

LARGE = 10_000  # more than two blocks of a file system


def _put(
    store: UploadedModelStore, owner: str, content: bytes, suffix: str = ".onnx", sent_as: str | None = None
) -> str:
    digest = content_digest(content)
    store.put(owner, digest, content, suffix, sent_as)
    return digest


@pytest.fixture
def store(tmp_path: Path) -> UploadedModelStore:
    """A store with space for three large models."""
    return UploadedModelStore(tmp_path / "uploads", 3 * 12_288)


def test_a_model_is_found_by_its_digest_and_as_it_was_sent(store: UploadedModelStore) -> None:
    """A model is found by its owner only, by its digest and by the hash of the sent file."""
    sent_as = content_digest(b"with weights")
    digest = _put(store, "one", b"without", ".onnx", sent_as)
    assert digest == content_digest(b"without")
    for known_as in (digest, sent_as):
        path = store.find("one", known_as)
        assert path is not None
        assert path.read_bytes() == b"without"
        assert store.find("other", known_as) is None
    (model,) = store.models("one")
    assert (model.digest, model.kind, model.stored_bytes) == (digest, "onnx", 7)
    assert store.models("other") == []


def test_a_model_is_forgotten_by_its_owner_only(store: UploadedModelStore) -> None:
    """Deletion removes all names of an owner's model; another owner's copy stays."""
    sent_as = content_digest(b"with weights")
    digest = _put(store, "one", b"same", ".json", sent_as)
    _put(store, "other", b"same", ".json")
    assert not store.remove("third", digest)
    assert store.remove("one", sent_as)
    assert store.find("one", digest) is None
    assert store.find("one", sent_as) is None
    assert store.find("other", digest) is not None
    assert not store.remove("one", digest)
    assert store.deletions() == 1


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:../../etc/passwd", "sha256:" + "0" * 63, "SHA256:" + "0" * 64]
)
def test_what_is_no_content_hash_is_no_path(store: UploadedModelStore, digest: str) -> None:
    """A malformed hash with slashes or dots never becomes a path."""
    with pytest.raises(ModelReadError, match="64 hexadecimal digits"):
        store.find("one", digest)


@pytest.mark.parametrize("owner", ["../..", "a/b", "", "\u00e4", "x" * 500])
def test_an_owner_is_no_path(store: UploadedModelStore, owner: str, tmp_path: Path) -> None:
    """An owner's name never becomes a path."""
    digest = _put(store, owner, b"content", ".onnx")
    path = store.find(owner, digest)
    assert path is not None
    assert path.parent.parent == tmp_path / "uploads"


def test_what_was_not_asked_about_for_longest_goes_first(store: UploadedModelStore) -> None:
    """When the store is full, the least recently used model is deleted first."""
    digests = []
    for place in range(3):
        digests.append(_put(store, "one", bytes([place]) * LARGE, ".onnx"))
        path = store.find("one", digests[-1])
        assert path is not None
        os.utime(path, (place, place))
    assert store.find("one", digests[0]) is not None  # used just now
    digests.append(_put(store, "one", b"\x09" * LARGE, ".onnx"))
    assert [store.find("one", digest) is not None for digest in digests] == [True, False, True, True]


def test_a_name_that_is_asked_for_stays_as_long_as_its_model(store: UploadedModelStore, tmp_path: Path) -> None:
    """When the store is full, the hash of a sent file that nobody asked for goes first, and no model with it."""
    asked_for, forgotten = content_digest(b"sent"), content_digest(b"forgotten")
    digests = [_put(store, "one", b"a", sent_as=asked_for), _put(store, "one", b"b", sent_as=forgotten)]
    for path in (tmp_path / "uploads").rglob("*"):
        os.utime(path, (2, 2) if path.suffix == ".onnx" else (1, 1))
    assert store.find("one", asked_for) is not None
    for content in (b"1", b"2"):
        _put(store, "one", content * LARGE)
    assert store.find("one", forgotten) is None
    assert store.find("one", asked_for) is not None
    assert all(store.find("one", digest) is not None for digest in digests)
    assert store.deletions() == 0


def test_who_keeps_most_makes_room(store: UploadedModelStore) -> None:
    """When the store is full, models of the owner with most of them are deleted."""
    modest = _put(store, "modest", b"m" * LARGE, ".onnx")
    path = store.find("modest", modest)
    assert path is not None
    os.utime(path, (1, 1))  # the oldest of all
    for place in range(10):
        _put(store, "greedy", bytes([place]) * LARGE, ".onnx")
    assert [model.digest for model in store.models("modest")] == [modest]
    assert len(store.models("greedy")) == 2
