"""The accuracy gate: trained on the shipped data with fixed seeds, nothing is predicted worse than it was."""

import json
from typing import Any

import pytest

from tests.training.gate import RECORDED, achieved

# Of the recorded error: over everything, and in each family.
OVERALL, FAMILY = 1.05, 1.10


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What was achieved when this was last changed on purpose."""
    document: dict[str, Any] = json.loads(RECORDED.read_text())
    return document


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is achieved with the code as it is."""
    return achieved(tmp_path_factory.mktemp("gate"))


def test_every_row_has_its_prediction(now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """No layer and no model of the shipped data falls out."""
    assert {key: now[key] for key in ("layers", "models")} == {key: recorded[key] for key in ("layers", "models")}
    assert now["families"].keys() == recorded["families"].keys()


@pytest.mark.parametrize("error", ["layer_mape", "model_mape", "model_unseen_mape"])
def test_the_error_has_not_grown(error: str, now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Over all layers and all models, by more than a twentieth."""
    assert now[error] <= OVERALL * recorded[error]


def test_no_family_has_become_worse(now: dict[str, Any], recorded: dict[str, Any]) -> None:
    """By more than a tenth of its error."""
    worse = {
        family: (before, now["families"][family])
        for family, before in recorded["families"].items()
        if now["families"][family] > FAMILY * before
    }
    assert not worse
