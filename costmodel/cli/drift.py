"""Implements `costmodel drift`, which compares observed with predicted latencies."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption
from costmodel.cli.output import print_json, print_table, say

__all__ = ["drift"]


@app.command()
def drift(
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Only this system.", show_default=False),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show how far observed latencies are from predictions."""
    from costmodel.serving.observations.drift import LEAST_OBSERVATIONS
    from costmodel.serving.observations.observations import Observations
    from costmodel.systems.names import validate_name

    context = Context(store, reads=True)
    observations = Observations(context.store_url or context.home.store_url, create=not context.store_url)
    names = observations.systems() if system is None else [validate_name(system)]
    drifts = [observations.drift(name) for name in names]
    if json:
        print_json({"systems": drifts})
        return
    if not any(one.observations for one in drifts):
        say("Nobody has reported a latency yet: POST /v1/observations")
        return
    print_table(
        ("system", "state", "drift", "error", "inside", "obs.", "models", "owners"),
        [
            (
                one.system, "drifted" if one.drifted else "ok" if one.judged else "too few",
                *("-" if value is None else form.format(value) for value, form in
                  ((one.ratio, "{:.3f}"), (one.error, "{:.1%}"), (one.covered, "{:.0%}"))),
                str(one.observations), str(one.models), str(one.owners),
            )
            for one in drifts
        ],
        left=2,
    )  # fmt: skip
    legend = "drift: observed over predicted latency; error: its distance from 1; inside: share within the interval"
    say(legend, style="dim")
    if not all(one.judged for one in drifts):
        say(f"too few: it takes {LEAST_OBSERVATIONS} observations of one token to tell", style="dim")
    for one in drifts:
        if one.drifted:
            say(f"{one.system} has drifted: measure it and train again")
