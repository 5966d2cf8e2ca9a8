"""Implements `costmodel systems`, which lists systems, and tells what tenants of one of them observe."""

from dataclasses import asdict
from typing import Annotated

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, ThreadsOption
from costmodel.cli.output import print_json, print_table, say

__all__ = ["systems"]


@app.command()
def systems(
    command: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SYSTEM]", help="Show the states that this shared machine was in, and what they cost."),
    ] = None,
    threads: ThreadsOption = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """List the measured systems, the catalogue, and this host.

    Latencies are those of the quiet machine. With the name of a system, shows what its tenants observe: the share of
    the time that it spent in each state while it was measured, how many times as long whole models and layers take
    there, and the quantiles that follow.
    """
    from costmodel.systems.catalogue import catalogue
    from costmodel.training.artefact import champion_of

    context = Context(store, reads=True, tools=command.obj)
    if name is not None:
        _show_states(context, name, json=json)
        return
    here = context.here(None, threads)[1]
    known, bundles = context.store.systems(), context.bundles
    counts = {name: len(context.store.latencies_us(name)) for name in known}
    champions = {name: champion_of(bundles, name) for name in known}
    versions = {name: path.name if path is not None else None for name, path in champions.items()}
    entries = catalogue()
    if json:
        print_json(
            {
                "here": here.to_dict(),
                "systems": [
                    {**system.to_dict(), "measurements": counts[name], "champion": versions[name]}
                    for name, system in known.items()
                ],
                "catalogue": [
                    {
                        "name": e.name,
                        "vcpus": e.vcpus,
                        "memory_gib": e.memory_gib,
                        "usd_per_hour": e.usd_per_hour,
                    }
                    for e in entries.values()
                ],
            }
        )
        return
    rows = [
        (
            f"{name} (guessed)" if system.extrapolated else name,
            versions[name] or "-",
            str(counts[name]),
            f"{system.capabilities.get('gemm_gflops', 0):.0f}",
            f"{system.capabilities.get('memory_gbps', 0):.1f}",
        )
        for name, system in known.items()
    ]
    say(f"This host is {here.name}")
    if here.name not in known:
        say("It is not measured yet: `costmodel bench`")
    if rows:
        print_table(("system", "regressor", "measured", "GFLOP/s", "GB/s"), rows, left=2)
    guessable = [entry for name, entry in entries.items() if name not in known]
    if guessable:
        say("`costmodel predict --system NAME` and `costmodel rank` guess for machines that nobody measured here:")
    for processor in dict.fromkeys(entry.processor for entry in guessable):
        say(f"  {processor}: {', '.join(entry.name for entry in guessable if entry.processor == processor)}")


def _show_states(context: Context, name: str, *, json: bool) -> None:
    """Prints the states of a system, a column for each, and the quantiles that its tenants observe."""
    from costmodel.jobs.system_states import system_states
    from costmodel.measure.machine_state import QUIET

    found = system_states(context.store, name)
    if json:
        print_json({"system": name, **asdict(found)})
        return
    if not found.shares:
        say(f"The states of {name} are not recorded: only measurements since protocol 6 have them.")
    else:
        states = sorted(found.shares, key=lambda state: -found.shares[state])
        kinds = list(dict.fromkeys(kind for of_state in found.slowdowns.values() for kind in of_state))
        rows = [("share of the time", *(f"{found.shares[state]:.0%}" for state in states))]
        rows += [
            (
                kind,
                *("1.00" if state == QUIET else _factor(found.slowdowns.get(state, {}).get(kind)) for state in states),
            )
            for kind in kinds
        ]
        print_table(("times as long", *states), rows, left=1)
    if found.jitter:
        say("Users observe, times the latency: " + ", ".join(f"{q} {factor:.2f}" for q, factor in found.jitter.items()))


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
