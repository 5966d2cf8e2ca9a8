"""Evaluation across systems, on two synthetic systems of which one is 2.5 times as slow as the other."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import TrainingError
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.systems.system import System
from costmodel.training.evaluation.across_systems import AcrossSystems, evaluate_across
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, fill

FACTOR = 2.5


def _named(name: str, microarchitecture: str, factor: float = 1.0) -> System:
    assert SYSTEM.host is not None
    capabilities = {
        capability: value / factor if capability.endswith(("gflops", "gbps")) else value * factor
        for capability, value in SYSTEM.capabilities.items()
    }
    host = replace(SYSTEM.host, microarchitecture=microarchitecture)
    return replace(SYSTEM, name=name, host=host, capabilities=capabilities)


BASE, SLOW = _named("made.base", "icelake-sp"), _named("made.slow", "cascade-lake", FACTOR)


def _measured(trained: Home, root: Path, inside: float) -> Store:
    """Returns a store in which both systems are measured, in a new folder.

    Args:
        trained: Home with a store.
        root: The folder.
        inside: Factor from the sum of a model's layers to the latency of the whole model on the slow system.
    """
    store = Store(copied(trained, root).store_url)
    for system, factor in ((BASE, 1.0), (SLOW, inside)):
        models = [corpus(trained.cache)[name] for name in MEASURED]
        fill(store, models, system=system, samples=0, inside=factor)
    return store


@pytest.fixture(scope="module")
def both(trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in which both systems are measured."""
    return _measured(trained, tmp_path_factory.mktemp("across") / "home", 1.0)


@pytest.fixture(scope="module")
def result(both: Store) -> AcrossSystems:
    """The slow system predicted from the base."""
    return evaluate_across(both, SLOW, [BASE], minutes=(0.02, 1.0), folds=2)


def test_every_method_is_judged_on_the_lineages_that_it_can_predict(result: AcrossSystems) -> None:
    """Predictions are judged on three kinds of lineages, each on all models; baselines on those they apply to."""
    assert (result.system, result.bases) == ("made.slow", ("made.base",))
    judged = {(one.method, one.lineages): one for one in result.judgements}
    for method in ("facts", "0.02 min", "1 min"):
        assert {lineages for name, lineages in judged if name == method} == {"known", "unmeasured", "unseen"}
    assert {lineages for name, lineages in judged if name.startswith("scratch")} == {"unseen"}
    assert judged["1 min", "unmeasured"].models == len(MEASURED)


def test_measuring_is_better_than_facts(result: AcrossSystems) -> None:
    """Facts miss that the system is so slow, and a minute of measuring finds it, also for other lineages."""
    judged = {(one.method, one.lineages): one for one in result.judgements}
    assert judged["facts", "known"].bias < 0.7
    assert judged["1 min", "known"].error < 0.1
    assert judged["1 min", "unmeasured"].error < 0.1
    assert judged["ratio of products", "unmeasured"].error < 0.1  # here, one factor is the truth
    assert judged["1 min", "known"].expected is not None


def test_sums_are_corrected_by_models_that_were_measured_whole(trained: Home, tmp_path: Path) -> None:
    """Where layers take longer inside a model, all predictions after some measuring say so, baselines do not."""
    store = _measured(trained, tmp_path / "home", 1.3)
    judged = {
        (one.method, one.lineages): one.bias
        for one in evaluate_across(store, SLOW, [BASE], minutes=(5.0,), folds=2).judgements
    }
    assert judged["ratio of products", "unmeasured"] == pytest.approx(1 / 1.3, rel=0.05)
    for of in (("5 min", "known"), ("5 min", "unmeasured"), ("scratch, everything", "unseen")):
        assert judged[of] > 0.9


def test_a_system_is_not_predicted_from_its_own_kind(both: Store) -> None:
    """Systems of the same microarchitecture are left out, and without others there is an error."""
    twin = replace(BASE, name="made.twin", host=SLOW.host)
    with pytest.raises(TrainingError, match="another microarchitecture"):
        evaluate_across(both, SLOW, [twin])
