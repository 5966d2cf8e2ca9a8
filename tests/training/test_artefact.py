"""Bundles on disk are complete or absent, refused if they do not fit, and contain nothing executable."""

import json
import os
import pickletools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.errors import ArtefactError
from costmodel.estimate.cost import Uncertainty
from costmodel.features.schema import SCHEMA
from costmodel.paths import Home
from costmodel.training.artefact import CARD_VERSION, Bundle, champion_of, load_bundle, promote, save_bundle
from costmodel.training.calibration import DISTANCES, Calibration
from costmodel.training.support import Support
from tests.synthetic import SYSTEM

WIDTHS = (0.2,) * (len(DISTANCES) + 1)
BUNDLE = Bundle(
    name="lightgbm",
    version="20261120-120000-abcdef01",
    system="made.up",
    model=b"an ONNX network",
    calibration=Calibration(0.9, WIDTHS, {"Conv": 0.5}, uncertainty=Uncertainty(0.2, 0.03)),
    support=Support.of(np.linspace(-3, 9, 4 * len(SCHEMA.names), dtype=np.float32).reshape(4, -1)),
    facts={"rows": 100, "accuracy": {"mape": None}},
    source="tree",
)


def _edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads((path / "card.json").read_text())
    edit(card)
    (path / "card.json").write_text(json.dumps(card))


def test_round_trip(tmp_path: Path) -> None:
    """A saved bundle is loaded with all that predictions need."""
    loaded = load_bundle(save_bundle(tmp_path, BUNDLE))
    assert np.array_equal(loaded.support.points, BUNDLE.support.points)
    assert np.array_equal(loaded.support.operators, BUNDLE.support.operators)
    for name in ("name", "version", "system", "model", "calibration", "facts"):
        assert getattr(loaded, name) == getattr(BUNDLE, name)


def test_a_bundle_is_text_and_onnx(trained: Home) -> None:
    """A bundle is JSON, LightGBM's text, arrays of numbers and a network of standard ONNX operators."""
    path = champion_of(trained.bundles, SYSTEM.name)
    assert path is not None
    assert {file.name for file in path.iterdir()} == {"card.json", "lightgbm.txt", "model.onnx", "support.npz"}
    json.loads((path / "card.json").read_text())
    assert (path / "lightgbm.txt").read_text().startswith("tree")
    for file in path.iterdir():
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is that pickle says of a file that is none
            list(pickletools.genops(file.read_bytes()))


def test_a_champion_answers_once_it_is_promoted(tmp_path: Path) -> None:
    """A system has no champion before a promotion, and then the one promoted last."""
    assert champion_of(tmp_path, "made.up") is None
    first = save_bundle(tmp_path, BUNDLE)
    assert champion_of(tmp_path, "made.up") is None
    promote(tmp_path, "made.up", BUNDLE.version)
    assert champion_of(tmp_path, "made.up") == first
    second = save_bundle(tmp_path, replace(BUNDLE, version="20261121-120000-abcdef01"))
    promote(tmp_path, "made.up", second.name)
    assert champion_of(tmp_path, "made.up") == second
    assert champion_of(tmp_path, "other") is None


def test_what_is_not_there_is_not_promoted(tmp_path: Path) -> None:
    """An incomplete or missing bundle is not promoted, and the old champion stays."""
    save_bundle(tmp_path, BUNDLE)
    promote(tmp_path, "made.up", BUNDLE.version)
    with pytest.raises(ArtefactError, match=r"made\.up has no regressor 2027.*train one"):
        promote(tmp_path, "made.up", "2027")
    assert champion_of(tmp_path, "made.up") == tmp_path / "made.up" / BUNDLE.version


def test_a_bundle_that_cannot_be_completed_is_not_there(tmp_path: Path) -> None:
    """A failure at the last step raises an error and leaves no folder, whole or partial."""
    target = tmp_path / "made.up" / BUNDLE.version
    target.parent.mkdir()
    target.touch()  # a file where the folder belongs
    with pytest.raises(ArtefactError, match=r"cannot be written to .*Not a directory"):
        save_bundle(tmp_path, BUNDLE)
    assert list(target.parent.iterdir()) == [target]
    assert target.is_file()


def test_a_half_written_bundle_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    """A partial bundle of a killed process is never loaded, and the next save replaces it."""
    remains = tmp_path / "made.up" / f".{BUNDLE.version}.partial"
    remains.mkdir(parents=True)
    (remains / "model.onnx").write_bytes(b"hal")
    assert load_bundle(save_bundle(tmp_path, BUNDLE)).model == BUNDLE.model
    assert not remains.exists()


def test_a_folder_that_is_a_file_cannot_be_written_to(tmp_path: Path) -> None:
    """Saving and promoting into a folder that is a file is an error of one sentence."""
    (tmp_path / "made.up").touch()
    with pytest.raises(ArtefactError, match="cannot be written"):
        save_bundle(tmp_path, BUNDLE)


def test_a_not_a_number_is_not_written(tmp_path: Path) -> None:
    """A card with NaN is not written, because it would be invalid JSON."""
    with pytest.raises(ValueError, match="JSON"):
        save_bundle(tmp_path, replace(BUNDLE, facts={"accuracy": float("nan")}))
    assert list((tmp_path / "made.up").iterdir()) == []


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda card: card.update(schema_fingerprint="0" * 16), "was trained on feature schema 0000000000000000"),
        (lambda card: card.update(card_version=CARD_VERSION + 1), "has format 3 .* upgrade costmodel or train again"),
        (lambda card: card.pop("calibration"), "is damaged"),
        (lambda card: card["calibration"].update(by_distance=None), "is damaged"),
        (lambda card: card.update(card_version="one"), "is damaged"),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    """Another schema, a newer card and an incomplete card are each refused with what to do."""
    path = save_bundle(tmp_path, BUNDLE)
    _edited(path, edit)
    with pytest.raises(ArtefactError, match=sentence) as caught:
        load_bundle(path)
    assert "train again" in str(caught.value)


@pytest.mark.parametrize("damage", ["card.json", "model.onnx", "support.npz"])
@pytest.mark.parametrize("how", ["missing", "a folder"])
def test_missing_files_are_named(tmp_path: Path, damage: str, how: str) -> None:
    """A bundle without one of its files is refused as damaged, with the name of the file."""
    path = save_bundle(tmp_path, BUNDLE)
    (path / damage).unlink()
    if how == "a folder":
        (path / damage).mkdir()
    with pytest.raises(ArtefactError, match=f"is damaged .*{damage}.*train again"):
        load_bundle(path)


@pytest.mark.parametrize("data", [b"", b"PK", b"\x00" * 100])
def test_damaged_points_are_refused(tmp_path: Path, data: bytes) -> None:
    """Damaged training points are refused in one sentence."""
    path = save_bundle(tmp_path, BUNDLE)
    (path / "support.npz").write_bytes(data)
    with pytest.raises(ArtefactError, match=r"is damaged .*no points of layers.*train again"):
        load_bundle(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"champion"', "{}", "\x00"])
def test_a_damaged_card_or_pointer_is_refused(tmp_path: Path, text: str) -> None:
    """A damaged card or champion pointer is refused in one sentence."""
    path = save_bundle(tmp_path, BUNDLE)
    promote(tmp_path, "made.up", BUNDLE.version)
    (path / "card.json").write_text(text)
    (tmp_path / "made.up" / "champion.json").write_text(text)
    with pytest.raises(ArtefactError, match="is damaged"):
        load_bundle(path)
    with pytest.raises(ArtefactError, match=r"champion\.json is damaged: train again"):
        champion_of(tmp_path, "made.up")


def test_a_pointer_to_nothing_is_refused_when_it_is_followed(tmp_path: Path) -> None:
    """If the champion's folder was deleted, the error says to train again."""
    path = save_bundle(tmp_path, BUNDLE)
    promote(tmp_path, "made.up", BUNDLE.version)
    for file in path.iterdir():
        os.unlink(file)
    champion = champion_of(tmp_path, "made.up")
    assert champion is not None
    with pytest.raises(ArtefactError, match="is damaged"):
        load_bundle(champion)
