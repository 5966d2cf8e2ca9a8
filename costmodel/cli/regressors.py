"""Implements `costmodel regressors`, which lists the trained regressors."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption
from costmodel.cli.output import print_json, print_table, say

__all__ = ["regressors"]


@app.command()
def regressors(
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Only the regressors of this system.", show_default=False),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the trained regressors, champions among them."""
    from costmodel.systems.names import validate_name
    from costmodel.training.listing import list_regressors

    only = None if system is None else validate_name(system)
    trained = list_regressors(Context(store).bundles, only)
    if json:
        print_json({"regressors": [one.to_dict() for one in trained]})
        return
    if not trained:
        say("Nothing is trained" + (f" for {only}" if only else "") + " yet: `costmodel train`")
        return
    rows = [
        (
            one.system, one.version, one.name or "-", _state(one.champion, one.usable),
            (one.trained_at or "-")[:10],
            "-" if one.model_mape is None else f"{one.model_mape:.1%}",
            "-" if one.rows is None else str(one.rows),
        )
        for one in trained
    ]  # fmt: skip
    print_table(("system", "version", "regressor", "state", "trained", "model MAPE", "rows"), rows, left=5)


def _state(champion: bool, usable: bool) -> str:
    return " ".join([*(["champion"] if champion else []), *([] if usable else ["unusable"])])
