"""The report on one run of a benchmark: how many sequences were measured, and which were not."""

from dataclasses import dataclass, field, replace

from costmodel.jobs.layer_choice import LayerChoice

__all__ = ["BenchReport"]


@dataclass
class BenchReport:
    """The result of one run of the benchmark, in which a whole model counts as one sequence.

    Attributes:
        measured: Number of sequences that were measured because the store lacked them, or because all were to be
            measured again.
        reused: Number of sequences of which the store had a measurement already.
        unstable: Number of measurements whose passes differed too much, or during which the machine was not quiet; with
            a protocol for sums, 0.
        failed: Reasons why sequences and models were not measured, by the signature of a sequence or the name of a
            model.
        left: Number of sequences that were not measured because the budget was spent.
        dropped: Number of samples that were not measured because they do not run.
        repeated: Number of sequences that were measured again: together with a sequence of their model that the store
            lacked, or for the noise floor.
        seconds: Duration of the run in seconds.
        waiting_seconds: Part of `seconds` that was lost while the machine was not quiet, in waits and discarded runs.
        choice: Layers that were chosen to be measured for an expected error; None if all of them were to be measured.
    """

    measured: int = 0
    reused: int = 0
    unstable: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    dropped: int = 0
    repeated: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0
    choice: LayerChoice | None = None

    def __iadd__(self, other: "BenchReport") -> "BenchReport":
        """Adds the counts, failures and durations of another run to this report."""
        self.measured += other.measured
        self.reused += other.reused
        self.unstable += other.unstable
        self.failed |= other.failed
        self.left += other.left
        self.dropped += other.dropped
        self.repeated += other.repeated
        self.seconds += other.seconds
        self.waiting_seconds += other.waiting_seconds
        return self

    def add_repeats(self, other: "BenchReport") -> None:
        """Adds another run in which everything was measured again: what it measured counts as repeated."""
        self += replace(other, measured=0, reused=0, repeated=other.repeated + other.measured)
