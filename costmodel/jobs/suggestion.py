"""The job of `costmodel bench --suggest`: finds the sequences that are most worth measuring next."""

from dataclasses import dataclass, replace

from costmodel.errors import UnknownSystemError
from costmodel.measure.measurement import Protocol
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["Suggestion", "suggest"]


@dataclass(frozen=True)
class Suggestion:
    """A sequence that is worth measuring.

    Attributes:
        signature: Signature of the sequence.
        kind: Operators of the sequence.
        uncertainty: Spread of the predictions of the sequence, as a share of its cost.
        models: Number of models that contain the sequence.
        share: Share of the sequence in the latency of a model, averaged over the models.
        latency_us: Expected latency of the sequence in microseconds.
        seconds: Expected time in seconds that measuring the sequence in isolation takes.
    """

    signature: str
    kind: str
    uncertainty: float
    models: int
    share: float
    latency_us: float
    seconds: float


def suggest(store: Store, system: System, count: int, *, protocol: Protocol | None = None) -> list[Suggestion]:
    """Returns the sequences that are most worth measuring on a system, best first; measures nothing.

    Args:
        store: Store with the models and the measurements.
        system: System on which the sequences would be measured.
        count: Maximum number of sequences to return.
        protocol: Measurement protocol, which decides how long measuring takes; by default the usual one.

    Raises:
        UnknownSystemError: The store knows neither the system's capabilities nor a measured system to stand in for it.
        TrainingError: There are too few models to choose from.
    """
    from costmodel.training.adaptation import load_adaptation
    from costmodel.training.suggestion import worth

    base = _best_base(store, system)
    if not system.capabilities:
        if base is None:
            raise UnknownSystemError(
                f"nothing is known of the system {system.name}, nor of one like it: run `costmodel bench` first"
            )
        system = replace(system, capabilities=store.system(base).capabilities)
    adaptation = load_adaptation(store, base, system)
    known = store.latencies_us(system.name)
    state = adaptation.learn(known)
    shares = adaptation.shares(state)
    values = worth(shares, state.spread)
    uses = [0] * len(adaptation.dataset)
    for usage in adaptation.usages:
        for row in usage.unique:
            uses[row] += 1
    times = adaptation.prices(state, protocol or Protocol())
    ranked = [
        (
            values[row] / seconds,
            Suggestion(
                adaptation.dataset.signatures[row],
                adaptation.dataset.kinds[row],
                float(state.spread[row]),
                uses[row],
                float(shares[row]),
                float(state.costs_us[row]),
                seconds,
            ),
        )
        for row in (adaptation.open & ~state.measured).nonzero()[0].tolist()
        for seconds in [times.marginal_seconds(row)]
    ]
    ranked.sort(key=lambda pair: (-pair[0], pair[1].signature))
    return [suggested for _, suggested in ranked[:count]]


def _best_base(store: Store, system: System) -> str | None:
    """Name of the most measured other system with the same runtime and level; None if no such system is measured."""
    counts = {
        name: len(store.latencies_us(name))
        for name, other in store.systems().items()
        if name != system.name and other.runtime == system.runtime and other.settings.level == system.settings.level
    }
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] else None
