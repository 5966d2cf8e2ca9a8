"""Implements `costmodel systems`, which lists systems."""

import typer

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, ThreadsOption
from costmodel.cli.output import print_json, print_table, say

__all__ = ["systems"]


@app.command()
def systems(
    command: typer.Context, threads: ThreadsOption = 1, store: StoreOption = None, json: JsonOption = False
) -> None:
    """List the measured systems, the catalogue, and this host."""
    from costmodel.systems.catalogue import catalogue
    from costmodel.training.artefact import champion_of

    context = Context(store, reads=True, tools=command.obj)
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
    rows += [(name, "-", "-", "-", "-") for name in entries if name not in known]
    say(f"This host is {here.name}")
    if here.name not in known:
        say("It is not measured yet: `costmodel bench`")
    print_table(("system", "regressor", "measured", "GFLOP/s", "GB/s"), rows, left=2)
