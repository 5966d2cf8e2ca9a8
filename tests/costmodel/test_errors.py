"""The exception hierarchy."""

import pickle

import pytest

import costmodel.errors
from costmodel.errors import CostModelError, MissingExtraError, ModelReadError, UnpricedLayersError

ALL = [getattr(costmodel.errors, name) for name in costmodel.errors.__all__]


def test_every_error_is_a_costmodel_error() -> None:
    """All errors derive from `CostModelError`."""
    assert all(issubclass(kind, CostModelError) for kind in ALL)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    """The tree in the module's docstring has every error."""
    assert all(kind.__name__ in costmodel.errors.__doc__ for kind in ALL)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind not in (UnpricedLayersError, MissingExtraError)])
def test_a_message_is_one_line(kind: type[CostModelError]) -> None:
    """Line breaks in names or in the runtime's messages do not break the one-line message."""
    assert str(kind("the layer conv\n1 is\r\n  unknown")) == "the layer conv 1 is unknown"


@pytest.mark.parametrize(
    "error",
    [
        ModelReadError("x is empty"),
        UnpricedLayersError("resnet", "c5.xlarge", ["conv1", "fc"]),
        MissingExtraError("training", "train"),
    ],
)
def test_an_error_crosses_process_borders(error: CostModelError) -> None:
    """Errors are pickled with class, message and attributes."""
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_a_hole_names_every_layer() -> None:
    """A refused estimate names model, system and all unpriced layers, and says what to do."""
    error = UnpricedLayersError("resnet", "c5.xlarge", ["conv1", "fc"])
    assert error.layers == ("conv1", "fc")
    assert all(word in str(error) for word in ("conv1", "fc", "resnet", "c5.xlarge", "costmodel bench"))


def test_a_missing_extra_is_named_with_its_install_line() -> None:
    """The message has the install command."""
    assert "--editable '.[train]'" in str(MissingExtraError("training", "train"))


def test_a_message_names_a_few_of_many_layers() -> None:
    """A model of which nothing is known does not fill the screen with the names of its layers."""
    error = UnpricedLayersError("resnet", "c5.xlarge", [f"conv{number}" for number in range(100)])
    assert "has 100 layers without a cost on c5.xlarge: conv0, conv1, conv2, conv3, conv4 and 95 more; " in str(error)
    assert len(error.layers) == 100
