"""A data set of imported measurements."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from costmodel.features.tabular import Encoded
from costmodel.store.parquet import export_results, import_results
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from tests.synthetic import SYSTEM


def test_an_imported_data_set_is_the_same(store: Store, dataset: Dataset, tmp_path: Path) -> None:
    """An imported data set equals the original: rows, families, samples, models, repeats, fingerprint."""
    export_results(store, SYSTEM.name, tmp_path / "results.parquet", with_models=True)
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    import_results(other, tmp_path / "results.parquet")
    there = load_dataset(other, SYSTEM.name)
    assert there.fingerprint == dataset.fingerprint
    for field in fields(Dataset):
        if field.name not in ("models", "encoded"):
            assert np.array_equal(getattr(there, field.name), getattr(dataset, field.name)), field.name
    for field in fields(Encoded):
        assert np.array_equal(getattr(there.encoded, field.name), getattr(dataset.encoded, field.name)), field.name
    assert len(there.models) == len(dataset.models) > 0
    for one, two in zip(there.models, dataset.models, strict=True):
        assert (one.name, one.family, one.latency_us) == (two.name, two.family, two.latency_us)
        assert np.array_equal(one.rows, two.rows)
    other.close()
