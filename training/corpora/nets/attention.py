"""Attention written out, as the models of the time have it."""

import torch
from torch import Tensor

__all__ = ["HEAD", "attend"]

HEAD = 64  # Width of a head.


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(QKᵀ/√d)V (Vaswani et al. 2017), the heads joined.

    Shapes:
        Each argument: [batch, heads, tokens, d]; what comes out: [batch, tokens, heads * d].
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
