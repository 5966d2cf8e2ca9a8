"""Shows estimates of models: tables for people, and a JSON document for programs."""

from collections.abc import Mapping
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from costmodel.cli.output import note, print_table, say

if TYPE_CHECKING:
    from costmodel.estimate.estimate import Estimate
    from costmodel.measure.measurement import Measurement

__all__ = ["estimates_document", "measured_document", "print_estimate", "print_estimates"]

_SLOWEST_LAYERS = 8
_UNRELIABLE = (
    "the measurement is uncertain, because the machine was busy meanwhile or the runs differ: measure again when it is "
    "quiet"
)
_MAX_NAMES = 3


def print_estimates(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> None:
    """Prints estimates by label: one in full, several as a table, and their warnings on standard error.

    Args:
        estimates: Estimates by label of the model.
        measured: Measurements of the same models end to end, as far as there are any.
    """
    if len(estimates) > 1:
        _print_many(estimates, measured)
    for label, estimate in estimates.items():
        if len(estimates) == 1:
            print_estimate(estimate, measured.get(label))
        for warning in estimate.warnings:
            note(f"{label}: {warning}" if len(estimates) > 1 else warning)


def estimates_document(
    estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]", failed: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the JSON document about estimates: that of the only one, or a list of them.

    Args:
        estimates: Estimates by label of the model.
        measured: Measurements of the same models end to end, as far as there are any.
        failed: Reasons why other models have no estimate, by label.
    """
    documents = []
    for label, estimate in estimates.items():
        document: dict[str, Any] = {**estimate.to_dict()}
        if label in measured:
            document |= measured_document(estimate, measured[label])
        documents.append(document)
    if len(documents) == 1 and not failed:
        return documents[0]
    result: dict[str, Any] = {"models": documents, "failed": failed}
    if measured:
        ratios = _ratios(estimates, measured)
        result["geometric_mean_ratio"] = geometric_mean(ratios) if ratios else None
    return result


def measured_document(estimate: "Estimate", measured: "Measurement") -> dict[str, Any]:
    """Returns the entries of a JSON document that compare the estimate of a model with its measurement."""
    return {
        "measured_us": measured.latency_us,
        "measured_interval_us": list(measured.interval_us),
        "measured_stable": measured.stable,
        "ratio": estimate.latency_us / measured.latency_us,
    }


def _ratios(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> list[float]:
    """Returns the estimated latency of each measured model divided by the measured latency.

    Models of which no layer has a cost are left out.
    """
    return [
        estimates[label].latency_us / measurement.latency_us
        for label, measurement in measured.items()
        if estimates[label].latency_us
    ]


def print_estimate(estimate: "Estimate", measured: "Measurement | None" = None) -> None:
    """Prints one estimate: the latency, what share of it comes from which source, and the slowest layers."""
    from costmodel.partition.decomposition import FIXED
    from costmodel.units import format_bytes, format_us

    low, high = estimate.interval_us
    say(f"{estimate.model} on {estimate.system}", style="bold")
    if estimate.unpriced:
        missing = f"{len(estimate.unpriced)} of {len(estimate.layers)} have no cost"
        say(f"  at least  {format_us(estimate.latency_us)}   {missing}")
    else:
        say(
            f"  latency   {format_us(estimate.latency_us)}   "
            f"{estimate.interval_level:.0%} interval {format_us(low)} to {format_us(high)}"
        )
    if estimate.beside:
        least, most = estimate.slowdown_interval
        say(
            f"  beside    {', '.join(estimate.beside)}: {estimate.slowdown:.2f} times as long as alone "
            f"({least:.2f} to {most:.2f}); the layers below are alone"
        )
    if measured is not None:
        error = estimate.latency_us / measured.latency_us - 1
        low, high = measured.interval_us
        say(
            f"  measured  {format_us(measured.latency_us)}   90% interval {format_us(low)} to {format_us(high)}; "
            f"the estimate is {error:+.1%} off"
        )
        if not measured.stable:
            say(f"            {_UNRELIABLE}")
    quantiles = ", ".join(f"{q} {format_us(us)}" for q, us in estimate.quantiles_us.items())
    say(f"  users see {quantiles or 'unknown: how much latencies vary was never measured on this system'}")
    if estimate.peak_memory_bytes is not None and estimate.peak_memory_interval_bytes is not None:
        bounds = " to ".join(map(format_bytes, estimate.peak_memory_interval_bytes))
        say(f"  memory    {format_bytes(estimate.peak_memory_bytes)} at its peak, 90% interval {bounds}")
    if estimate.load_time_us is not None and estimate.first_run_us is not None:
        load, first = format_us(estimate.load_time_us), format_us(estimate.first_run_us)
        say(f"  start     {load} to load, {first} for the first run")
    shares = ", ".join(f"{share:.0%} {source}" for source, share in estimate.coverage.items() if share)
    say(f"  made of   {shares or 'nothing that has a cost'}")
    cover = "" if estimate.cover == FIXED else f"{estimate.cover} cover, "
    how = f"granularity {estimate.granularity}, {cover}{estimate.composition}"
    say(f"  over      {len(estimate.layers)} sequences, {how}")
    say()
    included = {one: one.share * one.cost.latency_us for one in estimate.layers if one.share}
    slowest = sorted(included, key=lambda one: -included[one])[:_SLOWEST_LAYERS]
    print_table(
        ("slowest layers", "operator", "source", "latency", "share"),
        [
            (
                _short(layer.name), _short(layer.op_type), layer.cost.source, format_us(layer.cost.latency_us),
                f"{included[layer] / (estimate.latency_us or 1.0):.1%}",
            )
            for layer in slowest
        ],
        left=3,
    )  # fmt: skip


def _short(names: str) -> str:
    """Shortens the name of a sequence ("a+b+c+d", its layers) to the first and last layer if it has many layers."""
    parts = names.split("+")
    return names if len(parts) <= _MAX_NAMES else f"{parts[0]}+{len(parts) - 2} more+{parts[-1]}"


def _print_many(estimates: "dict[str, Estimate]", measured: "dict[str, Measurement]") -> None:
    from costmodel.units import format_bytes, format_us

    rows = []
    for label, estimate in estimates.items():
        low, high = estimate.interval_us
        row = [label, format_us(estimate.latency_us), f"{format_us(low)} to {format_us(high)}",
               f"{estimate.coverage['measured']:.0%}",
               "-" if estimate.peak_memory_bytes is None else format_bytes(estimate.peak_memory_bytes)]  # fmt: skip
        if measured:
            of_model = measured[label]
            mark = "" if of_model.stable else " *"
            row += [format_us(of_model.latency_us) + mark, f"{estimate.latency_us / of_model.latency_us:.3f}"]
        rows.append(row)
    print_table(
        ["model", "latency", "interval", "measured share", "memory", *(["end to end", "ratio"] if measured else [])],
        rows,
    )
    if measured:
        if ratios := _ratios(estimates, measured):
            say(f"geometric mean of the ratios: {geometric_mean(ratios):.3f}")
        if not all(measurement.stable for measurement in measured.values()):
            say(f"* {_UNRELIABLE}")
