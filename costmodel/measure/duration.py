"""Estimates how long it takes to measure a group: to load its networks and to time them under the protocol."""

import math
from collections.abc import Sequence

from costmodel.measure.protocol import Protocol

__all__ = ["estimated_group_seconds"]

# Measured on the two-core EPYC of docs/results.md: the time to load a network, the call overhead, and the rates of
# generating synthetic weights and of cache eviction.
_LOAD_US = 4_000.0
_CALL_US = 5.0
_WEIGHTS_BYTES_PER_US = 160.0
_EVICTED_BYTES_PER_US = 5_000.0
# A group with at least this many networks nearly always has one whose times do not agree before the last pass.
_LARGE_GROUP = 10


def estimated_group_seconds(
    latencies_us: Sequence[float], weights_bytes: int, evicted_bytes: int, protocol: Protocol
) -> float:
    """Returns an estimate of the time, in seconds, that it takes to measure a group.

    Args:
        latencies_us: Expected latency of each network of the group in microseconds, at least one.
        weights_bytes: Size of the weights of all these networks together.
        evicted_bytes: Bytes of memory that are read in each lap to evict the caches.
        protocol: Measurement protocol, which determines how often each network is timed.
    """
    count = len(latencies_us)
    lap_us = math.fsum(latencies_us) + count * _CALL_US + evicted_bytes / _EVICTED_BYTES_PER_US
    loading_us = count * _LOAD_US + weights_bytes / _WEIGHTS_BYTES_PER_US
    pass_us = lap_us * (1 + _runs_per_turn(lap_us, protocol) if lap_us < protocol.short_lap_us else 1)
    usual = protocol.max_passes if count >= _LARGE_GROUP else protocol.passes
    passes = min(usual, max(protocol.min_passes, math.ceil(protocol.max_group_us / pass_us)))
    # Before the passes each network runs twice in isolation and once in an untimed lap.
    return (loading_us + 3 * lap_us + passes * pass_us) / 1e6


def _runs_per_turn(lap_us: float, protocol: Protocol) -> int:
    return max(1, min(protocol.max_runs, int(protocol.turn_us / lap_us)))
