"""Verifies an evaluation: compares its results with those of running it again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from costmodel.jobs.evaluation.folder import Environment
from costmodel.jobs.evaluation.results import Case, EvaluationResults, Latency

__all__ = ["LatencyDifference", "Verdict", "Verification", "compare_results"]

Verdict = Literal["agrees", "within tolerance", "differs"]


@dataclass(frozen=True, slots=True)
class LatencyDifference:
    """A latency of an evaluation beside that of the same case when the evaluation was repeated.

    Attributes:
        case: The case of the first run.
        kind: Kind of latency: "measured", "composed" or "predicted".
        before: Latency in the first run.
        after: Latency in the repetition; None if it has none.
        verdict: For measured latencies "agrees" if the intervals overlap, for estimates if they are equal; "within
            tolerance" if that is nearly so, else "differs".
        stable: Whether the machine was quiet both times while the whole model was measured.
    """

    case: Case
    kind: str
    before: Latency
    after: Latency | None
    verdict: Verdict
    stable: bool

    @property
    def change(self) -> float | None:
        """Relative change of the latency from the first run to the repetition; None if it was not repeated."""
        return None if self.after is None else self.after.latency_us / self.before.latency_us - 1


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of an evaluation with its repetition.

    Attributes:
        latencies: Every latency of the first run, compared.
        changes: What else differs between the runs, one sentence each: packages, host, models, regressors.
    """

    latencies: tuple[LatencyDifference, ...]
    changes: tuple[str, ...]

    @property
    def beyond_noise(self) -> list[LatencyDifference]:
        """The latencies that differ by more than noise or were not repeated, those first that changed most."""
        found = [one for one in self.latencies if one.verdict == "differs"]
        return sorted(found, key=lambda one: -abs(one.change) if one.change is not None else float("-inf"))


def compare_results(
    before: tuple[EvaluationResults, Environment],
    after: tuple[EvaluationResults, Environment],
    tolerance: float,
) -> Verification:
    """Compares the results of an evaluation with those of its repetition.

    Args:
        before: Results and environment of the first run.
        after: Results and environment of the repetition.
        tolerance: Largest relative distance between the intervals of two measured latencies, or between two estimates,
            that counts as noise.
    """
    repeated = {case.identity: case for case in after[0].cases}
    latencies = tuple(
        _compared(case, kind, latency, repeated.get(case.identity), tolerance)
        for case in before[0].cases
        for kind, latency in case.latencies.items()
        # The measured latency of a model is the same at each granularity.
        if kind != "measured" or case.granularity == before[0].cases[0].granularity
    )
    changes = (*_changed_environment(before[1], after[1]), *_changed_data(before[0], after[0]))
    return Verification(latencies, changes)


def _compared(case: Case, kind: str, before: Latency, again: Case | None, tolerance: float) -> LatencyDifference:
    after = None if again is None else again.latencies.get(kind)
    verdict: Verdict = "differs"
    if after is not None:
        # The interval of an estimate says how far it may be from the truth, which is not how far it may be from itself.
        (low, high), (low_again, high_again) = (
            one.interval_us if kind == "measured" else (one.latency_us, one.latency_us) for one in (before, after)
        )
        gap = max(low, low_again) / min(high, high_again) - 1
        verdict = "agrees" if gap <= 0 else "within tolerance" if gap <= tolerance else "differs"
    return LatencyDifference(case, kind, before, after, verdict, case.stable and again is not None and again.stable)


def _changed_environment(before: Environment, after: Environment) -> Iterator[str]:
    if before.python != after.python:
        yield f"Python {after.python} instead of {before.python}"
    if before.platform != after.platform:
        yield f"the operating system is {after.platform} instead of {before.platform}"
    yield from _changed("package ", before.packages, after.packages)
    yield from _changed("host: ", before.host, after.host)


def _changed(what: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield f"{what}{name} is {'absent' if new is None else new} instead of {'absent' if old is None else old}"


def _changed_data(before: EvaluationResults, after: EvaluationResults) -> Iterator[str]:
    models = {(one.name, one.batch): one for one in after.models}
    for model in before.models:
        again = models.get((model.name, model.batch))
        label = model.name if model.batch is None else f"{model.name} at batch {model.batch}"
        if again is None:
            yield f"{label} was not evaluated"
        elif again.digest != model.digest:
            yield f"{label} has another graph"
        elif again.file_sha256 != model.file_sha256:
            yield f"{label} is another file with the same graph"
    systems = {one.name: one for one in after.systems}
    for system in before.systems:
        known = systems.get(system.name)
        if known is None:
            yield f"{system.name} was not evaluated: this host is another system"
            continue
        if known.regressor_fingerprint != system.regressor_fingerprint:
            yield f"the regressor of {system.name} is {known.regressor} instead of {system.regressor}"
        if not system.here and known.measurements_fingerprint != system.measurements_fingerprint:
            yield f"the stored measurements of {system.name} changed"
