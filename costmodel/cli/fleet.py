"""Implements `costmodel worker`, and `costmodel bench` on the machines of a Dask cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import app
from costmodel.cli.bench_report import bench_document, bench_line
from costmodel.cli.context import Context
from costmodel.cli.options import (
    InterThreadsOption,
    JsonOption,
    LevelOption,
    RuntimeOption,
    SystemOption,
    ThreadsOption,
    parsed,
)
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.fleet.bench import FleetReport
    from costmodel.jobs.fleet.worker import Machine
    from costmodel.partition.granularity import Granularity

__all__ = ["bench_on", "worker"]


@app.command()
def worker(
    command: typer.Context,
    scheduler: Annotated[str, typer.Argument(help="Address of a Dask scheduler: tcp://head:8786.")],
    system: SystemOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            show_default=False,
            help="Name of this machine, stored with its measurements; by default that of the host.",
        ),
    ] = None,
    threads: ThreadsOption = 1,
    inter_threads: InterThreadsOption = 1,
    level: LevelOption = "all",
    runtime: RuntimeOption = "onnxruntime",
    assert_system: Annotated[
        bool, typer.Option("--assert-system", help="Assert that this host is the named system; marks the records.")
    ] = False,
    timeout: Annotated[str, typer.Option(help="How long to try to reach the scheduler.")] = "10s",
    json: JsonOption = False,
) -> None:
    """Offer this host to a fleet, for `costmodel bench --on`.

    Describes the host as a system, takes the measuring lock, and joins a Dask cluster as one worker, until Ctrl-C or
    until the scheduler ends. One worker runs on a host.
    """
    from costmodel.jobs.fleet.measuring_process import PROGRAM, MeasuringProcess
    from costmodel.jobs.fleet.worker import serve_machine
    from costmodel.units import parse_duration_s

    timeout_s = parsed(parse_duration_s, timeout, "--timeout")
    context = Context(tools=command.obj, runtime_name=runtime)
    _, here = context.here(system, threads, level=level, inter_threads=inter_threads, asserted=assert_system)

    def joined(machine: "Machine") -> None:
        if json:
            print_json({"machine": machine.name, "system": machine.system.name, "scheduler": scheduler})
            sys.stdout.flush()  # whoever started this process waits for it
        note(f"{machine.name} is in the cluster at {scheduler} as a machine of {machine.system.name}")

    process = MeasuringProcess(context.tools.measuring_program or PROGRAM)
    serve_machine(scheduler, here, name=name, process=process, joined=joined, timeout_s=timeout_s)
    note(f"this host has left the cluster at {scheduler}")


def bench_on(
    context: Context,
    scheduler: str | None,
    systems: str | None,
    targets: Sequence[str],
    granularity: "Granularity",
    level: str,
    budget_s: float | None,
    *,
    refused: Sequence[str],
    json: bool,
) -> None:
    """Measures on the machines of a cluster and prints a report for each system.

    Args:
        context: Store and runtime.
        scheduler: Value of `--on`.
        systems: Value of `--systems`.
        targets: Corpora, folders of models, models or benchmark suites.
        granularity: Maximum number of layers in a sequence.
        level: Optimisation level of the systems.
        budget_s: Seconds after which no further batch starts; None for no limit.
        refused: Options that were given and do not go with `--on`.
        json: Whether to print one JSON document.

    Raises:
        typer.BadParameter: An option is missing, or does not go with `--on`.
    """
    from costmodel.cluster import Cluster
    from costmodel.jobs.fleet.bench import bench_on_cluster
    from costmodel.systems.names import validate_name

    if scheduler is None or not systems:
        raise typer.BadParameter("one needs the other: --on tcp://scheduler:8786 --systems A,B", param_hint="--on")
    if refused:
        raise typer.BadParameter(f"cannot be used with {', '.join(refused)}", param_hint="--on")
    assert isinstance(granularity, int)
    names = list(dict.fromkeys(validate_name(part.strip()) for part in systems.split(",")))
    with Cluster.connect(scheduler) as cluster, progress_bars() as stage:
        reports = bench_on_cluster(
            context.store,
            cluster,
            names,
            context.runtime,
            targets,
            context.home.cache,
            level=level,
            granularities=[granularity],
            budget_s=budget_s,
            progress=stage,
            note=note,
        )
    failed = {f"{what} on {name}": why for name, found in reports.items() for what, why in found.report.failed.items()}
    for what, why in failed.items():
        note(f"{what} was not measured: {why}")
    if json:
        print_json({"systems": [_document(name, found) for name, found in reports.items()]})
        return
    for name, found in reports.items():
        say(f"{name}: {bench_line(found.report)}")
        _print_machines(found)
    if any(found.report.left for found in reports.values()):
        say("The budget is spent: run the same command again to go on.")


def _print_machines(found: "FleetReport") -> None:
    """Prints how far the machines of a system differ, if it has several."""
    machines = found.machines
    if machines.spread is None:
        return
    say(
        f"  {len(machines.relative_latency)} machines differ by {machines.spread:.1%}, by {machines.sequences} layers "
        "that each of them measured:"
    )
    rows = sorted(machines.relative_latency.items(), key=lambda item: item[1])
    print_table(("machine", "against the median machine"), [(name, f"{ratio - 1:+.1%}") for name, ratio in rows])


def _document(name: str, found: "FleetReport") -> dict[str, Any]:
    return {
        "system": name,
        **bench_document(found.report),
        "machines": {
            "spread": found.machines.spread,
            "sequences": found.machines.sequences,
            "relative_latency": dict(found.machines.relative_latency),
        },
    }
