"""Planted changes are found, noise is not marked."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from costmodel.jobs.runtime_comparison.changes import Change, find_changes, unmatched_layers
from costmodel.jobs.runtime_comparison.pairs import ComparedModel, Pair, Turn
from costmodel.jobs.runtime_comparison.student_t import two_sided_quantile
from costmodel.partition.decomposition import Decomposition, Segment
from tests.fakes import elementwise

OPERATORS = ("Relu", "Exp", "Sigmoid", "Tanh", "Sqrt", "Neg", "Abs", "Erf")
PLANTED = "Tanh"
ROUNDS = 8


def cut(model: str, operators: Sequence[str], sizes: Sequence[int]) -> Decomposition:
    """Returns a model with a layer for each operator and size."""
    segments = [
        Segment(elementwise(size, op_type=operator), (f"{operator}_{size}",), ())
        for operator in operators
        for size in sizes
    ]
    return Decomposition(model, 1, tuple(segments))


def turn(decomposition: Decomposition, factors: Mapping[str, float], noise: np.ndarray, slowdown: float) -> Turn:
    """Returns a turn in which the n-th layer takes its size in microseconds, times a factor of its operator."""
    cost_us = {
        signature: sequence.values[0].type.elements * factors.get(sequence.kind, 1.0)
        for signature, sequence in decomposition.unique.items()
    }
    measured = {s: us * slowdown * factor for (s, us), factor in zip(cost_us.items(), noise, strict=False)}
    whole_us = slowdown * noise[-1] * sum(decomposition.counts[s] * us for s, us in cost_us.items())
    return Turn(measured, float(whole_us), quiet=True)


def simulated(seed: int, factors: Mapping[str, float], scatter: float = 0.02) -> list[ComparedModel]:
    """Returns three models, of which one lacks the planted operator, measured with noise like that of real machines.

    A neighbour may slow a whole round, that is both releases, by up to 1.9. Each measurement has noise of its own.
    """
    rng = np.random.default_rng(seed)
    models = []
    for name, operators, sizes in (
        ("small", OPERATORS, (10, 30)),
        ("large", OPERATORS, (30, 100, 300, 900)),
        ("other", [operator for operator in OPERATORS if operator != PLANTED], (50, 200)),
    ):
        layers = cut(name, operators, sizes)
        pairs = []
        for _ in range(ROUNDS):
            slowdown = float(rng.uniform(1.0, 1.9)) if rng.random() < 0.5 else 1.0
            noise = rng.lognormal(0.0, scatter, (2, len(layers.segments) + 1))
            pairs.append(Pair(turn(layers, {}, noise[0], slowdown), turn(layers, factors, noise[1], slowdown)))
        models.append(ComparedModel(name, layers, layers, pairs))
    return models


def marked(changes: Sequence[Change]) -> set[tuple[str, str]]:
    """Returns the kind, and the operator or the name, of everything that is marked."""
    return {(change.kind, change.operator or change.name) for change in changes if change.changed}


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_slowdown_is_found_and_nothing_else(seed: int) -> None:
    """The operator is marked, and besides it only its own layers and the models that contain it."""
    found = find_changes(simulated(seed, {PLANTED: 1.3}))
    names = marked(found)
    assert ("operator", PLANTED) in names
    true = {("operator", PLANTED), ("layer", PLANTED)}
    assert names <= true | {(kind, model) for kind in ("model", "sum") for model in ("small", "large")}
    (operator,) = (change for change in found if change.kind == "operator" and change.name == PLANTED)
    assert operator.interval is not None
    assert operator.interval[0] < 1.3 < operator.interval[1]
    assert operator.layers == (6, 6)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_marked_if_nothing_changed(seed: int) -> None:
    """Between two runs of the same release there are no changes."""
    assert marked(find_changes(simulated(seed, {}))) == set()


def test_a_speed_up_is_a_change() -> None:
    """An operator that takes less time is marked too."""
    found = [change for change in find_changes(simulated(0, {PLANTED: 0.7})) if change.name == PLANTED]
    assert [(change.changed, round(change.ratio, 1)) for change in found] == [(True, 0.7)]


def test_more_noise_gives_wider_intervals() -> None:
    """What is noisier has to change more to be marked."""
    calm, noisy = (
        {change.name: change for change in find_changes(simulated(1, {PLANTED: 1.05}, scatter))}[PLANTED]
        for scatter in (0.005, 0.1)
    )
    assert calm.interval is not None
    assert noisy.interval is not None
    assert noisy.interval[1] - noisy.interval[0] > 5 * (calm.interval[1] - calm.interval[0])
    assert (calm.changed, noisy.changed) == (True, False)


def test_layers_of_one_release_are_listed() -> None:
    """Operators and layers that one release lacks are compared nowhere, and count in the sums of the model."""
    old, new = cut("m", ("Relu", "Exp", "Neg"), (100,)), cut("m", ("Relu", "Exp"), (100,))
    noise = np.ones(4)
    pair = Pair(turn(old, {}, noise, 1.0), turn(new, {}, noise, 1.0))
    model = ComparedModel("m", old, new, [pair] * 3)
    only_old, only_new = unmatched_layers([model])
    assert [(one.model, one.layer, one.operator, one.count) for one in only_old] == [("m", "Neg_100", "Neg", 1)]
    assert only_new == []
    found = find_changes([model])
    assert {change.name for change in found if change.kind == "operator"} == {"Relu", "Exp"}
    (total,) = (change for change in found if change.kind == "sum")
    assert (total.layers, total.ratio) == ((3, 2), pytest.approx(2 / 3))


def test_an_operator_that_moved_out_of_a_model_counts_there_as_nothing() -> None:
    """The sum of an operator is over its whole set of layers with each release."""
    noise = np.ones(3)
    models = []
    for name, operators in (("kept", ("Relu", "Exp")), ("fused", ("Exp",))):
        old, new = cut(name, ("Relu", "Exp"), (100,)), cut(name, operators, (100,))
        models.append(ComparedModel(name, old, new, [Pair(turn(old, {}, noise, 1.0), turn(new, {}, noise, 1.0))] * 3))
    ratios = {change.name: change.ratio for change in find_changes(models) if change.kind == "operator"}
    assert ratios == {"Relu": pytest.approx(0.5), "Exp": pytest.approx(1.0)}


def test_an_operator_with_a_layer_that_fails_is_not_compared() -> None:
    """A sum that lacks a layer would look like a speed-up."""
    layers = cut("m", ("Relu", "Exp"), (100, 200))
    full = turn(layers, {}, np.ones(5), 1.0)
    failing = layers.segments[0].sequence.signature
    short = Turn({s: us for s, us in full.layers_us.items() if s != failing}, full.whole_us, quiet=True)
    found = find_changes([ComparedModel("m", layers, layers, [Pair(full, short)] * 3)])
    assert {(change.kind, change.name) for change in found if change.kind != "layer"} == {
        ("model", "m"), ("operator", "Exp"),
    }  # fmt: skip


def test_disturbed_and_incomplete_pairs_do_not_count_if_others_do() -> None:
    """A neighbour during one turn of a pair says nothing about the releases."""
    layers = cut("m", ("Relu",), (100, 200))
    good = turn(layers, {}, np.ones(3), 1.0)
    disturbed = Turn({s: 1.9 * us for s, us in good.layers_us.items()}, good.whole_us, quiet=False)
    partial = Turn(dict(list(good.layers_us.items())[:1]), good.whole_us, quiet=True)
    pairs = [Pair(good, good)] * 4 + [Pair(good, disturbed), Pair(good, partial)]
    for change in find_changes([ComparedModel("m", layers, layers, pairs)]):
        assert (change.ratio, change.pairs) == (pytest.approx(1.0), 4)
    few = find_changes([ComparedModel("m", layers, layers, pairs[3:])])
    assert {change.pairs for change in few} == {2}


def test_one_pair_gives_no_interval() -> None:
    """Without repetition nothing is known of the noise, and no models give no changes."""
    layers = cut("m", ("Relu",), (100,))
    found = find_changes(
        [ComparedModel("m", layers, layers, [Pair(*(turn(layers, {}, np.ones(2), factor) for factor in (1.0, 5.0)))])]
    )
    assert [(change.interval, change.changed) for change in found] == [(None, False)] * len(found)
    assert find_changes([ComparedModel("m", layers, layers)]) == []


def test_quantiles_are_those_of_tables() -> None:
    """Values of Student's t distribution from a printed table."""
    for outside, degrees, value in ((0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 7, 2.365), (0.001, 8, 5.041)):
        assert two_sided_quantile(outside, degrees) == pytest.approx(value, abs=5e-4)
