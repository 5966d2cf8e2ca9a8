"""`costmodel serve` and `costmodel token`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import JsonOption, StoreOption
from costmodel.cli.output import note, print_json, say

__all__ = ["serve", "token"]


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; others than this host need --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = 1,
    tokens: Annotated[
        Path | None, typer.Option(help="File of tokens, made with `costmodel token`.", envvar="COSTMODEL_SERVE_TOKENS")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Answer strangers without tokens: something in front checks them.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Answer over HTTP, with a page for people at /."""
    from costmodel.serving.http.run import run

    if not insecure and tokens is None and not _loopback(host):
        raise typer.BadParameter(
            f"{host} can be reached from elsewhere: give --tokens FILE (see `costmodel token`), or --insecure where "
            "something in front of the service checks who asks",
            param_hint="--host",
        )
    given = {"STORE": store, "TOKENS": tokens, "INSECURE": "true" if insecure else None}
    settings = {f"COSTMODEL_SERVE_{name}": str(value) for name, value in given.items() if value is not None}

    def told(url: str) -> None:
        if json:
            print_json({"url": url, "workers": workers})
        else:
            say(f"Answering at {url}; Ctrl-C ends it")

    run(host, port, workers, settings, told)


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose it is.")],
    tokens: Annotated[
        Path, typer.Option(help="File that its hash is added to.", envvar="COSTMODEL_SERVE_TOKENS")
    ] = Path("tokens.txt"),
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do: predict, observe, metrics or admin (all of them). May be repeated; by default "
            "predict and observe.",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Day (UTC) from which on it is refused.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a token for the service, printed once.

    Only its hash is kept.
    """
    from costmodel.serving.http.tokens import SCOPES, USUAL_SCOPES, add_token

    scopes = sorted(set(scope or USUAL_SCOPES))
    unknown = [one for one in scopes if one not in SCOPES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(SCOPES)}", param_hint="--scope")
    until = None if expires is None else expires.replace(tzinfo=UTC)
    made = add_token(tokens, name, scopes=scopes, expires=until)
    if json:
        print_json(
            {
                "name": name, "token": made, "file": str(tokens), "scopes": scopes,
                "expires": None if until is None else until.isoformat(),
            }
        )  # fmt: skip
        return
    say(made)
    note(f"its hash is in {tokens}: start the service with --tokens {tokens}")
    note(f"delete the line of {name} to revoke it: a running service sees that")


def _loopback(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
