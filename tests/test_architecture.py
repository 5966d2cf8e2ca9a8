"""What starting up costs, and what the folders export; import-linter checks who imports whom (`make lint`)."""

import ast
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import costmodel

ROOT = Path(__file__).parents[1]
FOLDERS = {"costmodel": "costmodel"} | {f: f"costmodel.{f}" for f in ("features", "training", "serving")}
HEAVY = (
    "onnxruntime", "torch", "torch_geometric", "transformers", "lightgbm", "mlflow", "optuna", "sklearn", "matplotlib",
    "fastapi", "httpx", "uvicorn", "onnx",
)  # fmt: skip


def _modules() -> Iterator[tuple[str, Path]]:
    """Yields the name and the file of every module."""
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents if parent != ROOT):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                yield ".".join((package, *(part for part in parts if part != "__init__"))), path


MODULES = dict(_modules())
STUBS = {
    name: path.with_suffix(".pyi")
    for name, path in MODULES.items()
    if name != "costmodel" and path.with_suffix(".pyi").exists()
}


def _package_of(module: str) -> str | None:
    """Returns the innermost package with a list of exports that a module belongs to."""
    return max((name for name in STUBS if module == name or module.startswith(f"{name}.")), key=len, default=None)


def _imported_elsewhere() -> dict[str, set[str]]:
    """Returns for each package the names of its modules that modules outside of it import."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.module not in STUBS:
                package = _package_of(node.module)
                if package is not None and _package_of(name) != package:
                    found[package] |= {alias.name for alias in node.names if not alias.name.startswith("_")}
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for target in (target for group in points.values() for target in group.values()):
        package, name = target.split(":")
        found[package].add(name)
    return found


def test_a_folder_exports_what_others_import() -> None:
    """`__init__.pyi` is the table of contents of a folder: it lists the names that other folders use, and no others."""
    used = _imported_elsewhere()
    for package, stub in STUBS.items():
        modules = {path.stem for path in stub.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
        exported = {
            alias.asname
            for node in ast.parse(stub.read_text()).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert exported == used[package] - modules, package


@pytest.mark.parametrize("package", [name for name, path in MODULES.items() if path.name == "__init__.py"])
def test_a_folder_says_what_it_is(package: str) -> None:
    """Every package has a docstring."""
    text = ast.get_docstring(ast.parse(MODULES[package].read_text()))
    assert text
    assert len(text) > 20


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("import costmodel", id="import"),
        pytest.param("import sys, costmodel.cli; sys.argv = ['costmodel', '--help']; costmodel.cli.main()", id="help"),
    ],
)
def test_starting_up_loads_nothing_heavy(program: str) -> None:
    """`import costmodel` and `costmodel --help` load no runtime, no learning library and no web framework."""
    code = f"try: {program}\nexcept SystemExit: pass\nimport sys; print('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.partition("LOADED")[2].split()
    assert "costmodel" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_public_names_are_those_listed() -> None:
    """`from costmodel import CostModel` works, as does every other name in `__all__`, and no name besides."""
    assert "CostModel" in costmodel.__all__
    for name in costmodel.__all__:
        assert getattr(costmodel, name).__name__ == name
    with pytest.raises(AttributeError, match="Costmodel"):
        _ = costmodel.Costmodel
