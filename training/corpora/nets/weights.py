"""Random weights that keep the size of activations in networks of any depth and are bit-identical on every machine."""

import math

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import PreActivated, Residual

__all__ = ["initialise"]

_BRANCH_SCALE = 0.1


def initialise(net: nn.Module, seed: int) -> nn.Module:
    """Fills `net` with random weights and returns it.

    Weights follow He's fan-in scaling (He et al. 2015), so that nothing overflows or becomes subnormal: subnormal
    numbers would be slow, and no trained network has them. They are uniform rather than normal, because a normal number
    needs a logarithm and a cosine, whose last bit depends on the processor.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net.modules():
            _fill(layer, generator)
        for block in net.modules():
            if isinstance(block, Residual | PreActivated):
                _weaken(block.branch)
    return net


def _fill(layer: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in layer.named_parameters(recurse=False):
        if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d | nn.LayerNorm) and name == "weight":
            parameter.uniform_(0.9, 1.1, generator=generator)
        elif parameter.dim() > 1:
            bound = math.sqrt(3 * 2 / _fan_in(layer, parameter))
            parameter.uniform_(-bound, bound, generator=generator)
        elif name == "bias":
            parameter.uniform_(-0.1, 0.1, generator=generator)


def _fan_in(layer: nn.Module, weight: Tensor) -> float:
    if isinstance(layer, nn.ConvTranspose2d):
        return weight[:, 0].numel() / math.prod(layer.stride)
    return weight[0].numel() if isinstance(layer, nn.Conv2d | nn.Linear) else weight.shape[-1]


def _weaken(branch: nn.Module) -> None:
    # Blocks that each double the variance would grow it 2^50 times in a ResNet-152. Normalisation prevents that in a
    # trained network; here a weak last layer of each branch does.
    weighted = [layer for layer in branch.modules() if isinstance(layer, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    weighted[-1].weight.mul_(_BRANCH_SCALE)
