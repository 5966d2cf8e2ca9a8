"""Scaled dot-product attention written as separate operators, as exported models contain it."""

import torch
from torch import Tensor

__all__ = ["HEAD", "attend"]

HEAD = 64  # Width of an attention head.


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Computes softmax(QKᵀ/√d)V (Vaswani et al. 2017) and joins the heads.

    Shapes:
        query, key, value: [batch, heads, tokens, d]; result: [batch, tokens, heads * d].
    """
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
