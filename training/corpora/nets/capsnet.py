"""A capsule network with dynamic routing (Sabour, Frosst and Hinton 2017)."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import conv, conv_relu

__all__ = ["CapsNet"]

_ROUTINGS = 3


class CapsNet(nn.Module):
    """A capsule network that classifies images of digits; it gives each digit a vector, whose length is the score.

    The decoder, which only training uses, is left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_relu(1, 256, 9, padding=0)
        self.primary = conv(256, 32 * 8, 9, 2, padding=0, bias=True)
        self.weight = nn.Parameter(torch.empty(1, 10, 6 * 6 * 32, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        """Maps an image of shape [1, 1, 28, 28] to the scores of the ten digits, of shape [1, 10]."""
        capsules = _squash(self.primary(self.stem(x)).view(1, 32, 8, 36).transpose(2, 3).reshape(1, 1152, 8))
        votes = (self.weight @ capsules[:, None, :, :, None]).squeeze(-1)  # [1, digits, capsules, 16]
        agreement = torch.zeros(1, 10, 1152)
        for routing in range(_ROUTINGS):
            digits = _squash((agreement.softmax(1).unsqueeze(2) @ votes).squeeze(2))
            if routing < _ROUTINGS - 1:
                agreement = agreement + (votes @ digits.unsqueeze(-1)).squeeze(-1)
        sure: Tensor = digits.norm(dim=-1)
        return sure


def _squash(vectors: Tensor) -> Tensor:
    """Scales vectors so that their lengths lie in [0, 1), without changing their directions."""
    squared = vectors.square().sum(-1, keepdim=True)
    return vectors * (squared / (1 + squared) / (squared + 1e-7).sqrt())
