"""The tree of errors."""

import pickle

import pytest

import costmodel.errors
from costmodel.errors import CostModelError, HoleError, MissingExtraError, ModelReadError

ALL = [getattr(costmodel.errors, name) for name in costmodel.errors.__all__]


def test_every_error_is_a_costmodel_error() -> None:
    """One `except CostModelError` catches everything that costmodel raises on purpose."""
    assert all(issubclass(kind, CostModelError) for kind in ALL)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    """Who reads the module's docstring has seen every error."""
    assert all(kind.__name__ in costmodel.errors.__doc__ for kind in ALL)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in (HoleError, MissingExtraError)])
def test_a_message_is_one_line(kind: type[CostModelError]) -> None:
    """A name with line breaks in it, or a runtime's own words, do not break the one line."""
    assert str(kind("the layer conv\n1 is\r\n  unknown")) == "the layer conv 1 is unknown"


@pytest.mark.parametrize(
    "error",
    [
        ModelReadError("x is empty"),
        HoleError("resnet", "c5.xlarge", ["conv1", "fc"]),
        MissingExtraError("training", "train"),
    ],
)
def test_an_error_crosses_process_borders(error: CostModelError) -> None:
    """Workers lower and measure: their errors arrive with class, message and what they carry."""
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_a_hole_names_every_layer() -> None:
    """A refused estimate says which layers lack a cost, of which model, where, and what to do."""
    error = HoleError("resnet", "c5.xlarge", ["conv1", "fc"])
    assert error.layers == ("conv1", "fc")
    assert all(word in str(error) for word in ("conv1", "fc", "resnet", "c5.xlarge", "costmodel bench"))


def test_a_missing_extra_is_named_with_its_install_line() -> None:
    """What to type is in the message."""
    assert "pip install 'costmodel[train]'" in str(MissingExtraError("training", "train"))
