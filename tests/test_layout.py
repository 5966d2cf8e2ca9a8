"""The packaging configuration matches the folders on disk."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("features", "training", "serving")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def _packages(folder: str, package: str) -> set[str]:
    """Returns the packages under a folder, itself included: all folders that contain Python files."""
    found = set()
    for path in [ROOT / folder, *(ROOT / folder).rglob("*")]:
        inside_link = any(parent.is_symlink() for parent in (path, *path.parents) if parent != ROOT)
        if path.is_dir() and not inside_link and any(path.glob("*.py")):
            found.add(".".join((package, *path.relative_to(ROOT / folder).parts)))
    return found


def test_every_package_on_disk_is_in_the_list() -> None:
    """Every package on disk is in pyproject.toml's handwritten list, else a wheel would lack it."""
    on_disk = _packages("costmodel", "costmodel").union(*(_packages(room, f"costmodel.{room}") for room in ROOMS))
    assert set(SETUPTOOLS["packages"]) == on_disk


def test_each_room_is_mapped_to_its_folder() -> None:
    """pyproject.toml maps `costmodel.features` and its siblings, with all subpackages, to the root folders."""
    inside = {package: package.removeprefix("costmodel.").replace(".", "/") for package in SETUPTOOLS["packages"]}
    expected = {package: folder for package, folder in inside.items() if folder.split("/")[0] in ROOMS}
    assert SETUPTOOLS["package-dir"] == {"costmodel": "costmodel"} | expected


@pytest.mark.parametrize("room", ROOMS)
def test_a_symlink_leads_to_each_room(room: str) -> None:
    """A symlink in the package leads to each root folder, for tools that do not know the mapping."""
    link = ROOT / "costmodel" / room
    assert link.is_symlink()
    assert link.readlink() == Path("..") / room
    assert link.resolve() == ROOT / room
