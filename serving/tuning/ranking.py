"""Ranks settings by what is known about them, and chooses those that are worth measuring."""

from collections.abc import Iterable, Mapping, Sequence

from costmodel.serving.tuning.answer import TunedSetting
from costmodel.serving.tuning.pricing import Prices
from costmodel.serving.tuning.question import Performance, TuneQuestion
from costmodel.serving.tuning.settings import Setting, Space

__all__ = ["finalists", "ranked"]

# Least number of settings to measure, if there are so many.
_LEAST = 3
# Share of the measured settings that may be ones about which nothing is predicted.
_UNPRICED_SHARE = 1 / 3
_TYPICAL_BATCH = 8


def ranked(settings: Iterable[TunedSetting], question: TuneQuestion) -> list[TunedSetting]:
    """Returns settings, the best one first: measured before predicted ones, those that meet the objective first.

    Settings that do not meet the latency objective follow in order of how far they are from it. Among equal
    predictions, those for which less is borrowed from another system come first.
    """

    def key(one: TunedSetting) -> tuple[float | bool, ...]:
        found = one.performance
        fails = found.meets is False
        worth = found.slo_latency_us or 0.0 if fails else question.score(one.setting, found.latency_us)
        return one.measured is None, fails, worth, len(one.borrowed)

    return sorted(settings, key=key)


def finalists(prices: Prices, space: Space, question: TuneQuestion, default: Setting, most: int) -> list[Setting]:
    """Returns the settings to measure, the most promising one first, and the default one, with which all are compared.

    These are the settings whose latency at the lower bound would beat that of the best one at its upper bound, and that
    could meet the latency objective; at least three. Settings about which nothing is predicted, such as those of a
    runtime that was never measured here, take up to a third of the places.

    Args:
        prices: Predictions.
        space: The settings that were considered.
        question: What the settings are chosen for.
        default: The default setting.
        most: Largest number of settings besides the default one.
    """
    in_order = ranked(prices.priced, question)
    # If no setting could meet the objective, those that come nearest to it are measured.
    promising = [one for one in in_order if _could_meet(one.predicted, question)] or in_order
    promising = _without_idle_twins(promising)
    unpriced = _representative(prices.unpriced, space, question)
    places = most - min(len(unpriced), max(1, round(_UNPRICED_SHARE * most))) if promising else 0
    if promising:
        first = promising[0]
        assert first.predicted is not None
        bound = question.score(first.setting, first.predicted.interval_us[1])
        promising = [
            one
            for number, one in enumerate(promising)
            if one.predicted is not None
            and (number < _LEAST or question.score(one.setting, one.predicted.interval_us[0]) <= bound)
        ]
    chosen = [one.setting for one in promising[:places]]
    chosen += unpriced[: most - len(chosen)]
    return list(dict.fromkeys([*chosen, default]))


def _without_idle_twins(settings: Sequence[TunedSetting]) -> list[TunedSetting]:
    """Returns settings without those whose lack of spinning was not priced, except the best one of each runtime.

    What spinning is worth is much the same for all settings of a runtime.
    """
    seen: set[str] = set()
    kept = []
    for one in settings:
        if one.setting.spinning or not one.borrowed or one.setting.runtime not in seen:
            kept.append(one)
        if not one.setting.spinning:
            seen.add(one.setting.runtime)
    return kept


def _could_meet(predicted: Performance | None, question: TuneQuestion) -> bool:
    if predicted is None or question.slo is None or predicted.slo_latency_us is None:
        return True
    return predicted.slo_latency_us * predicted.interval_us[0] / predicted.latency_us <= question.slo.latency_us


def _representative(unpriced: Mapping[Setting, str], space: Space, question: TuneQuestion) -> list[Setting]:
    """Returns the settings without a price that are worth a trial: at the highest level, with most of the CPUs.

    Of batches only the smallest and a usual one are taken, because nothing says how far they help.
    """
    batches: Sequence[int] = (1,)
    if question.side_by_side:
        batches = (min(_TYPICAL_BATCH, max(space.batches)), 1)
    busy = [
        setting
        for setting in unpriced
        if setting.level == space.levels_of(setting.runtime)[0]
        and setting.batch in batches
        and setting.spinning
        and (not question.side_by_side or setting.threads * setting.sessions == space.cpus)
    ]
    # One setting of each runtime and precision, then another of each, and so on.
    order: dict[Setting, int] = {}
    counts: dict[tuple[str, str], int] = {}
    for setting in sorted(busy, key=lambda one: (-one.threads * one.sessions, -one.sessions, batches.index(one.batch))):
        group = setting.runtime, setting.precision
        order[setting] = counts[group] = counts.get(group, -1) + 1
    return sorted(order, key=order.__getitem__)
