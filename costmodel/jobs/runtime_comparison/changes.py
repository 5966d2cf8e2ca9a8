"""Finds what changed between two releases: ratios with intervals, and marks on those that are beyond noise.

Everything is compared within pairs of turns, so that what slows both releases alike cancels. The intervals hold all
together with the stated probability, and a change is marked only if its whole interval is beyond `LEAST_CHANGE`. See
docs/adr/0028.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from costmodel.jobs.runtime_comparison.pairs import ComparedModel, Turn, usable_pairs
from costmodel.jobs.runtime_comparison.student_t import two_sided_quantile
from costmodel.partition.decomposition import Decomposition

__all__ = ["LEAST_CHANGE", "LEVEL", "Change", "Kind", "LayerOccurrence", "find_changes", "unmatched_layers"]

# Probability with which all intervals of a report together contain the true ratios.
LEVEL = 0.95
# Smallest ratio, in either direction, that can be marked: two processes with the same release may differ by less.
LEAST_CHANGE = 1.02

# Three quarters of what is compared vary more than this quantile: what varies less does so by chance.
_LEAST_NOISE_QUANTILE = 0.25

Kind = Literal["model", "sum", "operator", "layer"]


@dataclass(frozen=True, slots=True)
class Change:
    """How much longer something takes with the new release than with the old one.

    Attributes:
        kind: What is compared: "model" (a model end to end), "sum" (the sum of all layers of a model), "operator" (the
            sum of all layers of one operator, over all models) or "layer" (one layer that both releases execute).
        name: Name of the model or operator; of a layer, its model and its name there, where it occurs first.
        operator: Operator of a layer or of the layers of an operator; "" for models and sums.
        signature: Signature of a layer; otherwise "".
        layers: Number of layers that are added up, with the old and with the new release.
        from_us: Latency with the old release in microseconds: the geometric mean over the pairs.
        to_us: Latency with the new release in microseconds.
        ratio: `to_us` divided by `from_us`.
        interval: Interval of `ratio`; None if there are fewer than two pairs.
        pairs: Number of pairs of turns from which the ratio was computed.
        changed: Whether the change is beyond noise.
    """

    kind: Kind
    name: str
    operator: str
    signature: str
    layers: tuple[int, int]
    from_us: float
    to_us: float
    ratio: float
    interval: tuple[float, float] | None
    pairs: int
    changed: bool


@dataclass(frozen=True, slots=True)
class LayerOccurrence:
    """A layer, with the place where it occurs first.

    Attributes:
        model: Name of the model in which it occurs first.
        layer: Name of the layer there.
        operator: Operator of the layer.
        signature: Signature of the layer.
        count: Number of its occurrences in all models.
    """

    model: str
    layer: str
    operator: str
    signature: str
    count: int


@dataclass(frozen=True)
class _Series:
    """The latencies that are compared, in each pair of turns.

    Attributes:
        us: Latencies in microseconds of the old and the new release, shape [2, num_pairs].
        steady_us: The same without what slowed all layers of the model alike in a turn, shape [2, num_pairs].
    """

    us: np.ndarray
    steady_us: np.ndarray


@dataclass(frozen=True)
class _Compared:
    """Something that is compared, with one series, or several if it occurs in several models."""

    kind: Kind
    name: str
    operator: str
    signature: str
    layers: tuple[int, int]
    series: Sequence[_Series]

    @property
    def log_ratios(self) -> np.ndarray:
        """Logarithm of the ratio in each pair, shape [num_pairs]."""
        return np.concatenate([np.log(one.us[1] / one.us[0]) for one in self.series])

    @property
    def own_noise(self) -> float:
        """Standard deviation of the logarithms of the ratios."""
        return float(np.std(self.log_ratios, ddof=1))

    @property
    def noise_within_releases(self) -> float:
        """Standard deviation of a ratio that follows from how much each release varies between its own turns."""
        logs = [np.log(one.steady_us) for one in self.series]
        residuals = np.concatenate([one - one.mean(axis=1, keepdims=True) for one in logs], axis=1)
        return math.sqrt(float((residuals**2).sum()) / (residuals.shape[1] - 1))


def find_changes(models: Sequence[ComparedModel]) -> list[Change]:
    """Compares everything that both releases execute: models, sums of layers, operators, layers.

    Models without a usable pair are left out. An operator is compared over those models in which all of its layers are
    measured with both releases.
    """
    measured = [one for model in models if (one := _MeasuredModel.of(model)) is not None]
    if not measured:
        return []
    compared = list(_compared(measured))
    kinds = [found for kind in get_args(Kind) if (found := [one for one in compared if one.kind == kind])]
    changes: list[Change] = []
    for of_kind in kinds:
        # Each kind gets an equal part of the permitted error, or else the many layers would hide a change of a model.
        outside = (1 - LEVEL) / len(kinds) / len(of_kind)
        noises = [one.own_noise for one in of_kind if one.log_ratios.size > 1]
        least = float(np.quantile(noises, _LEAST_NOISE_QUANTILE)) if noises else 0.0
        changes += [_change(one, least, outside) for one in of_kind]
    return changes


def unmatched_layers(models: Sequence[ComparedModel]) -> tuple[list[LayerOccurrence], list[LayerOccurrence]]:
    """Returns the layers that only the old release executes in any of the models, and those that only the new does."""
    old, new = _occurrences(model.old for model in models), _occurrences(model.new for model in models)
    return (
        [layer for signature, layer in old.items() if signature not in new],
        [layer for signature, layer in new.items() if signature not in old],
    )


def _change(compared: _Compared, least_noise: float, outside: float) -> Change:
    """Returns the ratio of what is compared, with its interval.

    Args:
        compared: What is compared.
        least_noise: Standard deviation of the logarithms of ratios below which none is believed.
        outside: Probability with which the true ratio may be outside the interval.
    """
    logs = compared.log_ratios
    centre = float(logs.mean())
    interval, changed = None, False
    if logs.size > 1:
        # Few pairs may agree by chance, so the largest of three estimates of their noise counts.
        noise = max(compared.own_noise, compared.noise_within_releases, least_noise)
        reach = two_sided_quantile(outside, logs.size - 1) * noise / math.sqrt(logs.size)
        interval = _bounded_exp(centre - reach), _bounded_exp(centre + reach)
        changed = interval[0] > LEAST_CHANGE or interval[1] < 1 / LEAST_CHANGE
    from_us = math.exp(float(np.concatenate([np.log(one.us[0]) for one in compared.series]).mean()))
    ratio = math.exp(centre)
    return Change(
        compared.kind, compared.name, compared.operator, compared.signature, compared.layers, from_us, from_us * ratio,
        ratio, interval, logs.size, changed,
    )  # fmt: skip


def _bounded_exp(value: float) -> float:
    return math.exp(min(max(value, -50.0), 50.0))  # with two pairs, an interval may exceed what a float can hold


@dataclass(frozen=True)
class _MeasuredModel:
    """A model with its usable pairs, at least one.

    Attributes:
        model: The model.
        turns: Turns of the old and of the new release, each in the order of the pairs.
        shifts: How much longer all layers took alike in each turn: logarithms, shape [2, num_pairs].
    """

    model: ComparedModel
    turns: tuple[Sequence[Turn], Sequence[Turn]]
    shifts: np.ndarray

    @classmethod
    def of(cls, model: ComparedModel) -> "_MeasuredModel | None":
        pairs = usable_pairs(model.pairs)
        if not pairs:
            return None
        turns = [pair.old for pair in pairs], [pair.new for pair in pairs]
        return cls(model, turns, np.stack([_shifts(of_release) for of_release in turns]))

    def layers(self, counts: tuple[Mapping[str, int], Mapping[str, int]]) -> _Series | None:
        """Returns the sums of layers, 0 for a release that executes none of them; None if a layer is not measured.

        Args:
            counts: Number of occurrences of each layer, by signature, with the old and with the new release.
        """
        sums = []
        for of_release, turns in zip(counts, self.turns, strict=True):
            if not turns[0].layers_us.keys() >= of_release.keys():
                return None
            sums.append([sum(count * turn.layers_us[s] for s, count in of_release.items()) + 0.0 for turn in turns])
        return self._series(np.array(sums))

    def whole(self) -> _Series | None:
        """Returns the latencies end to end; None if they are not measured."""
        wholes = [[turn.whole_us for turn in turns] for turns in self.turns]
        return None if None in (wholes[0][0], wholes[1][0]) else self._series(np.array(wholes, dtype=float))

    def _series(self, us: np.ndarray) -> _Series:
        return _Series(us, us * np.exp(-self.shifts))


def _shifts(turns: Sequence[Turn]) -> np.ndarray:
    """Returns the logarithm of the factor by which most layers of a model took longer in each turn, shape [num_turns].

    The factor of a turn is the median over the layers, relative to what each layer takes on average over the turns.
    """
    signatures = list(turns[0].layers_us)
    if not signatures:
        return np.zeros(len(turns))
    logs = np.log([[turn.layers_us[signature] for turn in turns] for signature in signatures])
    shifts: np.ndarray = np.median(logs - logs.mean(axis=1, keepdims=True), axis=0)
    return shifts


def _compared(models: Sequence[_MeasuredModel]) -> Iterator[_Compared]:
    """Yields everything that is compared."""
    for one in models:
        name, old, new = one.model.name, one.model.old, one.model.new
        sizes = (len(old.segments), len(new.segments))
        if (whole := one.whole()) is not None:
            yield _Compared("model", name, "", "", sizes, (whole,))
        if (total := one.layers((old.counts, new.counts))) is not None:
            yield _Compared("sum", name, "", "", sizes, (total,))
    yield from _compared_operators(models)
    yield from _compared_layers(models)


def _compared_operators(models: Sequence[_MeasuredModel]) -> Iterator[_Compared]:
    """Yields the operators that both releases execute, each summed over the models."""
    summed: dict[str, list[tuple[_Series, tuple[int, int]]]] = {}
    for one in models:
        old, new = (_by_operator(cut) for cut in (one.model.old, one.model.new))
        for operator in dict.fromkeys([*old, *new]):
            counts = old.get(operator, {}), new.get(operator, {})
            series = one.layers(counts)
            if series is not None:
                summed.setdefault(operator, []).append((series, (sum(counts[0].values()), sum(counts[1].values()))))
    for operator, parts in summed.items():
        sizes = sum(counts[0] for _, counts in parts), sum(counts[1] for _, counts in parts)
        if not all(sizes):
            continue
        # The n-th pairs of all models are about equally old, and the models are measured one after another.
        pairs = min(series.us.shape[1] for series, _ in parts)
        total = _Series(
            np.sum([series.us[:, :pairs] for series, _ in parts], axis=0),
            np.sum([series.steady_us[:, :pairs] for series, _ in parts], axis=0),
        )
        yield _Compared("operator", operator, operator, "", sizes, (total,))


def _compared_layers(models: Sequence[_MeasuredModel]) -> Iterator[_Compared]:
    """Yields the layers that both releases execute, each with its pairs from all models."""
    found: dict[str, list[_Series]] = {}
    for one in models:
        for signature in one.model.old.unique.keys() & one.model.new.unique.keys():
            series = one.layers(({signature: 1}, {signature: 1}))
            if series is not None:
                found.setdefault(signature, []).append(series)
    old, new = (_occurrences(cuts) for cuts in zip(*((one.model.old, one.model.new) for one in models), strict=True))
    for signature, first in old.items():
        if signature in found:
            sizes = first.count, new[signature].count
            name = f"{first.model}: {first.layer}"
            yield _Compared("layer", name, first.operator, signature, sizes, found[signature])


def _occurrences(cuts: Iterable[Decomposition]) -> dict[str, LayerOccurrence]:
    """Returns each layer of the models with its first occurrence and the number of all, by signature."""
    found: dict[str, LayerOccurrence] = {}
    for cut in cuts:
        for segment in cut.segments:
            signature, kind = segment.sequence.signature, segment.sequence.kind
            first = found.get(signature) or LayerOccurrence(cut.model, "+".join(segment.layers), kind, signature, 0)
            found[signature] = replace(first, count=first.count + 1)
    return found


def _by_operator(cut: Decomposition) -> dict[str, dict[str, int]]:
    """Returns the layers of a model by operator: the number of occurrences of each layer, by signature."""
    found: dict[str, dict[str, int]] = {}
    for signature, sequence in cut.unique.items():
        found.setdefault(sequence.kind, {})[signature] = cut.counts[signature]
    return found
