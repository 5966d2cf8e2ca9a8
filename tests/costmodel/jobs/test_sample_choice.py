"""Which layers of other sizes are measured: those near layers whose errors hurt models, and the same ones again."""

from collections import Counter
from pathlib import Path

import pytest

from costmodel.jobs.sample_choice import chosen_samples
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.sampling_value import sampling_values
from tests.fakes import elementwise, results
from tests.synthetic import MEASURED, SYSTEM, copied, corpus, made_up_measurement, trained_home


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a filled store; read-only."""
    return trained_home(tmp_path_factory.getbasetemp() / "trained-home")


@pytest.fixture
def own(trained: Home, tmp_path: Path) -> Store:
    """A copy of the filled store that a test may change."""
    return Store(copied(trained, tmp_path / "home").store_url)


def test_origins_are_drawn_by_share_times_error(own: Store, trained: Home) -> None:
    """The sequences with the largest share times error are origins far more often than the others."""
    models = corpus(trained.cache)
    unique = {s: q for name in MEASURED for s, q in models[name].decomposition.unique.items()}
    values = sampling_values(own, SYSTEM.name)
    assert values.keys() <= unique.keys()
    assert min(values.values()) > 0
    chosen = chosen_samples(own, SYSTEM, list(unique.values()), 300)
    new = Counter(origin.signature for sample, (_, origin) in chosen.items() if sample not in own.samples())
    ranked = sorted(values, key=lambda signature: -values[signature])
    tenth = len(ranked) // 10
    first, last = (sum(new[s] for s in part) for part in (ranked[:tenth], ranked[-tenth:]))
    assert first > 2 * last


def test_samples_that_are_measured_count(own: Store, trained: Home) -> None:
    """Asking again, or for fewer, brings nothing new; asking for more keeps what is measured."""
    models = corpus(trained.cache)
    sequences = list({s: q for name in MEASURED for s, q in models[name].decomposition.unique.items()}.values())
    measured = own.samples()
    assert chosen_samples(own, SYSTEM, sequences, len(measured)).keys() == measured.keys()
    assert chosen_samples(own, SYSTEM, sequences, 5).keys() < measured.keys()
    more = chosen_samples(own, SYSTEM, sequences, len(measured) + 7)
    assert measured.keys() < more.keys()
    assert len(more) == len(measured) + 7
    assert chosen_samples(own, SYSTEM, sequences, len(measured) + 7).keys() == more.keys()


def test_measured_samples_do_not_change_the_choice(own: Store, trained: Home) -> None:
    """The values are those of real layers, so that a command that was interrupted goes on with the same samples."""
    before = sampling_values(own, SYSTEM.name)
    origin = next(iter(own.samples().values()))
    sample = elementwise(4321)
    own.put_samples({sample.signature: (sample, own.sequences([origin])[origin])})
    own.put_results(results(SYSTEM, [(sample, made_up_measurement(sample.signature, 9e3))]))
    assert sampling_values(own, SYSTEM.name) == before


def test_without_enough_families_expensive_and_rare_layers_are_preferred(store: Store) -> None:
    """On a store in which next to nothing is measured, samples are drawn all the same."""
    store.put_system(SYSTEM)
    sequences = [elementwise(100 * size) for size in range(1, 9)]
    assert len(chosen_samples(store, SYSTEM, sequences, 4)) == 4
