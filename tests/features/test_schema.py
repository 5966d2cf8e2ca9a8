"""The feature schema, and that artefacts of another one are refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import ArtefactError
from costmodel.features.schema import OPERATORS, SCHEMA, Schema


def test_names_are_unique() -> None:
    """No column has two meanings, and no operator two columns."""
    assert len(set(SCHEMA.names)) == len(SCHEMA.names)
    assert len(set(OPERATORS)) == len(OPERATORS)
    assert {f"op_{name}" for name in OPERATORS} <= set(SCHEMA.names)


@given(position=st.integers(0, len(SCHEMA.names) - 1))
def test_the_fingerprint_follows_every_name(position: int) -> None:
    """Another name anywhere, or another version, is another schema."""
    names = list(SCHEMA.names)
    names[position] += "_2"
    assert Schema(SCHEMA.version, tuple(names)).fingerprint != SCHEMA.fingerprint


def test_the_fingerprint_follows_version_and_order() -> None:
    """A new meaning raises the version; exchanged columns are other features."""
    assert replace(SCHEMA, version=SCHEMA.version + 1).fingerprint != SCHEMA.fingerprint
    assert replace(SCHEMA, names=SCHEMA.names[::-1]).fingerprint != SCHEMA.fingerprint
    assert replace(SCHEMA).fingerprint == SCHEMA.fingerprint


def test_an_artefact_of_another_schema_is_refused() -> None:
    """The message names the artefact and says to train again."""
    SCHEMA.check(SCHEMA.fingerprint, "the regressor")
    with pytest.raises(ArtefactError, match=r"the regressor in x was trained on .* train again"):
        SCHEMA.check("0" * 16, "the regressor in x")
