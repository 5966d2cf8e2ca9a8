"""Networks built by the model classes of `transformers`, with this project's own configurations.

Their weights are random, and nothing is downloaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import MissingExtraError
from costmodel.training.corpora.recipe import Recipe

if TYPE_CHECKING:
    import torch

__all__ = ["Network", "NetworkInput", "images", "network_recipe", "pairs", "tokens", "write_network"]

_SEED = 20190
_TOKENS = 1000  # Smaller than the vocabulary of any of the models.


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """One input of a network.

    Attributes:
        shape: Shape of the input, batch first.
        below: Exclusive upper bound of an integer input's values, which begin at 0; 0 marks an input of normally
            distributed floats.
    """

    shape: tuple[int, ...]
    below: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """A network that is an instance of a `transformers` class.

    Attributes:
        architecture: Name of the class in `transformers`.
        inputs: Inputs by name, in order; the names are those of the arguments of the class's `forward`.
        settings: Configuration values that differ from the defaults of the class.
        part: Name of the submodule that is exported instead of the whole model; empty for the whole.
    """

    architecture: str
    inputs: Mapping[str, NetworkInput]
    settings: Mapping[str, object] = field(default_factory=dict)
    part: str = ""


def images(size: int, batch: int = 1) -> dict[str, NetworkInput]:
    """Returns the input of an image model under its name: `batch` square RGB images with sides of `size` pixels."""
    return {"pixel_values": NetworkInput((batch, 3, size, size))}


def tokens(length: int, batch: int = 1) -> dict[str, NetworkInput]:
    """Returns the inputs of a text model, by name: `batch` texts of `length` token ids, and their attention mask."""
    shape = (batch, length)
    return {"input_ids": NetworkInput(shape, _TOKENS), "attention_mask": NetworkInput(shape, 2)}


def pairs(length: int, batch: int = 1) -> dict[str, NetworkInput]:
    """Returns the inputs of a model for sentence pairs, by name: token ids, attention mask and token types."""
    return tokens(length, batch) | {"token_type_ids": NetworkInput((batch, length), 2)}


def network_recipe(name: str, family: str, title: str, network: Network) -> Recipe:
    """Returns the recipe that builds `network` and exports it to ONNX."""
    return Recipe(name, family, title, partial(write_network, network))


def write_network(network: Network, path: Path) -> None:
    """Builds the network, with weights that depend only on its definition, and exports it to the ONNX file `path`.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    from costmodel.onnx_io.torch_export import write_module

    module = _build(network)
    write_module(_one_output(module, tuple(network.inputs)), _example(network), path)


def _build(network: Network) -> "torch.nn.Module":
    import torch

    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("building a corpus", "corpus") from error
    kind = getattr(transformers, network.architecture)
    config = kind.config_class(**network.settings)
    torch.manual_seed(_SEED)
    model: torch.nn.Module = kind(config).eval()
    if network.part:
        model = model.get_submodule(network.part)
    _fill(model)
    return model


def _fill(model: "torch.nn.Module") -> None:
    """Fills `model` with random weights of a magnitude that trained weights have.

    Without this, weights may be uninitialised memory, or zeros that graph optimisers fold away.
    """
    import torch

    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if parameter.dim() > 1:
                parameter.normal_(0.0, (parameter.numel() / parameter.shape[0]) ** -0.5)
            else:
                parameter.normal_(0.0 if name.endswith("bias") else 1.0, 0.02)


def _example(network: Network) -> "dict[str, torch.Tensor]":
    import torch

    torch.manual_seed(_SEED)
    return {
        name: torch.randint(0, spec.below, spec.shape) if spec.below else torch.randn(spec.shape)
        for name, spec in network.inputs.items()
    }


def _one_output(model: "torch.nn.Module", names: tuple[str, ...]) -> "torch.nn.Module":
    """Wraps `model` in a module that takes the inputs `names` by position and returns only the model's first output."""
    import torch

    class OneOutput(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.model(**dict(zip(names, tensors, strict=True)))[0]
            return output

    return OneOutput()
