"""`costmodel systems`."""

from costmodel.cli import app
from costmodel.cli.options import Context, JsonOption, StoreOption, ThreadsOption
from costmodel.cli.output import console, print_json


@app.command()
def systems(threads: ThreadsOption = 1, store: StoreOption = None, json: JsonOption = False) -> None:
    """The systems that are measured or catalogued, and this host."""
    from costmodel.systems import catalogue
    from costmodel.training.artefact import champion_of

    context = Context(store)
    here = context.here(None, threads)[1]
    opened = context.store
    known, bundles = opened.systems(), context.home.bundles
    counts = {name: len(opened.latencies_us(name)) for name in known}
    champions = {name: champion_of(bundles, name) for name in known}
    entries = catalogue()
    if json:
        print_json(
            {
                "here": here.to_dict(),
                "systems": [
                    {
                        **system.to_dict(),
                        "measurements": counts[name],
                        "champion": None if champions[name] is None else champions[name].name,  # type: ignore[union-attr]
                    }
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
    from rich.table import Table

    table = Table("system", "measured", "regressor", "GEMM GFLOP/s", "memory GB/s", box=None, header_style="bold")
    for name, system in known.items():
        able, champion = system.capabilities, champions[name]
        table.add_row(
            name, str(counts[name]), champion.name if champion else "-",
            f"{able.get('gemm_gflops', 0):.0f}", f"{able.get('memory_gbps', 0):.1f}",
        )  # fmt: skip
    for name in entries:
        if name not in known:
            table.add_row(name, "-", "-", "-", "-", style="dim")
    out = console()
    out.print(f"This host is {here.name}" + ("" if here.name in known else ", not measured yet: `costmodel bench`"))
    out.print(table)
