"""The parameters of the measurement protocol. See docs/adr/0003 and 0005."""

from dataclasses import dataclass

__all__ = ["QUICK", "Protocol"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """The parameters of the measurement protocol: how often to time networks, and when to stop.

    Passes, turns and laps are defined in `costmodel.measure.round_robin`. All times are in microseconds.

    Attributes:
        version: Version of the protocol; it changes when times are no longer comparable with those of older versions.
        passes: Number of passes over a group that are made before its times are checked for agreement.
        max_passes: Number of passes after which a group is done even if its times do not agree.
        min_passes: Number of passes that are made even if the group takes longer than `max_group_us`.
        max_group_us: Time after which a group is done even if its times do not agree; a group takes that long only if
            its networks are slow, and slow networks have steady times.
        agreement: Largest standard error, relative to the median, at which the time of a network counts as known.
        reference_every_us: Time between two runs of the reference kernel.
        state_check_every_us: Time between two checks of the machine's state.
        max_wait_us: Longest time to wait until the machine is quiet; a deadline may end the wait earlier.
        short_lap_us: Duration below which a lap counts as short; a short lap runs once untimed at the beginning of each
            turn, and is then timed several times.
        turn_us: Time that the timed runs of a short lap should take together in a turn.
        max_runs: Maximum number of timed runs of a lap in a turn; the minimum is one.
        for_sums: Whether times only have to be precise in sums over many layers. What has run once already, to try it
            out, then does not run untimed again before the first pass, and no measurement counts as stable.
    """

    version: int = 8
    passes: int = 8
    max_passes: int = 24
    min_passes: int = 3
    max_group_us: float = 30_000_000.0
    agreement: float = 0.02
    reference_every_us: float = 100_000.0
    state_check_every_us: float = 20_000.0
    max_wait_us: float = 60_000_000.0
    short_lap_us: float = 50_000.0
    turn_us: float = 10_000.0
    max_runs: int = 5
    for_sums: bool = False


# Each layer runs once untimed and once timed: the errors of layers are independent, and cancel in their sum as far as
# the machine repeats the sum at all (docs/adr/0027).
QUICK = Protocol(passes=1, max_passes=1, min_passes=1, for_sums=True)
