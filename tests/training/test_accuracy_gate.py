"""The accuracy gate: with fixed seeds on the shipped data, errors must not grow."""

import json
from typing import Any

import pytest

from tests.training.gate import RECORDED, achieved

pytestmark = pytest.mark.starts_first

# Tolerated growth relative to the recorded error: over everything, and in each family.
OVERALL, FAMILY = 1.05, 1.10


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The recorded accuracy of the last intended change."""
    document: dict[str, Any] = json.loads(RECORDED.read_text())
    return document


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The accuracy of the present code."""
    return achieved(tmp_path_factory.mktemp("gate"))


def test_every_row_has_its_prediction(now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Every layer and every model of the shipped data has a prediction."""
    assert {key: now[key] for key in ("layers", "models")} == {key: recorded[key] for key in ("layers", "models")}
    assert now["families"].keys() == recorded["families"].keys()


@pytest.mark.parametrize("error", ["layer_mape", "model_mape", "model_unseen_mape"])
def test_the_error_has_not_grown(error: str, now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """The errors over all layers and over all models have grown by at most a twentieth."""
    assert now[error] <= OVERALL * recorded[error]


def test_no_family_has_become_worse(now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """The error of each family has grown by at most a tenth."""
    worse = {
        family: (before, now["families"][family])
        for family, before in recorded["families"].items()
        if now["families"][family] > FAMILY * before
    }
    assert not worse
