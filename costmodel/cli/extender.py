"""Implements `costmodel extender`, which decides for kube-scheduler by predicted latencies."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from costmodel.cli import app
from costmodel.cli.options import JsonOption, one_of, parse_prices
from costmodel.cli.output import print_json, say

if TYPE_CHECKING:
    from costmodel.serving.extender.settings import ErrorPolicy, Score, UnknownPolicy

__all__ = ["extender"]


def _unknown() -> tuple[str, ...]:
    from costmodel.serving.extender.settings import UNKNOWN_POLICIES

    return UNKNOWN_POLICIES


def _on_error() -> tuple[str, ...]:
    from costmodel.serving.extender.settings import ERROR_POLICIES

    return ERROR_POLICIES


def _scores() -> tuple[str, ...]:
    from costmodel.serving.extender.settings import SCORES

    return SCORES


@app.command()
def extender(
    server: Annotated[
        str, typer.Option(metavar="URL", envvar="COSTMODEL_SERVER", help="URL of the service that predicts.")
    ] = "http://127.0.0.1:8000",
    token: Annotated[
        str | None,
        typer.Option(envvar="COSTMODEL_TOKEN", show_default=False, help="Token for the service, if it needs one."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")] = 8888,
    unknown: Annotated[
        str,
        typer.Option(
            callback=one_of(_unknown), help="Nodes without a system label, or without a prediction: keep or remove."
        ),
    ] = "keep",
    on_error: Annotated[
        str,
        typer.Option(
            callback=one_of(_on_error),
            help="While the service does not respond: ignore (keep all nodes) or fail (the pod waits).",
        ),
    ] = "ignore",
    score: Annotated[
        str, typer.Option(callback=one_of(_scores), help="Prefer nodes by predicted latency or cost.")
    ] = "latency",
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD", help="Price of a system in dollars an hour; several times.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.01, help="Network timeout in seconds of a request to the service.")
    ] = 1.0,
    cache: Annotated[
        float, typer.Option(min=0.0, help="Seconds for which predictions and node labels are kept.")
    ] = 30.0,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="API server that is asked for the labels of nodes; by default that of the cluster it runs in.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Start a scheduler extender for Kubernetes.

    It removes the nodes on which a pod would exceed its latency objective, and scores the others.
    """
    from costmodel.serving.extender.cluster import cluster_url
    from costmodel.serving.extender.run import run_extender
    from costmodel.serving.extender.settings import ExtenderSettings

    settings = ExtenderSettings(
        server,
        token,
        unknown=cast("UnknownPolicy", unknown),
        on_error=cast("ErrorPolicy", on_error),
        score=cast("Score", score),
        usd_per_hour=parse_prices(price),
        timeout_s=timeout,
        cache_s=cache,
        cluster=cluster or cluster_url(),
    )

    def announce(url: str) -> None:
        if json:
            print_json({"url": url, "server": server})
        else:
            say(f"Answering the scheduler at {url}; Ctrl-C ends it")

    run_extender(host, port, settings, announce)
