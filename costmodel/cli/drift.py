"""`costmodel drift`."""

from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption
from costmodel.cli.output import print_json, print_table, say

__all__ = ["drift"]


@app.command()
def drift(
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Only that system.", show_default=False),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """How far latencies that users saw are from predictions."""
    from costmodel.observations import Observations
    from costmodel.systems import validate_name

    context = Context(store, reads=True)
    observations = Observations(context.store_url or context.home.store_url, create=not context.store_url)
    names = observations.systems() if system is None else [validate_name(system)]
    found = [observations.drift(name) for name in names]
    if json:
        print_json({"systems": [one.to_dict() for one in found]})
        return
    if not any(one.observations for one in found):
        say("Nobody has reported a latency yet: POST /v1/observations")
        return
    # Short words in the table, so that it fits a terminal.
    say("ratio: observed over predicted latency; inside: share of observations within the interval")
    print_table(
        ("system", "ratio", "error", "inside", "observed", "models", "owners", "state"),
        [
            (
                one.system,
                *("-" if value is None else form.format(value) for value, form in
                  ((one.ratio, "{:.3f}"), (one.error, "{:.1%}"), (one.covered, "{:.0%}"))),
                str(one.observations), str(one.models), str(one.owners),
                "drifted" if one.drifted else "ok",
            )
            for one in found
        ],
    )  # fmt: skip
    if any(one.drifted for one in found):
        say("What has drifted is to be measured and trained again: `costmodel bench`, `costmodel train`")
