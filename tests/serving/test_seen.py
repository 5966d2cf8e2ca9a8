"""Models that were seen before."""

import os
from pathlib import Path

import pytest

from costmodel.errors import ModelReadError
from costmodel.serving.seen import SeenModels, content_digest


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    """By its content, as a model or as a graph."""
    seen = SeenModels(tmp_path, 1000)
    model, graph = content_digest(b"model"), content_digest(b"graph")
    seen.put(b"model", seen.path(model))
    seen.put(b"graph", seen.path(graph, ".json"))
    found = [seen.find(digest) for digest in (model, graph)]
    assert [path is not None and path.read_bytes() for path in found] == [b"model", b"graph"]
    assert seen.find(content_digest(b"other")) is None


def test_those_not_asked_about_for_longest_go_first(tmp_path: Path) -> None:
    """As many as it takes for the others to fit."""
    seen = SeenModels(tmp_path, 25)
    digests = [content_digest(bytes([number])) for number in range(3)]
    for age, digest in enumerate(digests):
        seen.put(b"x" * 10, seen.path(digest))
        os.utime(seen.path(digest), (1000.0 + age, 1000.0 + age))
    assert seen.find(digests[0]) is not None
    seen.trim()
    assert [seen.find(digest) is not None for digest in digests] == [True, False, True]


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:" + "g" * 64, "sha256:../../../etc/passwd", "md5:" + "0" * 64]
)
def test_a_hash_that_is_none_becomes_no_path(tmp_path: Path, digest: str) -> None:
    """It is said to be none."""
    with pytest.raises(ModelReadError, match="is referred to by sha256"):
        SeenModels(tmp_path, 10).find(digest)
