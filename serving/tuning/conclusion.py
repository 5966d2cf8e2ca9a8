"""Puts predictions and measurements together into the answer of a tuner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from costmodel.errors import TuningError
from costmodel.runtimes.advice import snippet_of
from costmodel.serving.tuning.answer import (
    LeftOut,
    MeasuredPerformance,
    MeasuringConditions,
    TuneAnswer,
    TunedSetting,
)
from costmodel.serving.tuning.findings import findings_about
from costmodel.serving.tuning.pricing import Prices, grouped_reasons
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.serving.tuning.ranking import ranked
from costmodel.serving.tuning.settings import Setting, Space, default_setting
from costmodel.systems.host import Host

__all__ = ["Measured", "conclude"]


@dataclass(frozen=True)
class Measured:
    """The result of measuring settings.

    Attributes:
        performances: What each setting did.
        failed: Reasons why settings could not be run.
        conditions: How they were measured.
        skipped: Promising settings that were not run for lack of time or memory.
    """

    performances: Mapping[Setting, MeasuredPerformance]
    failed: Mapping[Setting, str] = field(default_factory=dict)
    conditions: MeasuringConditions | None = None
    skipped: Sequence[Setting] = ()


def conclude(
    model: str,
    host: Host,
    space: Space,
    question: TuneQuestion,
    prices: Prices,
    *,
    paths: Mapping[str, str],
    measured: Measured | None = None,
    warnings: Sequence[str] = (),
) -> TuneAnswer:
    """Returns the answer of a tuner.

    Args:
        model: Name of the model.
        host: Host on which the model is to run.
        space: The settings that were considered.
        question: What the settings are chosen for.
        prices: Predictions.
        paths: Path of the model file for the snippet, by precision.
        measured: Measurements; None if nothing was measured.
        warnings: Further warnings, one sentence each.

    Raises:
        TuningError: No setting was priced or measured.
    """
    performances = {} if measured is None else measured.performances
    failed = {} if measured is None else measured.failed
    known = {one.setting: replace(one, measured=performances.get(one.setting)) for one in prices.priced}
    for setting, performance in performances.items():
        if setting not in known:
            known[setting] = TunedSetting(setting, str(setting), None, (), None, performance, None, "none")
    # What cannot be run is no choice, whatever it was predicted to do.
    candidates = ranked([one for setting, one in known.items() if setting not in failed], question)
    unpriced = {
        setting: reason for setting, reason in prices.unpriced.items() if setting not in known and setting not in failed
    }
    if not candidates:
        reasons = dict.fromkeys([*failed.values(), *unpriced.values()])
        raise TuningError(f"no setting of {model} can be priced or measured: {'; '.join(reasons) or 'there is none'}")
    best, default = candidates[0], known.get(default_setting(space))
    if default is not None and default.setting in failed:
        default = None
    gain = saved = None
    if default is not None:
        # The two are compared on one basis.
        basis = "measured" if best.measured is not None and default.measured is not None else "predicted"
        ours, theirs = getattr(best, basis), getattr(default, basis)
        if ours is not None and theirs is not None:
            gain = question.score(default.setting, theirs.latency_us) / question.score(best.setting, ours.latency_us)
            if ours.usd_per_million is not None and theirs.usd_per_million is not None:
                saved = theirs.usd_per_million - ours.usd_per_million
    chosen = best.setting
    shown = [chosen] if default is None else [chosen, default.setting]
    if measured is not None and measured.skipped:
        named = "; ".join(map(str, measured.skipped))
        warnings = [*warnings, f"promising settings were not run for lack of time or memory: {named}"]
    notes = [f"{setting}: {note}" for setting in shown for note in prices.notes.get(setting, ())]
    return TuneAnswer(
        model=model,
        host=host.model_name or host.vendor or "an unknown processor",
        cpus=space.cpus,
        objective=question.objective,
        slo=None if question.slo is None else question.slo.name,
        slo_us=None if question.slo is None else question.slo.latency_us,
        usd_per_hour=question.usd_per_hour,
        best=best,
        default=default,
        gain=gain,
        saved_usd_per_million=saved,
        snippet=snippet_of(
            chosen.runtime, chosen.runtime_settings, paths[chosen.precision], batch=chosen.batch,
            sessions=chosen.sessions,
        ),
        findings=tuple(findings_about(candidates, question, host)),
        settings=tuple(candidates),
        left_out=(
            *prices.left_out,
            *grouped_reasons(unpriced),
            *(LeftOut(str(setting), reason) for setting, reason in failed.items()),
        ),
        measurement=None if measured is None else measured.conditions,
        warnings=tuple(dict.fromkeys([*warnings, *prices.warnings, *notes])),
    )  # fmt: skip
