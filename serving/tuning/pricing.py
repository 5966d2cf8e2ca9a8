"""Prices settings by prediction, each from the nearest system that can price it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from costmodel.errors import CostModelError
from costmodel.estimate.estimate import Estimate
from costmodel.estimate.interference import Interference, slowdown_interval
from costmodel.estimate.thread_speedup import thread_half_width, thread_steps, threads_factor, undivided_share
from costmodel.features.thread_division import divide_work
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.interference import traffic_of
from costmodel.serving.tuning.answer import LeftOut, TunedSetting
from costmodel.serving.tuning.nearest import Nearest, by_distance, with_threads
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.serving.tuning.settings import Setting, Space, settings_of
from costmodel.systems.system import System, differ_in_threads_alone

__all__ = ["Estimator", "Prices", "grouped_reasons", "price_settings"]

_NO_INTERFERENCE = (
    "how much sessions slow each other was never measured on {}: none is assumed; `costmodel interference` measures it"
)


Estimator = Callable[[System, str, str, int], tuple[Estimate, Decomposition]]
"""Function that estimates the model that is tuned.

It takes the system with the measurements and the regressor, the level at which the model is lowered, the precision of
the file that is meant and the batch size. It returns the estimate and the layers that were priced, or raises a
CostModelError.
"""


@dataclass(frozen=True)
class Prices:
    """Settings with their predictions.

    Attributes:
        priced: Settings that have a prediction.
        unpriced: Reasons why other settings have none; these can still be measured.
        left_out: Settings that need no measurement either, in groups.
        warnings: Warnings about the predictions, one sentence each.
        notes: Warnings of the estimate of each setting, one sentence each.
        slo_factors: Ratio of the latency at the percentile of the objective to the latency, by setting.
        peak_bytes: Predicted peak memory of a session in bytes, by setting, where it is known.
    """

    priced: list[TunedSetting] = field(default_factory=list)
    unpriced: dict[Setting, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    notes: dict[Setting, tuple[str, ...]] = field(default_factory=dict)
    slo_factors: dict[Setting, float] = field(default_factory=dict)
    peak_bytes: dict[Setting, int] = field(default_factory=dict)


def price_settings(space: Space, systems: Sequence[System], estimator: Estimator, question: TuneQuestion) -> Prices:
    """Prices every setting of a space that a system of the host can price.

    A level at which the runtime executes the same layers as at a higher one is left out, because the higher one stands
    for it. A level that is slower beyond doubt with one sample is not tried with more.

    Args:
        space: Settings to price.
        systems: Systems of the host, as `systems_of_host` returns them.
        estimator: Function that estimates the model on a system.
        question: What the settings are chosen for.
    """
    return _Pricer(space, systems, estimator, question).price()


class _Pricer:
    """The work of `price_settings`, with a cache of estimates."""

    def __init__(self, space: Space, systems: Sequence[System], estimator: Estimator, question: TuneQuestion) -> None:
        self._space, self._systems, self._estimator, self._question = space, systems, estimator, question
        self._estimates: dict[tuple[str, str, str, int], tuple[Estimate, Decomposition] | CostModelError] = {}
        self._factors: dict[tuple[str, str, str, int, int], float] = {}
        self._slowdowns: dict[tuple[str, str, str, int, int], tuple[float, tuple[float, float]]] = {}
        self._prices = Prices()

    def price(self) -> Prices:
        for runtime in self._space.runtimes:
            for precision in self._space.precisions:
                self._price_levels(runtime, precision)
        return self._prices

    def _price_levels(self, runtime: str, precision: str) -> None:
        """Prices the settings with a runtime and a precision, from the highest level down."""
        seen: dict[tuple[str, ...], str] = {}
        top_high_us = None
        for level in self._space.levels_of(runtime):
            batches = list(self._space.batches)
            probe = self._estimate(Setting(runtime, precision, level=level, batch=batches[0]))
            if probe is not None:
                estimate, cut, _ = probe
                layers = tuple(segment.sequence.signature for segment in cut.segments)
                what = ", ".join([runtime, f"level {level}", *([precision] if len(self._space.precisions) > 1 else [])])
                if layers in seen:
                    self._leave_out(what, f"the same layers are executed as at level {seen[layers]}")
                    continue
                seen[layers] = level
                if top_high_us is None:
                    top_high_us = estimate.interval_us[1]
                elif estimate.interval_us[0] > top_high_us and len(batches) > 1:
                    self._leave_out(f"{what}, batches over {batches[0]}", "the level is slower with one sample already")
                    batches = batches[:1]
            for batch in batches:
                for setting in settings_of(self._space, runtime, precision, level, batch):
                    self._price(setting)

    def _leave_out(self, what: str, reason: str) -> None:
        self._prices.left_out.append(LeftOut(what, reason))

    def _price(self, setting: Setting) -> None:
        found = self._estimate(setting)
        if found is None:
            self._prices.unpriced[setting] = self._reason(setting)
            return
        estimate, cut, nearest = found
        slowdown, bounds = self._slowdown(setting, estimate, cut, nearest.system)
        low_us, high_us = estimate.interval_us
        factor = nearest.factor * slowdown
        latency_us = factor * max(estimate.latency_us, self._least_us(setting, nearest.system))
        if latency_us <= 0:
            self._prices.unpriced[setting] = "no layer of the model has a cost"
            return
        interval_us = (
            min(latency_us, nearest.bounds[0] * bounds[0] * low_us),
            max(latency_us, nearest.bounds[1] * bounds[1] * high_us),
        )
        slo_factor = self._slo_factor(estimate)
        self._prices.slo_factors[setting] = slo_factor
        if estimate.peak_memory_bytes is not None:
            self._prices.peak_bytes[setting] = estimate.peak_memory_bytes
        self._prices.notes[setting] = _relevant(estimate.warnings)
        self._prices.priced.append(
            TunedSetting(
                setting=setting,
                description=str(setting),
                system=nearest.system.name,
                borrowed=nearest.differences,
                predicted=self._question.performance(setting, latency_us, interval_us, slo_factor),
                measured=None,
                coverage=estimate.coverage,
                version=estimate.predictor.version,
            )
        )

    def _least_us(self, setting: Setting, system: System) -> float:
        """Returns the least latency that is believed, in microseconds.

        A regressor that has seen the layers of the highest level only knows little about those of a lower one, which
        the runtime would otherwise have improved: they are taken to be no faster, and their lower bound still says
        that they might be.
        """
        top = self._space.levels_of(setting.runtime)[0]
        found = self._estimates.get((system.name, top, setting.precision, setting.batch))
        if setting.level in (top, system.settings.level) or found is None or isinstance(found, CostModelError):
            return 0.0
        return found[0].latency_us

    def _estimate(self, setting: Setting) -> tuple[Estimate, Decomposition, Nearest] | None:
        """Returns the estimate of a setting from the nearest system that has one; None if there is none."""
        for nearest in by_distance(setting, self._systems):
            found = self._estimate_on(nearest.system, setting)
            if found is not None:
                return *found, self._with_threads(setting, nearest, *found)
        return None

    def _estimate_on(self, system: System, setting: Setting) -> tuple[Estimate, Decomposition] | None:
        """Returns the estimate of the model on a system, at the level, precision and batch size of a setting."""
        key = system.name, setting.level, setting.precision, setting.batch
        if key not in self._estimates:
            try:
                self._estimates[key] = self._estimator(system, *key[1:])
            except CostModelError as error:
                self._estimates[key] = error
        found = self._estimates[key]
        return None if isinstance(found, CostModelError) else found

    def _with_threads(self, setting: Setting, nearest: Nearest, estimate: Estimate, cut: Decomposition) -> Nearest:
        """Adds what the threads of a setting make of the latency on a system with another number of them."""
        threads, few = setting.threads, nearest.system.settings.threads
        if threads == few:
            return nearest
        known = self._known_threads(setting, few)
        undivided = 0.0 if known is None else self._undivided_share(setting, *known)
        expected = self._expected_factor(nearest.system, setting, estimate, cut, threads)
        factor = threads_factor(expected, undivided, fewer=threads < few)
        numbers = () if known is None else (few, known[1].settings.threads)
        return with_threads(setting, nearest, factor, thread_half_width(threads, few, known is not None), numbers)

    def _known_threads(self, setting: Setting, few: int) -> tuple[System, System] | None:
        """Returns two systems that differ in threads alone and both estimate the model; None if there are none.

        The first has `few` threads, and the number of the second is nearest to that of the setting.
        """
        for one in by_distance(setting, self._systems):
            others = [
                other
                for other in self._systems
                if differ_in_threads_alone(one.system, other) and self._latency_us(other, setting) > 0
            ]
            if others and one.system.settings.threads == few and self._latency_us(one.system, setting) > 0:
                return one.system, min(others, key=lambda other: _steps_between(other, setting.threads))
        return None

    def _undivided_share(self, setting: Setting, few: System, other: System) -> float:
        """Returns which share of the latency takes as long with any number of threads, as two systems tell it."""
        found = self._estimate_on(few, setting)
        assert found is not None
        expected = self._expected_factor(few, setting, *found, other.settings.threads)
        found_factor = self._latency_us(other, setting) / self._latency_us(few, setting)
        return undivided_share(found_factor, expected, beyond=setting.threads > other.settings.threads)

    def _expected_factor(
        self, system: System, setting: Setting, estimate: Estimate, cut: Decomposition, threads: int
    ) -> float:
        """Returns the ratio of the latency with some threads to that on a system, by how layers can be divided."""
        key = system.name, setting.level, setting.precision, setting.batch, threads
        if key not in self._factors:
            costs_us = np.array([layer.share * layer.cost.latency_us for layer in estimate.layers])
            sequences = [segment.sequence for segment in cut.segments]
            base, new = (divide_work(sequences, system, number) for number in (system.settings.threads, threads))
            total_us = float(costs_us.sum())
            self._factors[key] = float(new.costs_us(costs_us, base).sum()) / total_us if total_us > 0 else 1.0
        return self._factors[key]

    def _latency_us(self, system: System, setting: Setting) -> float:
        """Returns the latency on a system at the level of a setting, as it is believed; 0 if there is no estimate."""
        found = self._estimate_on(system, setting)
        return 0.0 if found is None else max(found[0].latency_us, self._least_us(setting, system))

    def _reason(self, setting: Setting) -> str:
        """Returns the reason why a setting has no price: the error on the nearest system."""
        for nearest in by_distance(setting, self._systems):
            return str(self._estimates[nearest.system.name, setting.level, setting.precision, setting.batch])
        return f"no system with {setting.runtime} is known for this processor: `costmodel bench` measures one"

    def _slowdown(
        self, setting: Setting, estimate: Estimate, cut: Decomposition, system: System
    ) -> tuple[float, tuple[float, float]]:
        """Returns how many times as long a run takes beside the other sessions, and the bounds of that."""
        if setting.sessions == 1:
            return 1.0, (1.0, 1.0)
        key = system.name, setting.level, setting.precision, setting.batch, setting.sessions
        if key not in self._slowdowns:
            law = Interference.from_capabilities(system.capabilities)
            if law is None:
                self._prices.warnings[_NO_INTERFERENCE.format(system.name)] = None
                self._slowdowns[key] = 1.0, (1.0, 1.0)
            else:
                traffic = traffic_of(estimate, cut)
                slowdown = law.slowdown(traffic, [traffic] * (setting.sessions - 1), system.host)
                self._slowdowns[key] = slowdown, slowdown_interval(slowdown)
        return self._slowdowns[key]

    def _slo_factor(self, estimate: Estimate) -> float:
        """Returns the ratio of the latency at the percentile of the objective to that on the quiet machine.

        Where the jitter is not known at the percentile, that of the next higher known one counts.
        """
        if self._question.slo is None:
            return 1.0
        known: Mapping[float, float] = {float(name[1:]): factor for name, factor in estimate.jitter.items()}
        above = [known[percentile] for percentile in sorted(known) if percentile >= self._question.slo.percentile]
        return above[0] if above else max(known.values(), default=1.0)


def _steps_between(system: System, threads: int) -> float:
    return abs(thread_steps(system.settings.threads) - thread_steps(threads))


def _relevant(warnings: Sequence[str]) -> tuple[str, ...]:
    """Returns warnings without those that a symbolic batch is taken to be 1, which a tuner chooses itself."""
    return tuple(warning for warning in warnings if "is symbolic" not in warning)


def grouped_reasons(unpriced: Mapping[Setting, str]) -> list[LeftOut]:
    """Returns settings that have no price, in groups with the same runtime and the same reason."""
    groups: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for setting, reason in unpriced.items():
        groups[setting.runtime, reason].append(setting)
    found = []
    for (runtime, reason), settings in groups.items():
        what = f"{len(settings)} setting{'s' * (len(settings) > 1)} with {runtime}"
        precisions, batches = {one.precision for one in settings}, sorted({one.batch for one in settings})
        if len(precisions) == 1:
            what += f", {settings[0].precision}"
        if batches != [1]:
            what += f", batch {', '.join(map(str, batches))}"
        found.append(LeftOut(what, reason))
    return found
