"""The job behind `costmodel bench --suggest`: which sequences are most worth measuring next."""

from dataclasses import dataclass, replace

from costmodel.errors import UnknownSystemError
from costmodel.measurement import Protocol
from costmodel.store import Store
from costmodel.systems import System

__all__ = ["Suggested", "suggest"]


@dataclass(frozen=True)
class Suggested:
    """A sequence that is worth measuring.

    Attributes:
        signature: Of the sequence.
        kind: Its operators.
        uncertainty: How far predictions of it are apart, as a share of its cost.
        models: How many models have it.
        share: Of the latency of the models, on average.
        latency_us: Expected.
        seconds: That measuring it takes, by itself.
    """

    signature: str
    kind: str
    uncertainty: float
    models: int
    share: float
    latency_us: float
    seconds: float


def suggest(store: Store, system: System, count: int, *, protocol: Protocol | None = None) -> list[Suggested]:
    """The sequences that are most worth measuring on a system, the best first; nothing is measured.

    Args:
        store: Where the models are, and what is measured.
        system: Where would be measured.
        count: How many, at most.
        protocol: How often would be timed.

    Raises:
        UnknownSystemError: Nothing is known of the system, nor of any other that could stand for it.
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
    learnt = adaptation.learn(known)
    shares = adaptation.shares(learnt)
    values = worth(shares, learnt.spread)
    uses = [0] * len(adaptation.dataset)
    for usage in adaptation.usages:
        for row in usage.unique:
            uses[row] += 1
    prices = adaptation.prices(learnt, protocol or Protocol())
    found = [
        (
            values[row] / seconds,
            Suggested(
                adaptation.dataset.signatures[row],
                adaptation.dataset.kinds[row],
                float(learnt.spread[row]),
                uses[row],
                float(shares[row]),
                float(learnt.costs_us[row]),
                seconds,
            ),
        )
        for row in (adaptation.open & ~learnt.measured).nonzero()[0].tolist()
        for seconds in [prices.alone_s(row)]
    ]
    found.sort(key=lambda pair: (-pair[0], pair[1].signature))
    return [suggested for _, suggested in found[:count]]


def _best_base(store: Store, system: System) -> str | None:
    """Of the other systems with the same runtime the one of which most is measured; None if there is none."""
    counts = {
        name: len(store.latencies_us(name))
        for name, other in store.systems().items()
        if name != system.name and other.runtime == system.runtime and other.settings.level == system.settings.level
    }
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] else None
