"""Implements `costmodel interference`, which measures how much models slow each other on this host."""

from math import isnan
from typing import TYPE_CHECKING

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import JsonOption, StoreOption, SystemOption, ThreadsOption
from costmodel.cli.output import note, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from costmodel.jobs.interference import InterferenceReport

__all__ = ["interference"]


@app.command()
def interference(
    command: typer.Context,
    system: SystemOption = None,
    threads: ThreadsOption = 1,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Measure how much models slow each other on this host.

    Takes about a minute. Layers that compute, stream, or read weights from the caches or from memory are run side by
    side on different CPUs. The result is stored with the system, and travels with it through `costmodel export` and
    `costmodel import`; `costmodel predict A.onnx --beside B.onnx` uses it.
    """
    from costmodel.jobs.interference import measure_interference

    context = Context(store, tools=command.obj)
    runtime, here = context.here(system, threads)
    with progress_bars() as stage:
        report = measure_interference(
            context.store, here, runtime, progress=stage("running layers side by side"), bench=context.bench
        )
    if not report.measured.near:
        note("the CPUs never shared a last-level cache meanwhile, so that layers hardly disturbed each other")
    if json:
        print_json(report.to_dict())
        return
    _print(report)


def _print(report: "InterferenceReport") -> None:
    keys = list(report.contenders)
    rows = [
        (report.contenders[key].name, *("-" if isnan(ratio) else f"{ratio:.2f}" for ratio in ratios))
        for key, ratios in zip(keys, report.measured.ratios.tolist(), strict=True)
    ]
    print_table(("times as long beside", *(key.replace("_", " ") for key in keys)), rows, left=1)
    law = report.law
    say(
        f"{report.system}: beside a layer that streams, waiting for memory takes {1 + law.memory:.2f} times as long; "
        f"beside one that computes, computing takes {1 + law.computing:.2f} times as long. The law is off by "
        f"{law.error:.1%} on average."
    )
    if law.near_share < 1:
        say(f"The CPUs shared a last-level cache at {law.near_share:.0%} of the checks; only these times count.")
