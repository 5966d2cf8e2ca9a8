"""The feature schema and its fingerprint."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import ArtefactError
from costmodel.features.schema import OPERATORS, SCHEMA, Schema


def test_names_are_unique() -> None:
    """Column names and operators are unique."""
    assert len(set(SCHEMA.names)) == len(SCHEMA.names)
    assert len(set(OPERATORS)) == len(OPERATORS)
    assert {f"op_{name}" for name in OPERATORS} <= set(SCHEMA.names)


@given(position=st.integers(0, len(SCHEMA.names) - 1))
def test_the_fingerprint_follows_every_name(position: int) -> None:
    """Another column name or another version gives another fingerprint."""
    names = list(SCHEMA.names)
    names[position] += "_2"
    assert Schema(SCHEMA.version, tuple(names)).fingerprint != SCHEMA.fingerprint


def test_the_fingerprint_follows_version_and_order() -> None:
    """A raised version and exchanged columns give another fingerprint."""
    assert replace(SCHEMA, version=SCHEMA.version + 1).fingerprint != SCHEMA.fingerprint
    assert replace(SCHEMA, names=SCHEMA.names[::-1]).fingerprint != SCHEMA.fingerprint
    assert replace(SCHEMA).fingerprint == SCHEMA.fingerprint


def test_an_artefact_of_another_schema_is_refused() -> None:
    """An artefact of another schema is refused with a message that names it and says to train again."""
    SCHEMA.check(SCHEMA.fingerprint, "the regressor")
    with pytest.raises(ArtefactError, match=r"the regressor in x was trained on .* train again"):
        SCHEMA.check("0" * 16, "the regressor in x")
