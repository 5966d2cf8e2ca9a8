"""The common set: a few sequences that every machine of a system measures, and how far the machines differ by it."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from costmodel.measure.groups import Group
from costmodel.measure.measurement import Measurement

__all__ = ["MachineSpread", "choose_common_set", "machine_spread"]

_MOST_SEQUENCES = 12


@dataclass(frozen=True, slots=True)
class MachineSpread:
    """How far the machines of one system differ.

    Attributes:
        relative_latency: For each machine by name, its latencies over those of the median machine: the geometric mean
            over the sequences of the common set.
        sequences: Number of sequences that all these machines measured.
    """

    relative_latency: Mapping[str, float] = field(default_factory=dict)
    sequences: int = 0

    @property
    def spread(self) -> float | None:
        """How much longer the slowest machine takes than the quickest, as a fraction; None for fewer than two."""
        if len(self.relative_latency) < 2:
            return None
        return max(self.relative_latency.values()) / min(self.relative_latency.values()) - 1


def choose_common_set(groups: Sequence[Group]) -> Group | None:
    """Returns a group of at most a dozen sequences, spread evenly over the group with the most; None without groups.

    They are timed as a portion of their model is: the caches are evicted as the rest of the model would.

    Args:
        groups: All groups that are to be measured, whatever of them is measured already.
    """
    fullest = max(groups, key=lambda group: len(group.sequences), default=None)
    if fullest is None or not fullest.sequences:
        return None
    count = min(_MOST_SEQUENCES, len(fullest.sequences))
    chosen = [fullest.sequences[position * len(fullest.sequences) // count] for position in range(count)]
    return replace(fullest, label=f"common set ({fullest.label})", sequences=tuple(chosen), whole=None, model=None)


def machine_spread(measurements: Iterable[Measurement]) -> MachineSpread:
    """Returns how far the machines differ that measured a common set.

    Args:
        measurements: Measurements of the common set; others are ignored. The latest of a machine counts.
    """
    latest: dict[str, dict[str, Measurement]] = defaultdict(dict)
    for measurement in measurements:
        machine = measurement.environment.get("machine")
        if machine is None or not measurement.environment.get("common_set"):
            continue
        known = latest[measurement.signature].get(machine)
        if known is None or known.measured_at <= measurement.measured_at:
            latest[measurement.signature][machine] = measurement
    counts = Counter(machine for of_machine in latest.values() for machine in of_machine)
    # A machine that measured another common set, for other models, may share some of these sequences: it is left out.
    machines = sorted(machine for machine, count in counts.items() if count == max(counts.values()))
    shared = [
        {machine: of_machine[machine] for machine in machines}
        for of_machine in latest.values()
        if of_machine.keys() >= set(machines)
    ]
    if not shared:
        return MachineSpread()
    logs: dict[str, list[float]] = {machine: [] for machine in machines}
    for of_machine in shared:
        usual = median(one.latency_us for one in of_machine.values())
        for machine, one in of_machine.items():
            logs[machine].append(math.log(one.latency_us / usual))
    return MachineSpread({machine: math.exp(sum(of) / len(of)) for machine, of in logs.items()}, len(shared))
