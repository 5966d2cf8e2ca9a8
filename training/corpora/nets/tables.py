"""Networks for tables, time series and sentences: MLP, FT-Transformer, N-BEATS, TextCNN."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.layers import encoder_layer, mlp

__all__ = ["FtTransformer", "NBeats", "TextCnn", "tabular_mlp"]


def tabular_mlp(*widths: int) -> nn.Module:
    """Returns fully connected layers of the given widths with batch normalisation, for tabular data."""
    layers: list[nn.Module] = []
    for ins, outs in pairwise(widths[:-1]):
        layers += [nn.Linear(ins, outs), nn.BatchNorm1d(outs), nn.SELU()]
    return nn.Sequential(nn.BatchNorm1d(widths[0]), *layers, nn.Linear(widths[-2], widths[-1]))


class FtTransformer(nn.Module):
    """FT-Transformer (Gorishniy et al. 2021), a transformer on tabular data: each numeric column becomes a token."""

    def __init__(self, columns: int, width: int, depth: int, outs: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, columns, width))
        self.shift = nn.Parameter(torch.zeros(1, columns, width))
        self.all = nn.Parameter(torch.zeros(1, 1, width))
        self.layers = nn.Sequential(*(encoder_layer(width, 8, ratio=2) for _ in range(depth)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, outs))

    def forward(self, row: Tensor) -> Tensor:
        """Maps table rows of shape [batch, columns] to outputs of shape [batch, outs]."""
        tokens = row.unsqueeze(2) * self.scale + self.shift
        seen = self.layers(torch.cat([self.all.expand(row.shape[0], -1, -1), tokens], 1))
        made: Tensor = self.last(seen[:, 0])
        return made


class NBeats(nn.Module):
    """N-BEATS (Oreshkin et al. 2019), a forecaster of time series.

    Each block estimates the past and the future. Its estimate of the past is subtracted from its input, and the next
    block gets the rest; the forecast is the sum of the estimates of the future.
    """

    def __init__(self, past: int, horizon: int, width: int, blocks: int) -> None:
        super().__init__()
        self.past = past
        self.blocks = nn.ModuleList(mlp(past, width, width, width, width, past + horizon) for _ in range(blocks))

    def forward(self, series: Tensor) -> Tensor:
        """Maps past values of shape [batch, past] to future ones of shape [batch, horizon]."""
        left, forecast = series, None
        for block in self.blocks:
            made: Tensor = block(left) * 0.1
            left = left - made[:, : self.past]
            ahead = made[:, self.past :]
            forecast = ahead if forecast is None else forecast + ahead
        assert forecast is not None
        return forecast


class TextCnn(nn.Module):
    """The convolutional sentence classifier (Kim 2014): filters of several widths, max-pooled over the tokens."""

    def __init__(self, vocabulary: int, width: int, filters: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, filters, kernel) for kernel in (3, 4, 5))
        self.classify = nn.Linear(3 * filters, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps token ids of shape [batch, length] to class scores of shape [batch, classes]."""
        embedded = self.embed(tokens).transpose(1, 2)
        scores: Tensor = self.classify(torch.cat([torch.relu(f(embedded)).amax(2) for f in self.filters], 1))
        return scores
