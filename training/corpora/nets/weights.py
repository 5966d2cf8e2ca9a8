"""Random weights that keep the size of activations in networks of any depth and are bit-identical on every machine."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import PreActivated, Residual

__all__ = ["initialise", "initialise_any"]

_BRANCH_SCALE = 0.1
_CONVOLUTIONS = nn.Conv1d | nn.Conv2d | nn.Conv3d
_TRANSPOSED = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
_BATCH_NORMS = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def initialise(net: nn.Module, seed: int) -> nn.Module:
    """Fills `net` with random weights and returns it.

    Weights follow He's fan-in scaling (He et al. 2015), so that nothing overflows or becomes subnormal: subnormal
    numbers would be slow, and no trained network has them. They are uniform rather than normal, because a normal number
    needs a logarithm and a cosine, whose last bit depends on the processor.
    """
    return _initialised(net, seed, _fill)


def initialise_any(net: nn.Module, seed: int) -> nn.Module:
    """Fills `net` with random weights and returns it: like `initialise`, but also for 1-D and 3-D layers.

    The networks of `initialise` keep their own rule, so that their files stay the same.
    """
    return _initialised(net, seed, _fill_any)


def _initialised(
    net: nn.Module, seed: int, fill: Callable[[nn.Module, str, Tensor, torch.Generator], None]
) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net.modules():
            for name, parameter in layer.named_parameters(recurse=False):
                fill(layer, name, parameter, generator)
        for block in net.modules():
            if isinstance(block, Residual | PreActivated):
                _weaken(block.branch)
    return net


def _fill(layer: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d | nn.LayerNorm) and name == "weight":
        parameter.uniform_(0.9, 1.1, generator=generator)
    elif parameter.dim() > 1:
        bound = math.sqrt(3 * 2 / _fan_in(layer, parameter))
        parameter.uniform_(-bound, bound, generator=generator)
    elif name == "bias":
        parameter.uniform_(-0.1, 0.1, generator=generator)


def _fill_any(layer: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    if parameter.dim() > 1:
        bound = math.sqrt(3 * _gain(layer) / _fan_in(layer, parameter))
        parameter.uniform_(-bound, bound, generator=generator)
    elif "bias" in name:
        parameter.uniform_(-0.1, 0.1, generator=generator)
    elif isinstance(layer, nn.PReLU):
        parameter.uniform_(0.2, 0.3, generator=generator)
    else:
        parameter.uniform_(0.9, 1.1, generator=generator)


def _gain(layer: nn.Module) -> float:
    # A convolution or fully connected layer is mostly followed by a ReLU, which halves the mean square.
    return 2.0 if isinstance(layer, _CONVOLUTIONS | _TRANSPOSED | nn.Linear) else 1.0


def _fan_in(layer: nn.Module, weight: Tensor) -> float:
    if isinstance(layer, _TRANSPOSED):
        return weight[:, 0].numel() / math.prod(layer.stride)
    return weight[0].numel() if isinstance(layer, _CONVOLUTIONS) else weight.shape[-1]


def _weaken(branch: nn.Module) -> None:
    # Blocks that each double the variance would grow it 2^50 times in a ResNet-152. Normalisation prevents that in a
    # trained network; here a weak last layer of each branch does.
    weighted = [layer for layer in branch.modules() if isinstance(layer, _CONVOLUTIONS | nn.Linear | _BATCH_NORMS)]
    if weighted:
        weighted[-1].weight.mul_(_BRANCH_SCALE)
