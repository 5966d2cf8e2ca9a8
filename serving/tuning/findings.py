"""Says what loses and why: int8, more threads, batches; one sentence each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodel.serving.tuning.answer import TunedSetting
from costmodel.serving.tuning.question import Performance, TuneQuestion
from costmodel.serving.tuning.settings import FLOAT32, INT8, Setting
from costmodel.systems.host import Host
from costmodel.units import format_per_s, format_us

__all__ = ["findings_about"]

# Instructions that multiply 8-bit integers and add up the products.
_INT8_INSTRUCTIONS = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"})
# Settings whose worth differs by less than this share are equally good.
_EQUAL = 0.01


def findings_about(settings: Sequence[TunedSetting], question: TuneQuestion, host: Host) -> list[str]:
    """Returns sentences about what loses, from settings in the order of `ranked`."""
    best = settings[0]
    found = [
        _unmet(best, question), _int8(settings, question, host), _threads(settings, question),
        _batches(settings, question),
    ]  # fmt: skip
    return [sentence for sentence in found if sentence]


def _unmet(best: TunedSetting, question: TuneQuestion) -> str:
    slo_latency_us = best.performance.slo_latency_us
    if question.slo is None or best.performance.meets is not False or slo_latency_us is None:
        return ""
    return (
        f"No setting meets {question.slo.name} <= {format_us(question.slo.latency_us)}: the one that comes nearest "
        f"takes {format_us(slo_latency_us)}."
    )


def _int8(settings: Sequence[TunedSetting], question: TuneQuestion, host: Host) -> str:
    pair = _pair(
        settings, question, lambda one: one.setting.precision == FLOAT32, lambda one: one.setting.precision == INT8
    )
    if pair is None:
        return ""
    float32, int8, basis = pair
    if int8.worth(question) <= (1 + _EQUAL) * float32.worth(question):
        return ""
    why = "" if _INT8_INSTRUCTIONS & set(host.isa) else " The processor has no VNNI instructions, which int8 needs."
    verb = "takes" if question.objective == "latency" else "carries"
    amounts = f"it {verb} {int8.amount(question)} at best, float32 {float32.amount(question)} ({basis})"
    return f"int8 loses: {amounts}.{why}"


def _threads(settings: Sequence[TunedSetting], question: TuneQuestion) -> str:
    """Compares the best setting with the best one that has more threads, of the same runtime and precision."""
    best = settings[0].setting
    alike = [one for one in settings if (one.setting.runtime, one.setting.precision) == (best.runtime, best.precision)]
    pair = _pair(
        alike, question, lambda one: one.setting.threads == best.threads, lambda one: one.setting.threads > best.threads
    )
    if pair is None:
        return ""
    fewer, more, basis = pair
    if more.worth(question) <= (1 + _EQUAL) * fewer.worth(question):
        return ""
    beside = f" in {fewer.setting.sessions} sessions" if fewer.setting.sessions > 1 else ""
    verb = "take" if question.objective == "latency" else "carry"
    return (
        f"More threads lose: {more.setting.threads} threads a session {verb} {more.amount(question)} at best, "
        f"{fewer.setting.threads} thread{'s' * (fewer.setting.threads > 1)}{beside} {fewer.amount(question)} ({basis})."
    )


def _batches(settings: Sequence[TunedSetting], question: TuneQuestion) -> str:
    """Names the larger batch that would be best if it did not miss the latency objective."""
    best = _Side(settings[0].setting, settings[0].performance)
    sides = [_Side(one.setting, one.performance) for one in settings]
    larger = [
        side
        for side in sides
        if side.setting.batch > best.setting.batch
        and side.performance.meets is False
        and side.worth(question) < best.worth(question)
    ]
    if not larger or question.slo is None:
        return ""
    one = min(larger, key=lambda side: side.worth(question))
    assert one.performance.slo_latency_us is not None
    return (
        f"Larger batches break the objective: batch {one.setting.batch} would carry {one.amount(question)}, but a run "
        f"takes {format_us(one.performance.slo_latency_us)} at {question.slo.name}, more than "
        f"{format_us(question.slo.latency_us)}."
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: a setting, and what is known about it on the basis of the comparison."""

    setting: Setting
    performance: Performance

    def worth(self, question: TuneQuestion) -> float:
        """Returns the score of the setting, lower is better."""
        return question.score(self.setting, self.performance.latency_us)

    def amount(self, question: TuneQuestion) -> str:
        """Returns the latency or the throughput in words."""
        if question.objective == "latency":
            return format_us(self.performance.latency_us)
        return format_per_s(self.performance.throughput_per_s)


_Test = Callable[[TunedSetting], bool]


def _pair(
    settings: Sequence[TunedSetting], question: TuneQuestion, one: _Test, other: _Test
) -> tuple[_Side, _Side, str] | None:
    """Returns the best settings of two kinds, compared by measurements if both kinds were measured, else predictions.

    Returns:
        The two sides, and on what they are compared; None if the kinds cannot be compared.
    """
    for basis in ("measured", "predicted"):
        known = [(found, performance) for found in settings if (performance := getattr(found, basis)) is not None]
        kinds = [
            [_Side(found.setting, performance) for found, performance in known if test(found)] for test in (one, other)
        ]
        if all(kinds):
            first, second = (min(kind, key=lambda side: side.worth(question)) for kind in kinds)
            return first, second, basis
    return None
