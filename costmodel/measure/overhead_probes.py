"""Networks that are timed among others, from whose times the call overhead of these follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from costmodel.ir.sequence import LayerSequence, input_indices
from costmodel.measure.call_overhead import LONG_CHAIN_LAYERS, SHORT_CHAIN_LAYERS, call_overhead_us, tiny_chain
from costmodel.measure.round_robin import TimedNetwork
from costmodel.measure.statistics import mean_us
from costmodel.runtimes.base import EmptyNetworks, Runtime, RuntimeSettings

__all__ = ["OverheadProbes"]

_ANY_PORTS = (0, 0)


@dataclass(frozen=True)
class OverheadProbes:
    """Networks from whose times the call overhead follows.

    Attributes:
        sets: Sets of networks, by the numbers of inputs and outputs of the networks that they stand for: an empty
            network each, or a short and a long chain of tiny layers each, which stand for all networks.
    """

    sets: Mapping[tuple[int, int], list[list[TimedNetwork]]]

    @classmethod
    def of(
        cls, runtime: Runtime, settings: RuntimeSettings, sequences: Iterable[LayerSequence], number: int
    ) -> "OverheadProbes":
        """Opens the networks from which the call overhead of the networks of `sequences` follows.

        Args:
            runtime: Runtime that runs the networks.
            settings: Settings of the runtime.
            sequences: Layer sequences that are timed.
            number: Number of sets of each kind.

        Raises:
            MeasurementError: The runtime cannot load a network.
        """
        if isinstance(runtime, EmptyNetworks):
            return cls(
                {
                    ports: [[TimedNetwork(runtime.open_empty(*ports, settings))] for _ in range(number)]
                    for ports in sorted({_ports(sequence) for sequence in sequences})
                }
            )
        # All short chains are opened before the long ones: the overhead depends on where in memory a network lies.
        shorts, longs = (
            [TimedNetwork(runtime.open_sequence(tiny_chain(n), settings)) for _ in range(number)]
            for n in (SHORT_CHAIN_LAYERS, LONG_CHAIN_LAYERS)
        )
        return cls({_ANY_PORTS: [list(pair) for pair in zip(shorts, longs, strict=True)]})

    @property
    def networks(self) -> list[TimedNetwork]:
        """All networks, set by set."""
        return [network for sets in self.sets.values() for one in sets for network in one]

    def overhead_us(self, sequence: LayerSequence, surroundings: TimedNetwork | None = None) -> float:
        """Returns what each time of the network of a sequence contains besides its layers, in microseconds.

        Args:
            sequence: Layer sequence that was timed.
            surroundings: The same network without the layers, if it contains more than these.
        """
        if surroundings is not None and surroundings.times_us:
            return mean_us(surroundings.times_us)
        sets = self.sets.get(_ANY_PORTS) or self.sets[_ports(sequence)]
        kinds = [[time_us for network in kind for time_us in network.times_us] for kind in zip(*sets, strict=True)]
        return median(kinds[0]) if len(kinds) == 1 else call_overhead_us(*kinds)


def _ports(sequence: LayerSequence) -> tuple[int, int]:
    """Returns the number of inputs and of outputs of the network of a sequence, at least one each."""
    return max(1, len(input_indices(sequence))), max(1, len(sequence.outputs))
