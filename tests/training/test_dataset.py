"""The data set of a system: its rows, their families, and which of them may be trained on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from costmodel.errors import TrainingError, UnknownSystemError
from costmodel.features.schema import SCHEMA
from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.ir.sequence import LayerSequence
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.corpora.recipe import RANDOM_FAMILY
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.splits import leave_families_out
from tests.fakes import elementwise
from tests.synthetic import FAMILIES, MEASURED, REPEATED, SAMPLES, SYSTEM, copied, corpus, fill, made_up_measurement

FAMILY_SETS = st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=3)


@pytest.fixture
def own_store(trained: Home, tmp_path: Path) -> Store:
    """A copy of the filled store that a test may change."""
    return Store(copied(trained, tmp_path / "home").store_url)


def _measure(store: Store, *sequences: LayerSequence) -> None:
    for sequence in sequences:
        store.put_measurement(SYSTEM.name, made_up_measurement(sequence.signature, 50.0), sequence)


def _chain(count: int, size: int) -> LayerGraph:
    """Returns a model of `count` Relu layers."""
    names = [f"v{i}" for i in range(count + 1)]
    layers = tuple(Layer(f"relu{i}", "Relu", "", 6, {}, (names[i],), (names[i + 1],)) for i in range(count))
    return LayerGraph(layers, dict.fromkeys(names, TensorType("float32", (size,))), {}, ("v0",), (names[-1],), 17)


def _put(store: Store, name: str, graph: LayerGraph, *, family: str, lowering: str = "x", granularity: int = 1) -> None:
    cut = decompose(name, graph, granularity)
    store.put_model(cut, whole_model(graph), digest=name, family=family, lowering=lowering)


def test_a_row_for_each_measured_sequence(dataset: Dataset, store: Store) -> None:
    """Sequences, samples and whole models are rows, and whole models are marked."""
    wholes = {model.whole for model in store.models()}
    segments = {segment.signature for model in store.models() for segment in model.segments}
    assert set(dataset.signatures) == segments | set(store.samples()) | wholes
    assert {s for s, whole in zip(dataset.signatures, dataset.whole, strict=True) if whole} == wholes
    assert len(dataset) == len(dataset.signatures) == len(dataset.encoded) == len(dataset.latencies_us)
    assert dataset.all_families == FAMILIES


def test_a_model_knows_the_row_of_the_whole(dataset: Dataset) -> None:
    """The row of a whole model has as many layers as the model, and its latency."""
    for model in dataset.models:
        assert dataset.whole[model.row]
        assert dataset.encoded.lengths[model.row] == dataset.encoded.lengths[model.rows].sum()
        assert dataset.latencies_us[model.row] == model.latency_us


def test_what_other_families_have_is_known(dataset: Dataset) -> None:
    """A layer is known if a model of another family has it."""
    for model, known in zip(dataset.models, dataset.known_elsewhere, strict=True):
        assert known.tolist() == [dataset.families[row] > {model.family} for row in model.rows]


def test_layers_know_how_much_their_model_reads(dataset: Dataset) -> None:
    """The footprint feature of a layer is that of its model, of whose equal weights the runtime keeps one."""
    column = SCHEMA.names.index("footprint_over_l3")
    assert SYSTEM.host is not None
    for family, nbytes in (("squeezenet", 3.71e6), ("vgg", 2 * SYSTEM.host.l3_bytes)):  # the feature is capped there
        own = [row for row, families in enumerate(dataset.families) if families == {family}]
        footprints = dataset.encoded.features[dataset.encoded.starts[own], column]
        assert np.exp(footprints) * SYSTEM.host.l3_bytes == pytest.approx(nbytes, rel=0.01)


def test_measured_models_have_their_rows_in_execution_order(dataset: Dataset, store: Store) -> None:
    """The rows of a model are its sequences in execution order, repeats included."""
    assert {model.name for model in dataset.models} == set(MEASURED)
    stored = {model.name: model for model in store.models()}
    for model in dataset.models:
        signatures = [dataset.signatures[row] for row in model.rows]
        assert signatures == [segment.signature for segment in stored[model.name].segments]
        total = dataset.latencies_us[model.rows].sum()
        assert model.latency_us == pytest.approx(total, rel=0.04)  # by construction of the synthetic latencies


def test_samples_have_the_families_of_their_origin(dataset: Dataset, store: Store) -> None:
    """A sample has the families of the sequence from which it was made."""
    families = dict(zip(dataset.signatures, dataset.families, strict=True))
    origins = store.samples()
    assert len(origins) == SAMPLES
    for signature, origin in origins.items():
        assert families[signature] == families[origin]
    sampled = {s for s, is_sample in zip(dataset.signatures, dataset.sampled, strict=True) if is_sample}
    assert sampled == set(origins)


def test_layers_of_models_without_a_family_train_and_are_not_judged(own_store: Store) -> None:
    """Layers of a model without a family are always training data, and the whole model is not judged.

    Where a model with a family has the same layers, they belong to that family.
    """
    shared, own = elementwise(77), elementwise(78)
    _put(own_store, "no_family", _chain(1, 77), family="")
    _put(own_store, "no_family_other", _chain(1, 78), family="")
    _put(own_store, "real", _chain(2, 77), family="new")
    _measure(own_store, shared, own, whole_model(_chain(2, 77)))
    dataset = load_dataset(own_store, SYSTEM.name)
    rows = [dataset.signatures.index(sequence.signature) for sequence in (shared, own)]
    assert [dataset.families[row] for row in rows] == [{"new"}, frozenset()]
    assert dataset.sampled[rows].tolist() == [False, True]
    assert dataset.all_families == tuple(sorted({*FAMILIES, "new"}))
    assert {model.name for model in dataset.models} == {*MEASURED, "real"}


def test_random_networks_are_measured_whole_and_are_not_judged(own_store: Store) -> None:
    """Their layers are always training data, and they are kept apart from the models that a regressor is judged by."""
    own, whole = elementwise(78), whole_model(_chain(3, 78))
    _put(own_store, "random", _chain(3, 78), family=RANDOM_FAMILY)
    _measure(own_store, own, whole)
    dataset = load_dataset(own_store, SYSTEM.name)
    rows = [dataset.signatures.index(sequence.signature) for sequence in (own, whole)]
    assert [dataset.families[row] for row in rows] == [frozenset(), frozenset()]
    assert dataset.sampled[rows[0]]
    assert dataset.whole[rows].tolist() == [False, True]
    assert dataset.all_families == tuple(sorted(FAMILIES))
    assert {model.name for model in dataset.models} == set(MEASURED)
    (random_model,) = dataset.random_models
    assert (random_model.name, random_model.row, set(random_model.rows)) == ("random", rows[1], {rows[0]})
    assert dataset.all_models == (*dataset.models, random_model)
    splits = leave_families_out(dataset)
    assert all(split.train_rows[rows[0]] and not split.test_rows[rows].any() for split in splits)
    assert {dataset.models[i].name for split in splits for i in split.models} == set(MEASURED)


def test_a_copy_without_a_family_takes_no_family_away(own_store: Store, dataset: Dataset) -> None:
    """A model without a family does not change the family of a model with the same layers."""
    original = own_store.models()[0]
    _put(own_store, "no_family", _chain(3, 40), family="")
    _put(own_store, "real", _chain(3, 40), family=original.family)
    assert load_dataset(own_store, SYSTEM.name).all_families == dataset.all_families


def test_a_sample_that_turns_up_in_a_model_is_a_row_of_that_model(own_store: Store) -> None:
    """A sample that a model contains is of the model's family too, and is judged like any layer."""
    signature = next(iter(own_store.samples()))
    sequence = own_store.sequences([signature])[signature]
    own_store.put_samples({s.signature: (s, sequence) for s in [elementwise(77)]})
    _measure(own_store, elementwise(77))
    _put(own_store, "newcomer", _chain(1, 77), family="new")
    dataset = load_dataset(own_store, SYSTEM.name)
    row = dataset.signatures.index(elementwise(77).signature)
    assert "new" in dataset.families[row]
    assert not dataset.sampled[row]


def test_a_model_of_one_layer_is_that_layer(own_store: Store) -> None:
    """A whole model of one layer is a row of that layer, and other models with the layer keep their row."""
    _put(own_store, "one", _chain(1, 99), family="tiny")
    _put(own_store, "two", _chain(2, 99), family="other")
    _measure(own_store, elementwise(99), whole_model(_chain(2, 99)))
    dataset = load_dataset(own_store, SYSTEM.name)
    assert elementwise(99).signature in dataset.signatures
    assert {"one", "two"} <= {model.name for model in dataset.models}


def test_a_model_that_two_releases_lower_alike_counts_once(own_store: Store) -> None:
    """Models with equal layers and whole count once, however often they are stored."""
    before = load_dataset(own_store, SYSTEM.name)
    _put(own_store, "two", _chain(2, 99), family="tiny", lowering="release-1")
    _put(own_store, "two", _chain(2, 99), family="tiny", lowering="release-2")
    _measure(own_store, elementwise(99), whole_model(_chain(2, 99)))
    assert len(load_dataset(own_store, SYSTEM.name).models) == len(before.models) + 1


def test_a_copy_under_another_name_is_of_the_same_family(own_store: Store, dataset: Dataset) -> None:
    """A copy of a model has the family of the original, else copies would be judged by their originals."""
    (original, *_) = own_store.models()
    graph = _chain(3, 40)
    _put(own_store, "secret", graph, family="secret")
    _put(own_store, "known", graph, family=original.family)
    _measure(own_store, *decompose("secret", graph).unique.values())
    families = load_dataset(own_store, SYSTEM.name).all_families
    assert len(families) == len(dataset.all_families)


def test_only_complete_models_of_single_layers_are_judged(own_store: Store) -> None:
    """A model with an unmeasured layer, without a whole measurement, or cut coarser is not judged."""
    _put(own_store, "incomplete", _chain(2, 101), family="tiny")
    _measure(own_store, whole_model(_chain(2, 101)))
    _put(own_store, "not-run", _chain(3, 102), family="tiny")
    _measure(own_store, elementwise(102))
    _put(own_store, "coarse", _chain(4, 103), family="tiny", granularity=2)
    _measure(own_store, whole_model(_chain(2, 103)), whole_model(_chain(4, 103)))
    assert {model.name for model in load_dataset(own_store, SYSTEM.name).models} == set(MEASURED)


def test_the_noise_floor_is_the_error_between_repeats(dataset: Dataset) -> None:
    """The noise floor is the error between repeats (here 2%), and needs at least thirty of them."""
    assert len(dataset.repeats) == REPEATED
    assert dataset.noise_floor() == pytest.approx(0.02)
    assert replace(dataset, repeats=dataset.repeats[:29]).noise_floor() is None


def test_the_fingerprint_names_the_data(dataset: Dataset, store: Store) -> None:
    """The fingerprint is reproducible, and changes with any latency."""
    assert load_dataset(store, SYSTEM.name).fingerprint == dataset.fingerprint
    other = dataset.latencies_us.copy()
    other[-1] *= 1.01
    assert replace(dataset, latencies_us=other).fingerprint != dataset.fingerprint


def test_too_little_data_is_refused(tmp_path: Path) -> None:
    """Too little data is refused with the present number, the required number and how to get more."""
    store = Store(f"sqlite:///{tmp_path / 'small.db'}")
    store.put_system(SYSTEM)
    _measure(store, elementwise(8), elementwise(16))
    with pytest.raises(
        TrainingError, match=r"made\.up has 2 measured sequences and training needs 20, or 10 whole models: run `costm"
    ):
        load_dataset(store, SYSTEM.name)


def test_an_unknown_system_is_refused(store: Store) -> None:
    """An unknown system is refused with the names of known ones."""
    with pytest.raises(UnknownSystemError, match=r"c5\.xlarge.*known here: made\.up"):
        load_dataset(store, "c5.xlarge")


def test_latencies_are_medians_of_all_measurements(dataset: Dataset) -> None:
    """The latency of a sequence is the median over its measurements, and repeats give the noise."""
    for first, second in dataset.repeats:
        assert second == pytest.approx(1.02 * first)
        assert np.isclose(dataset.latencies_us, 1.01 * first).any()


def test_measurements_without_models_belong_to_no_family(tmp_path: Path, trained: Home) -> None:
    """A store with measurements of a benchmark suite only has rows and no families."""
    models = corpus(trained.cache)
    source, target = (Store(f"sqlite:///{tmp_path / name}.db") for name in ("source", "target"))
    fill(source, [models["light_squeezenet"]], samples=0)
    sequences = source.sequences(source.latencies_us(SYSTEM.name))
    target.put_system(SYSTEM)
    _measure(target, *sequences.values())
    assert load_dataset(target, SYSTEM.name).all_families == ()
