"""Which file may import what, read from the files themselves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import costmodel

ROOT = Path(__file__).parents[1]
ROOMS = ("domain", "features", "training", "serving")  # each may import those before it
ENTRY_POINTS = (
    "adapting.py", "api.py", "asking.py", "budget.py", "jobs.py", "latencies.py", "rechecking.py", "suggesting.py",
    "__init__.py", "__main__.py",
)  # fmt: skip
HEAVY = (
    "onnxruntime", "torch", "torch_geometric", "transformers", "lightgbm", "mlflow", "optuna", "sklearn", "matplotlib",
    "fastapi", "httpx", "uvicorn", "onnx",
)  # fmt: skip


def _in(folder: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")}


# What only some files may import, and that at least one of them does.
HOMES = {
    "onnxruntime": {
        "costmodel/runtimes/ort.py",
        "costmodel/runtimes/ort_session.py",
        "training/corpora/quantised.py",
    },
    "torch": {
        *_in("training/corpora"),
        "training/gnn.py",
        "training/gnn_network.py",
        "costmodel/torch_export.py",
        "costmodel/api.py",  # for type checkers
    },
    "torch_geometric": {"training/gnn_network.py"},
    "transformers": _in("training/corpora"),
    "matplotlib": {"costmodel/drawing.py"},
    "lightgbm": {"training/boosted.py"},
    "onnxmltools": {"training/boosted.py"},
    "mlflow": {"training/tracking.py"},
    "optuna": {"training/search.py"},
    "sklearn": {"training/baselines.py"},
    "sqlalchemy": {
        *_in("costmodel/migrations"),
        "costmodel/database.py",
        "costmodel/engine.py",
        "costmodel/observations.py",
        "costmodel/store.py",
        "costmodel/store_url.py",
        "costmodel/tables.py",
    },
    "alembic": _in("costmodel/migrations"),
    "pyarrow": {"costmodel/transfer.py"},
    "typer": _in("costmodel/cli"),
    "fastapi": _in("serving/http"),
    "starlette": _in("serving/http"),
    "uvicorn": {"serving/http/protocol.py", "serving/http/run.py"},
    "httpx": {"costmodel/client.py"},
    "opentelemetry": {"serving/http/tracing.py"},
    "prometheus_client": {"serving/http/telemetry.py"},
    "pydantic_settings": {"serving/http/settings.py"},
    "rich": {"costmodel/cli/output.py"},
}


@dataclass(frozen=True)
class Import:
    """One imported module, and whether that happens only when a function runs or for type checkers."""

    file: str
    line: int
    module: str
    late: bool

    def __str__(self) -> str:
        """Where to look."""
        return f"{self.file}:{self.line} imports {self.module}"


def _files() -> Iterator[Path]:
    for folder in ("costmodel", "features", "training", "serving"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent.resolve() == path.parent:  # the rooms themselves, not their symlinks
                yield path


def _imports(path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, late: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(str(path.relative_to(ROOT)), node.lineno, a.name, late) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = str(node.module)
            # `from costmodel import features` imports a room as well as `from costmodel.features import ...` does.
            names = [f"{module}.{a.name}" for a in node.names] if module == "costmodel" else [module]
            yield from (Import(str(path.relative_to(ROOT)), node.lineno, name, late) for name in names)
        for child in ast.iter_child_nodes(node):
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and child in node.body
            yield from visit(child, late or function or checking)

    yield from visit(ast.parse(path.read_text()), late=False)


IMPORTS = [found for path in _files() for found in _imports(path)]


def _room_of_file(file: str) -> str:
    folder, *rest = Path(file).parts
    if folder != "costmodel":
        return folder
    return "entry" if rest[0] == "cli" or (len(rest) == 1 and rest[0] in ENTRY_POINTS) else "domain"


def _room_of_module(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "costmodel" or len(parts) == 1:
        return None
    if parts[1] in ROOMS[1:]:
        return parts[1]
    return "entry" if parts[1] == "cli" or f"{parts[1]}.py" in ENTRY_POINTS else "domain"


def test_imports_flow_one_way() -> None:
    """Domain, features, training, serving: each imports itself and those before it, and none an entry point."""
    wrong = [
        str(i)
        for i in IMPORTS
        if (home := _room_of_file(i.file)) != "entry"
        and (used := _room_of_module(i.module)) is not None
        and (used == "entry" or ROOMS.index(used) > ROOMS.index(home))
    ]
    assert wrong == []


def test_entry_points_look_across_lazily() -> None:
    """Only when a command or a query runs, or for type checkers, does an entry point import another room."""
    wrong = [
        str(i)
        for i in IMPORTS
        if _room_of_file(i.file) == "entry" and _room_of_module(i.module) in ROOMS[1:] and not i.late
    ]
    assert wrong == []


@pytest.mark.parametrize("package", HOMES)
def test_each_heavy_package_has_one_home(package: str) -> None:
    """A package that may be replaced one day is imported where that would be felt, and nowhere else."""
    users = {i.file for i in IMPORTS if i.module.split(".")[0] == package}
    assert users
    assert users <= HOMES[package]


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
    with pytest.raises(AttributeError, match="no attribute 'Costmodel'"):
        _ = costmodel.Costmodel
