"""What modules say they export."""

import ast
import importlib
from pathlib import Path

import pytest

import costmodel

ROOT = Path(__file__).parents[2]


def _modules() -> list[str]:
    """Every module of the package, rooms included: `costmodel/features` and its siblings are symlinks."""
    found = []
    for folder, package in (
        ("costmodel", "costmodel"),
        *((room, f"costmodel.{room}") for room in ("features", "training", "serving")),
    ):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "costmodel" and parts[0] in ("features", "training", "serving"):
                continue
            # Alembic runs what is in `migrations`; nobody imports it.
            if parts[-1] != "__main__" and not (parts[0] == "migrations" and len(parts) > 1):
                found.append(".".join((package, *(part for part in parts if part != "__init__"))))
    return sorted(found)


def _path(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_modules_are_found() -> None:
    """The list below is not empty by mistake."""
    assert {"costmodel", "costmodel.graph", "costmodel.runtimes.ort"} <= set(_modules())


@pytest.mark.parametrize("module", _modules())
def test_all_exists_and_every_name_in_it_is_there(module: str) -> None:
    """`__all__` is written down in every module with code, without twins, and each name in it resolves."""
    tree = ast.parse(_path(module).read_text())
    if not any(not isinstance(node, ast.Expr) for node in tree.body):
        return  # a docstring has nothing to export
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"an extra is not installed: {error.name}")
    names = loaded.__all__
    assert sorted(set(names)) == sorted(names)
    assert [name for name in names if not hasattr(loaded, name)] == []


def test_the_package_is_the_one_of_this_checkout() -> None:
    """Tests test this code, not an installed copy."""
    assert Path(costmodel.__file__).parent == ROOT / "costmodel"
