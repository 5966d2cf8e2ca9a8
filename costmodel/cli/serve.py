"""Implements `costmodel serve`, which starts the service, and `token` and `tokens`, which make and list its tokens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costmodel.cli import app
from costmodel.cli.options import JsonOption, StoreOption, parse_expiry
from costmodel.cli.output import note, print_json, print_table, say

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["list_tokens", "serve", "token"]


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; a non-loopback one needs --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 1,
    tokens: Annotated[
        Path | None, typer.Option(help="File of tokens, made with `costmodel token`.", envvar="COSTMODEL_SERVE_TOKENS")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Answer without tokens: a proxy in front of the service checks clients.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Start the HTTP service, which has a web page at /."""
    from costmodel.serving.http.run import run_service

    if not insecure and tokens is None and not _is_loopback(host):
        raise typer.BadParameter(
            f"{host} can be reached from elsewhere: give --tokens FILE (see `costmodel token`), or --insecure where "
            "something in front of the service checks who asks",
            param_hint="--host",
        )
    values = {"STORE": store, "TOKENS": tokens, "INSECURE": "true" if insecure else None}
    settings = {f"COSTMODEL_SERVE_{name}": str(value) for name, value in values.items() if value is not None}

    def announce(url: str) -> None:
        if json:
            print_json({"url": url, "workers": workers})
        else:
            say(f"Answering at {url}; Ctrl-C ends it")

    run_service(host, port, workers, settings, announce)


TokensOption = Annotated[
    Path, typer.Option("--tokens", help="File with the hashes of tokens.", envvar="COSTMODEL_SERVE_TOKENS")
]


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Name of the token's owner.")],
    scopes: Annotated[
        str,
        typer.Option(
            metavar="SCOPE,...",
            help="Permissions: predict (ask, and store models), observe (report latencies), metrics, admin (all).",
        ),
    ] = "predict,observe",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="90d|2027-01-31", show_default=False,
            help="How long the token is valid, or the day (UTC) on which it expires; by default it never expires.",
        ),
    ] = None,
    tokens: TokensOption = Path("tokens.txt"),
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Make a token for the service, and print it once.

    Only a hash of the token is stored.
    """
    from costmodel.serving.http.tokens import add_token

    until = parse_expiry(expires)
    allowed = tuple(dict.fromkeys(filter(None, scopes.replace(" ", "").split(","))))
    made = add_token(tokens, name, scopes=allowed, expires=until)
    if json:
        print_json({"name": name, "token": made, "file": str(tokens), "scopes": list(allowed), "expires": _text(until)})
        return
    say(made)
    note(f"its hash is in {tokens}: start the service with --tokens {tokens}")
    note(f"delete the line of {name} to revoke it: a running service sees that")


@app.command("tokens")
def list_tokens(tokens: TokensOption = Path("tokens.txt"), json: JsonOption = False) -> None:
    """List the service's tokens with scopes and expiry."""
    from datetime import UTC, datetime

    from costmodel.serving.http.tokens import SCOPES, Tokens

    found = Tokens.read(tokens).by_hash.values()
    now = datetime.now(UTC)
    rows = [
        (
            one.name,
            [scope for scope in SCOPES if scope in one.scopes],
            _text(one.expires),
            _has_expired(one.expires, now),
        )
        for one in found
    ]
    if json:
        keys = ("name", "scopes", "expires", "expired")
        print_json({"file": str(tokens), "tokens": [dict(zip(keys, row, strict=True)) for row in rows]})
        return
    shown = [
        (name, ",".join(scopes), (expires or "never") + (" (expired)" if expired else ""))
        for name, scopes, expires, expired in rows
    ]
    print_table(("name", "scopes", "expires"), shown, left=3)


def _has_expired(moment: "datetime | None", now: "datetime") -> bool:
    return moment is not None and moment <= now


def _text(moment: "datetime | None") -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
