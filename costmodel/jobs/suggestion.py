"""The job of `costmodel bench --suggest`: finds the sequences that are most worth measuring next."""

from dataclasses import dataclass, replace

from costmodel.errors import UnknownSystemError
from costmodel.measure.protocol import Protocol
from costmodel.store.store import Store
from costmodel.systems.system import System

__all__ = ["Suggestion", "suggest"]


@dataclass(frozen=True)
class Suggestion:
    """A sequence that is worth measuring.

    Attributes:
        signature: Signature of the sequence.
        kind: Operators of the sequence.
        uncertainty: Uncertainty of the latency: standard deviation of the logarithms of the costs that several
            regressors predict for the sequence, so that 0.1 means about 10%.
        models: Number of models that contain the sequence.
        share: Share of a model's latency that the sequence makes up, averaged over the models.
        latency_us: Expected latency of the sequence in microseconds.
        seconds: Expected time in seconds by which measuring takes longer if the sequence is measured, too.
    """

    signature: str
    kind: str
    uncertainty: float
    models: int
    share: float
    latency_us: float
    seconds: float


def suggest(store: Store, system: System, count: int) -> list[Suggestion]:
    """Returns the sequences that are most worth measuring on a system, best first; measures nothing.

    Args:
        store: Store with the models and the measurements.
        system: System on which the sequences would be measured.
        count: Maximum number of sequences to return.

    Raises:
        UnknownSystemError: The store knows neither the system's capabilities nor a measured system with the same
            runtime and level, whose capabilities could stand in for them.
        TrainingError: There are too few models to choose from.
    """
    from costmodel.training.adaptation import load_adaptation
    from costmodel.training.suggestion import value_of_measuring

    base = _best_base(store, system)
    if not system.capabilities:
        if base is None:
            raise UnknownSystemError(
                f"nothing is known of the system {system.name}, nor of one like it: run `costmodel bench` first"
            )
        system = replace(system, capabilities=store.system(base).capabilities)
    adaptation = load_adaptation(store, [] if base is None else [base], system)
    known = store.latencies_us(system.name)
    state = adaptation.learn(known)
    shares = adaptation.shares(state)
    values = value_of_measuring(shares, state.spread)
    uses = [0] * len(adaptation.dataset)
    for usage in adaptation.usages:
        for row in usage.unique:
            uses[row] += 1
    times = adaptation.prices(state, Protocol())
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
    """Returns the name of the most measured other system with the same runtime and level; None if there is none."""
    counts = {
        name: len(store.latencies_us(name))
        for name, other in store.systems().items()
        if name != system.name and other.runtime == system.runtime and other.settings.level == system.settings.level
    }
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] else None
