"""Options that several commands share, and what they resolve to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from costmodel.home import Home
    from costmodel.runtimes import Runtime
    from costmodel.store import Store
    from costmodel.systems import System

__all__ = [
    "Context",
    "GranularityOption",
    "JsonOption",
    "ShapeOption",
    "StoreOption",
    "SystemOption",
    "ThreadsOption",
]

SystemOption = Annotated[
    str | None,
    typer.Option("--system", metavar="NAME", help="The system; by default this host.", show_default=False),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", envvar="COSTMODEL_STORE", show_default=False,
        help="Results store, an SQLAlchemy URL; by default SQLite in the data folder.",
    ),
]  # fmt: skip
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=1, help="Threads a layer may use, for this host's own system.")
]
GranularityOption = Annotated[int, typer.Option("--granularity", "-G", min=1, help="The most layers in a sequence.")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,224,224", help="Shape of an input; may be given several times."),
]


@dataclass
class Context:
    """What a command works with, opened when it is first needed."""

    store_url: str | None = None

    @property
    def home(self) -> "Home":
        """Where everything is kept."""
        from costmodel.home import find_home

        return find_home()

    @property
    def store(self) -> "Store":
        """The results store."""
        from costmodel.store import Store

        return Store(self.store_url or self.home.store_url)

    def here(
        self, name: str | None, threads: int, *, level: str = "all", asserted: bool = False
    ) -> "tuple[Runtime, System]":
        """This host's runtime, and this host as a system under `name`."""
        from costmodel.runtimes import RuntimeSettings, get_runtime
        from costmodel.systems import this_system

        runtime = get_runtime()
        return runtime, this_system(runtime, RuntimeSettings(threads, level), name, asserted=asserted)

    def system_name(self, name: str | None, threads: int) -> str:
        """`name`, or what this host is called."""
        from costmodel.systems import validate_name

        return validate_name(name) if name is not None else self.here(None, threads)[1].name


def parse_shapes(given: list[str] | None) -> dict[str, tuple[int, ...]]:
    """The shapes of `--shape`.

    Raises:
        typer.BadParameter: One is not of the form INPUT=1,3,224,224.
    """
    from costmodel.units import parse_shape

    try:
        return dict(parse_shape(text) for text in given or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
