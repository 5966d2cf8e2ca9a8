"""`__all__` of every module."""

import ast
import importlib
from pathlib import Path

import pytest

import costmodel

ROOT = Path(__file__).parents[1]


def _modules() -> list[str]:
    """Returns every module of the package, including those in symlinked folders such as `costmodel/features`."""
    found = []
    for folder, package in (
        ("costmodel", "costmodel"),
        *((room, f"costmodel.{room}") for room in ("features", "training", "serving")),
    ):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "costmodel" and parts[0] in ("features", "training", "serving"):
                continue
            # Alembic executes the files in `migrations`; they are never imported.
            if parts[-1] != "__main__" and not (parts[:2] == ("store", "migrations") and len(parts) > 2):
                found.append(".".join((package, *(part for part in parts if part != "__init__"))))
    return sorted(found)


def _path(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_modules_are_found() -> None:
    """The list of modules is not empty."""
    assert {"costmodel", "costmodel.ir.graph", "costmodel.runtimes.ort.adapter"} <= set(_modules())


@pytest.mark.parametrize("module", _modules())
def test_all_exists_and_every_name_in_it_is_there(module: str) -> None:
    """Every module with code defines `__all__`, without duplicates, and each name in it resolves."""
    tree = ast.parse(_path(module).read_text())
    if not any(not isinstance(node, ast.Expr) for node in tree.body):
        return  # a module with a docstring only exports nothing
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"an extra is not installed: {error.name}")
    names = loaded.__all__
    assert sorted(set(names)) == sorted(names)
    assert [name for name in names if not hasattr(loaded, name)] == []


def test_the_package_is_the_one_of_this_checkout() -> None:
    """The tests import this checkout, not an installed copy."""
    assert Path(costmodel.__file__).parent == ROOT / "costmodel"
