"""How long measuring will take: loading the networks of a group, and the turns that the protocol gives them."""

import math
from collections.abc import Sequence

from costmodel.measurement import Protocol

__all__ = ["group_s"]

# On the two-core EPYC of docs/results.md: what the runtime takes to load a network, what a call takes beside the layers
# in it, and at what rates weights are made and caches are swept.
_LOAD_US = 4_000.0
_CALL_US = 5.0
_WEIGHTS_BYTES_PER_US = 160.0
_SWEPT_BYTES_PER_US = 5_000.0
# Among as many networks there is nearly always one whose times do not agree before the last pass.
_MANY = 10


def group_s(latencies_us: Sequence[float], weights_bytes: int, swept_bytes: int, protocol: Protocol) -> float:
    """About the seconds that a group takes.

    Args:
        latencies_us: Expected, of each of its networks, at least one.
        weights_bytes: Of all of these.
        swept_bytes: Read besides, each time before all networks take their turn.
        protocol: How often is timed.
    """
    count = len(latencies_us)
    circle_us = math.fsum(latencies_us) + count * _CALL_US + swept_bytes / _SWEPT_BYTES_PER_US
    loading_us = count * _LOAD_US + weights_bytes / _WEIGHTS_BYTES_PER_US
    pass_us = circle_us * (1 + _rounds(circle_us, protocol) if circle_us < protocol.cold_start_us else 1)
    wanted = protocol.most_passes if count >= _MANY else protocol.passes
    passes = min(wanted, max(protocol.fewest_passes, math.ceil(protocol.enough_us / pass_us)))
    # Before the passes each network runs twice by itself and once in its turn.
    return (loading_us + 3 * circle_us + passes * pass_us) / 1e6


def _rounds(circle_us: float, protocol: Protocol) -> int:
    return max(1, min(protocol.most_runs, int(protocol.turn_us / circle_us)))
