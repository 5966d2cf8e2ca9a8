"""The states that a shared machine was in while it was measured: how often, and how much longer layers take in each."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.measure.measurement import Measurement
from costmodel.measure.tenancy import jitter, slowdowns, state_shares
from costmodel.store.store import Store

__all__ = ["WHOLE_MODELS", "SystemStates", "system_states"]

# Name under which whole models stand beside the operators of layers.
WHOLE_MODELS = "whole models"
# Number of operators whose slowdowns are reported: those with the most time.
_OPERATORS = 8


@dataclass(frozen=True, slots=True)
class SystemStates:
    """What tenants of a system observe.

    Attributes:
        shares: Share of the time that the machine spent in each state, by its name.
        slowdowns: For each state other than the quiet one, and each operator, how many times as long layers take; the
            operators with the most time, after whole models.
        jitter: Factors from the latency on the quiet machine to the quantiles that users observe; empty if unknown.
    """

    shares: Mapping[str, float]
    slowdowns: Mapping[str, Mapping[str, float]]
    jitter: Mapping[str, float]


def system_states(store: Store, system: str) -> SystemStates:
    """Returns what is known about the states of a system from its measurements.

    Raises:
        UnknownSystemError: The store has no system of that name.
    """
    whole_models = store.whole_model_signatures()
    kinds = {signature: sequence.kind for signature, sequence in store.sequences().items()}
    of_kind: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in store.measurements(store.system(system).name):
        whole = measurement.signature in whole_models
        of_kind[WHOLE_MODELS if whole else kinds[measurement.signature]].append(measurement)
    wholes = of_kind.pop(WHOLE_MODELS, [])
    everything = [measurement for same in of_kind.values() for measurement in same]
    longest = sorted(of_kind, key=lambda kind: -sum(one.latency_us for one in of_kind[kind]))[:_OPERATORS]
    by_kind = {WHOLE_MODELS: slowdowns(wholes), **{kind: slowdowns(of_kind[kind]) for kind in longest}}
    shares = state_shares(wholes or everything)
    return SystemStates(
        shares,
        {
            state: {kind: of_states[state] for kind, of_states in by_kind.items() if state in of_states}
            for state in sorted(shares)
            if any(state in of_states for of_states in by_kind.values())
        },
        jitter(wholes) or jitter(everything),
    )
