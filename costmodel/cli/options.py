"""Command-line options that several commands share, and the parsers of their values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from datetime import datetime

    from costmodel.partition.granularity import Granularity

__all__ = [
    "BatchOption",
    "GranularityOption",
    "InterThreadsOption",
    "JsonOption",
    "LevelOption",
    "ObjectiveOption",
    "PriceOption",
    "RuntimeOption",
    "ShapeOption",
    "StoreOption",
    "SystemOption",
    "ThreadsOption",
    "one_of",
    "parse_budget_s",
    "parse_expiry",
    "parse_granularity",
    "parse_prices",
    "parse_shapes",
    "parse_values",
    "parsed",
]

_Parsed = TypeVar("_Parsed")


def one_of(choices: Callable[[], tuple[str, ...]]) -> Callable[[str], str]:
    """Returns a callback that refuses a value of an option unless `choices()`, called for each value, contains it."""

    def check(value: str) -> str:
        if value not in choices():
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices())}")
        return value

    return check


def _levels() -> tuple[str, ...]:
    from costmodel.runtimes.base import LEVELS

    return LEVELS


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
    int, typer.Option("--threads", min=1, help="Threads that a layer may use, where the system is this host.")
]
RuntimeOption = Annotated[
    str,
    typer.Option(
        "--runtime", metavar="NAME", envvar="COSTMODEL_RUNTIME",
        help="Runtime of the system, where that is this host: onnxruntime or openvino.",
    ),
]  # fmt: skip
InterThreadsOption = Annotated[
    int, typer.Option("--inter-threads", min=1, help="Layers of a model that may run at the same time.")
]
LevelOption = Annotated[
    str,
    typer.Option("--level", callback=one_of(_levels), help="Optimisation level: none, basic, extended or all."),
]
GranularityOption = Annotated[
    str,
    typer.Option(
        "--granularity", "-G", metavar="N|auto",
        help="Maximum number of layers in a sequence; auto: chosen for each model by expected error.",
    ),
]  # fmt: skip
BatchOption = Annotated[int | None, typer.Option("--batch", help="Size of the batch, where it is symbolic.")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,224,224", help="Shape of an input; may be given several times."),
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--value", metavar="INPUT=1",
        help="Value of an input that controls what the model does, such as use_cache_branch, which becomes a "
        "constant; may be given several times.",
    ),
]  # fmt: skip

ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--slo", metavar="pNN=LATENCY", help="Latency that must not be exceeded: p99=50ms.", show_default=False
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option(
        "--price", metavar="USD", min=0, show_default=False,
        help="Price of one machine in dollars an hour; by default the catalogue's.",
    ),
]  # fmt: skip


def parse_shapes(texts: list[str] | None) -> Mapping[str, tuple[int, ...]]:
    """Parses the values of `--shape` into the shape of each input, by name of the input.

    Raises:
        typer.BadParameter: A value is not of the form INPUT=1,3,224,224.
    """
    from costmodel.units import parse_shape

    return dict(parsed(parse_shape, text, "--shape") for text in texts or ())


def parse_values(texts: list[str] | None) -> Mapping[str, float]:
    """Parses the values of `--value` into the value of each input, by name of the input.

    Raises:
        typer.BadParameter: A value is not of the form INPUT=1.
    """
    from costmodel.units import parse_value

    return dict(parsed(parse_value, text, "--value") for text in texts or ())


def parsed(parse: Callable[[str], _Parsed], text: str, option: str) -> _Parsed:
    """Returns what `parse` makes of the value of an option.

    Raises:
        typer.BadParameter: `parse` raises a ValueError, whose text becomes the message.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def parse_budget_s(text: str | None) -> float | None:
    """Parses the value of `--budget` into seconds; None stays None.

    Raises:
        typer.BadParameter: `text` is not a duration.
    """
    from costmodel.units import parse_duration_s

    return None if text is None else parsed(parse_duration_s, text, "--budget")


def parse_expiry(text: str | None) -> "datetime | None":
    """Parses the value of `--expires` into the time at which a token expires; None stays None.

    The value is a duration from now, or a day: the token then expires when that day begins (UTC).

    Raises:
        typer.BadParameter: `text` is neither a duration nor a day, or the time is past.
    """
    from datetime import UTC, datetime, timedelta

    from costmodel.units import parse_duration_s

    if text is None:
        return None
    now = datetime.now(UTC)
    try:
        if text.count("-") == 2:
            expires = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        else:
            expires = now + timedelta(seconds=parse_duration_s(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{text!r} is neither a duration such as 90d nor a day such as {now.year + 1}-01-31", param_hint="--expires"
        ) from error
    if expires <= now:
        raise typer.BadParameter(f"{text} is in the past: the token would never be valid", param_hint="--expires")
    return expires


def parse_granularity(text: str) -> "Granularity":
    """Parses the value of `--granularity`: a number or "auto".

    Raises:
        typer.BadParameter: `text` is neither a number from 1 on nor "auto".
    """
    from costmodel.partition.granularity import AUTO

    if text == AUTO:
        return AUTO
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise typer.BadParameter(f"{text!r} is neither a number from 1 on nor auto", param_hint="--granularity")
    return int(text)


def parse_prices(texts: list[str] | None) -> dict[str, float]:
    """Parses the values of `--price`, such as "c5.xlarge=0.17", into dollars an hour by name of the system."""
    prices = {}
    for text in texts or ():
        name, equals, usd = text.rpartition("=")
        try:
            prices[name] = float(usd)
        except ValueError:
            equals = ""
        if not equals or not name or not 0 <= prices[name] < float("inf"):
            raise typer.BadParameter(f"{text!r} is no price: write it like c5.xlarge=0.17", param_hint="--price")
    return prices
