"""Fixtures that several tests of the store share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from costmodel.store.store import Store


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Function that creates an empty store."""
    made: list[Store] = []

    def new() -> Store:
        made.append(Store(f"sqlite:///{tmp_path / f'{len(made)}.db'}"))
        return made[-1]

    yield new
    for store in made:
        store.close()
