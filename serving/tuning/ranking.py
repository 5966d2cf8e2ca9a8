"""Ranks settings by what is known about them, and chooses those that are worth measuring."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from costmodel.serving.tuning.answer import TunedSetting
from costmodel.serving.tuning.pricing import Prices
from costmodel.serving.tuning.question import Performance, TuneQuestion
from costmodel.serving.tuning.settings import Setting, Space

__all__ = ["finalists", "ranked"]

# Least number of settings to measure, if there are so many: a prediction may be wrong, and a setting may fail to run.
_LEAST = 2
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

    These are the settings that are better than the best predicted one with a probability of at least 5%, and that could
    meet the latency objective; at least two. Of settings that differ only in level or spinning, which make little
    difference, the best one stands for the others, unless it is the best of all. Settings about which nothing is
    predicted, such as those of a runtime that was never measured here, take up to a third of the places.

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
    kinds, twins = _twins_apart(promising)
    unpriced = _representative(prices.unpriced, space, question)
    places = most - min(len(unpriced), max(1, round(_UNPRICED_SHARE * most))) if promising else 0
    promising = [
        one
        for number, one in enumerate([*kinds, *twins])
        if number < min(_LEAST, len(kinds)) or _could_be_better(one, kinds[0], question)
    ]
    chosen = [one.setting for one in promising[:places]]
    chosen += unpriced[: most - len(chosen)]
    return list(dict.fromkeys([*chosen, default]))


def _twins_apart(settings: Sequence[TunedSetting]) -> tuple[list[TunedSetting], list[TunedSetting]]:
    """Returns settings, the best one first, without those that differ from a better one only in level or spinning.

    Returns:
        The settings, and those that were left out and differ from the very best one only in that. Of these, one without
        spinning of which the effect is not priced is enough: it makes much the same difference at all levels.
    """
    kinds: dict[Setting, TunedSetting] = {}
    twins: list[TunedSetting] = []
    idle_twins = 0
    for one in settings:
        kind = replace(one.setting, level="", spinning=True)
        if kind not in kinds:
            kinds[kind] = one
        elif kind == next(iter(kinds)):
            unpriced_idle = not one.setting.spinning and bool(one.borrowed)
            idle_twins += unpriced_idle
            if not unpriced_idle or idle_twins == 1:
                twins.append(one)
    return list(kinds.values()), twins


def _could_be_better(one: TunedSetting, best: TunedSetting, question: TuneQuestion) -> bool:
    """Returns whether a setting is better than the best predicted one with a probability of at least 5%.

    Their errors are taken to be independent, and 90% intervals to be those of a normal distribution in log latency.
    """
    ours, theirs = one.predicted, best.predicted
    if ours is None or theirs is None:
        return False
    behind = math.log(question.score(one.setting, ours.latency_us) / question.score(best.setting, theirs.latency_us))
    below = math.log(ours.latency_us / ours.interval_us[0])
    above = math.log(theirs.interval_us[1] / theirs.latency_us)
    return behind <= math.hypot(below, above)


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
