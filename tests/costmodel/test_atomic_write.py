"""Files and folders that are written whole or not at all."""

from pathlib import Path

import pytest

from costmodel.atomic_write import atomic_file, atomic_folder


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The old content stays until the block ends; then only the new file is there."""
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_kept_after_an_error(tmp_path: Path) -> None:
    """After an error the old file is unchanged, and nothing else remains."""
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_file(path) as partial:
            partial.write_text("ne")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    """The folder appears when the block ends, without what an earlier, killed process left."""
    path = tmp_path / "parent" / "folder"
    with atomic_folder(path) as partial:
        abandoned = partial
    path.rmdir()
    abandoned.mkdir()
    (abandoned / "remains").touch()
    with atomic_folder(path) as partial:
        (partial / "file").touch()
        assert not path.exists()
    assert [found.name for found in path.iterdir()] == ["file"]
    assert list(path.parent.iterdir()) == [path]


def test_no_folder_remains_after_an_error(tmp_path: Path) -> None:
    """After an error there is no folder, whole or partial."""

    def fail() -> None:
        with atomic_folder(tmp_path / "folder") as partial:
            (partial / "file").touch()
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail()
    assert not list(tmp_path.iterdir())
