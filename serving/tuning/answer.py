"""The answer of a tuner, as dataclasses that are also its JSON document."""

from dataclasses import dataclass

from costmodel.estimate.estimate import Coverage
from costmodel.serving.tuning.question import Objective, Performance
from costmodel.serving.tuning.settings import Setting

__all__ = ["LeftOut", "MeasuredPerformance", "MeasuringConditions", "TuneAnswer", "TunedSetting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPerformance(Performance):
    """The performance of a model under a setting when it was run.

    Attributes:
        runs: Number of timed runs, over all sessions.
        rounds: Number of rounds in which the setting was timed; settings that are clearly worse leave early.
    """

    runs: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TunedSetting:
    """A setting with its prediction and, if it was run, its measurement.

    Attributes:
        setting: The setting.
        description: The setting in words.
        system: System whose measurements and regressor priced the setting; None if it was not priced.
        borrowed: What distinguishes the setting from that system, one sentence each; empty if the system is its own.
        predicted: What is predicted; None if no system could price the setting.
        measured: What was measured; None if the setting was not run.
        coverage: Shares of the predicted latency by source of the costs; None without a prediction.
        version: Version of the regressor that predicted costs; "none" if no cost is predicted.
    """

    setting: Setting
    description: str
    system: str | None
    borrowed: tuple[str, ...]
    predicted: Performance | None
    measured: MeasuredPerformance | None
    coverage: Coverage | None
    version: str

    @property
    def performance(self) -> Performance:
        """The measured performance, or else the predicted one."""
        found = self.measured or self.predicted
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Settings that are not among the answers, with the reason.

    Attributes:
        settings: The settings in words.
        reason: Reason why they were left out.
    """

    settings: str
    reason: str


@dataclass(frozen=True, slots=True)
class MeasuringConditions:
    """How the settings were measured.

    Attributes:
        host: Name of the processor.
        measured_at: Time at which measuring began, ISO 8601 in UTC.
        seconds: Duration of measuring, including the time to load the model, in seconds.
        settings: Number of settings that were run.
        rounds: Largest number of rounds in which a setting was timed.
    """

    host: str
    measured_at: str
    seconds: float
    settings: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneAnswer:
    """How a model should run on a host.

    Attributes:
        model: Name of the model.
        host: Name of the processor.
        cpus: Number of CPUs among which threads and sessions are divided.
        objective: What is to be best: "latency", "throughput" or "cost".
        slo: Percentile of the latency objective, such as "p99"; None without one.
        slo_us: Latency of the objective in microseconds; None without one.
        usd_per_hour: Price of the machine in US dollars per hour; None if it is not known.
        best: The setting to choose: the best measured one, or the best predicted one if nothing was measured. If no
            setting meets the latency objective, the one that comes nearest to it.
        default: How the model runs if nobody sets anything; None if that was neither priced nor measured.
        gain: How many times as good `best` is as `default`: ratio of their latencies, or of their throughputs, both
            measured or both predicted; None without a default.
        saved_usd_per_million: What `best` saves against `default`, in US dollars for a million samples; None if no
            price is known.
        snippet: Lines of Python that open the model with the best setting.
        findings: What loses and why, one sentence each.
        settings: All settings that were priced or measured, the best one first: measured ones before predicted ones.
        left_out: Settings that were neither, with the reasons.
        measurement: How settings were measured; None if the answer is from predictions alone.
        warnings: Warnings for the user, one sentence each.
    """

    model: str
    host: str
    cpus: int
    objective: Objective
    slo: str | None
    slo_us: float | None
    usd_per_hour: float | None
    best: TunedSetting
    default: TunedSetting | None
    gain: float | None
    saved_usd_per_million: float | None
    snippet: str
    findings: tuple[str, ...]
    settings: tuple[TunedSetting, ...]
    left_out: tuple[LeftOut, ...]
    measurement: MeasuringConditions | None
    warnings: tuple[str, ...]
