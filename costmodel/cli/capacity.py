"""Implements `costmodel capacity`, which says how much traffic a model carries on a system."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from costmodel.cli import app
from costmodel.cli.context import Context
from costmodel.cli.options import (
    JsonOption,
    ObjectiveOption,
    PriceOption,
    ShapeOption,
    StoreOption,
    SystemOption,
    ValueOption,
    one_of,
    parse_shapes,
    parse_values,
    parsed,
)
from costmodel.cli.output import note, print_json, say

if TYPE_CHECKING:
    from costmodel.serving.capacity import Capacity
    from costmodel.traffic.scenarios import Scenario

__all__ = ["capacity"]


def _scenarios() -> tuple[str, ...]:
    from costmodel.traffic.scenarios import SCENARIOS

    return SCENARIOS


@app.command()
def capacity(
    command: typer.Context,
    model: Annotated[str, typer.Argument(help="ONNX file, or the name of a model of a corpus.")],
    system: SystemOption = None,
    slo: ObjectiveOption = None,
    arrivals: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Rate of requests to carry: 120/s, 7200/min, 400000/h.", show_default=False),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Number of replicas; by default as many as are needed.", show_default=False),
    ] = None,
    batch_policy: Annotated[
        str, typer.Option(metavar="POLICY", help="How requests are joined to batches: none, or max=8,wait=5ms.")
    ] = "none",
    scenario: Annotated[
        str,
        typer.Option(callback=one_of(_scenarios), help="server, offline, single-stream or multi-stream, as in MLPerf."),
    ] = "server",
    price: PriceOption = None,
    measure_idle: Annotated[
        bool,
        typer.Option("--measure-idle", help="First measure on this host, for 3 seconds, what an idle time costs."),
    ] = False,
    shape: ShapeOption = None,
    value: ValueOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Say how many requests a second a model carries.

    Also says how many replicas a rate of requests needs, which latencies users then see, and what it costs.

    Simulates the queue of requests from the latencies of the model at several batch sizes, from the states in which the
    system was measured, and from what an idle time costs there.
    """
    from costmodel.api import CostModel
    from costmodel.cli.predict import labelled
    from costmodel.cli.unmeasured import extrapolate_if_unknown
    from costmodel.traffic.objective import parse_batch_policy, parse_objective, parse_rate_per_s

    if slo is not None:
        parsed(parse_objective, slo, "--slo")
    parsed(parse_batch_policy, batch_policy, "--batch-policy")
    arrivals_per_s = None if arrivals is None else parsed(parse_rate_per_s, arrivals, "--arrivals")
    if scenario == "server" and slo is None:
        raise typer.BadParameter("the scenario server needs a latency objective, such as p99=50ms", param_hint="--slo")
    files = list(labelled([model]).values())
    if len(files) != 1:
        raise typer.BadParameter(f"{model} stands for {len(files)} models: give one", param_hint="MODEL")
    context = Context(store, tools=command.obj)
    name = context.asked_system(system, 1)
    extrapolate_if_unknown(context, name, None, 1)
    if measure_idle:
        _measure_idle(context, name)
    found = CostModel.load(name, store=store, runtime=context.tools.runtime).capacity(
        files[0], slo=slo, arrivals_per_s=arrivals_per_s, replicas=replicas, batch_policy=batch_policy,
        scenario=cast("Scenario", scenario), shapes=parse_shapes(shape), values=parse_values(value),
        usd_per_hour=price,
    )  # fmt: skip
    if json:
        print_json(found)
        return
    _print(found)
    for warning in found.warnings:
        note(warning)


def _measure_idle(context: Context, name: str) -> None:
    from costmodel.jobs.idle import measure_idle
    from costmodel.traffic.idle import measured_idle_effects
    from costmodel.units import format_us

    settings = context.store.system(name).settings
    runtime, here = context.here(
        name, settings.threads, level=settings.level, inter_threads=settings.inter_threads
    )  # fmt: skip
    found = measured_idle_effects(measure_idle(context.store, here, runtime).capabilities)
    assert found is not None
    note(
        f"after a long idle time, a run takes {format_us(found.extra_us)} longer and its thread wakes up after "
        f"{format_us(found.wake_up_us)}"
    )


def _print(found: "Capacity") -> None:
    from costmodel.units import format_us, format_usd

    result = found.result
    objective = "" if found.slo_us is None else f", {found.objective} <= {format_us(found.slo_us)}"
    say(f"{found.model} on {found.system}: {found.scenario}{objective}, batches {found.batch_policy}", style="bold")
    latencies = ", ".join(f"batch {one.batch_size} {format_us(one.latency_us)}" for one in found.latencies)
    say(f"  runs take  {latencies}")
    low, high = (_per_s(rate) for rate in found.highest_rate_interval_per_s)
    if found.scenario == "server" and not found.highest_rate_per_s:
        say("  highest    no rate meets the objective: a request that finds nobody waiting already takes too long")
    else:
        say(f"  highest    {_per_s(found.highest_rate_per_s)} for one replica, interval {low} to {high}")
    if found.arrivals_per_s is not None and found.replicas is not None:
        verb = "needs" if result.meets is not False else "exceeds what is carried by"
        say(f"  replicas   {_per_s(found.arrivals_per_s)} {verb} {found.replicas}")
    seen = [f"{name} {format_us(us)}" for name, us in _percentiles(found).items() if us is not None]
    rate = "" if result.rate_per_s is None else f" at {_per_s(result.rate_per_s)}"
    if seen:
        say(f"  users see  {', '.join(seen)}{rate}")
    elif found.scenario == "server":
        say(f"  users see  a queue that grows without end{rate}: {_per_s(result.throughput_per_s)} are answered")
    if result.share_within is not None:
        say(
            f"  objective  {'met' if result.meets else 'not met'}, {result.share_within:.2%} of the requests are within"
        )
    say(
        f"  replicas   {result.replicas}, busy {result.utilisation:.0%} of the time, {_per_s(result.throughput_per_s)} "
        f"in batches of {result.mean_batch:.1f} on average{'' if result.shared_queue else ', each with its own queue'}"
    )
    if found.scenario == "server":
        say(f"  when idle  a request after a long idle time takes {format_us(found.idle_delay_us)} longer")
    if found.usd_per_million is not None and found.usd_per_hour is not None:
        say(
            f"  cost       {format_usd(found.usd_per_hour)} an hour, {format_usd(found.usd_per_million)} per million "
            "requests"
        )


def _percentiles(found: "Capacity") -> dict[str, float | None]:
    result = found.result
    percentiles = {"p50": result.p50_us, "p90": result.p90_us, "p99": result.p99_us}
    if found.objective is not None and result.objective_us is not None:
        percentiles[found.objective] = result.objective_us
    return percentiles


def _per_s(rate: float) -> str:
    return f"{rate:.1f}/s" if rate < 1000 else f"{rate:.0f}/s"
