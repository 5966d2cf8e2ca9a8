"""Recurrent networks: language models, taggers, text line recognition, speech recognition, forecasting."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import conv_bn_relu, conv_relu
from costmodel.training.corpora.nets.layers import Rearranged, mlp

__all__ = [
    "Esim",
    "KeywordSpotter",
    "Recurrent",
    "crnn",
    "deep_speech",
    "lstm_forecaster",
    "lstm_language_model",
    "tagger",
]


class Recurrent(nn.Module):
    """A stack of recurrent layers that returns the outputs only, not the states.

    Args:
        kind: Class of the layers: nn.LSTM, nn.GRU or nn.RNN.
        ins: Width of the input at each step.
        width: Width of the state of one direction.
        layers: Number of stacked layers.
        both: Whether the layers are bidirectional.
        last: Whether only the output of the last step is returned.
    """

    def __init__(
        self,
        kind: Callable[..., nn.Module],
        ins: int,
        width: int,
        layers: int = 1,
        *,
        both: bool = False,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.layers = kind(ins, width, layers, batch_first=True, bidirectional=both)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, steps, ins] to [batch, steps, width * directions].

        If `last` is set, the result is that of the last step only, [batch, width * directions].
        """
        made: Tensor = self.layers(x)[0]
        return made[:, -1] if self.last else made


def lstm_language_model(vocabulary: int, width: int, layers: int) -> nn.Module:
    """Returns an LSTM language model (Zaremba et al. 2014), which scores the next token at each position."""
    return nn.Sequential(
        nn.Embedding(vocabulary, width), Recurrent(nn.LSTM, width, width, layers), nn.Linear(width, vocabulary)
    )


def lstm_forecaster(series: int, width: int, horizon: int) -> nn.Module:
    """Returns an LSTM that predicts `horizon` future values from the past values of `series` time series."""
    return nn.Sequential(Recurrent(nn.LSTM, series, width, 2, last=True), *mlp(width, width, horizon))


def tagger(vocabulary: int, width: int, tags: int) -> nn.Module:
    """Returns a bidirectional GRU that predicts a tag for each token."""
    return nn.Sequential(
        nn.Embedding(vocabulary, width), Recurrent(nn.GRU, width, width, 2, both=True), nn.Linear(2 * width, tags)
    )


def crnn(characters: int, width: int) -> nn.Module:
    """Returns CRNN (Shi et al. 2015), which recognises text in images of a line.

    The images are 32 pixels high; for every 4 pixels of width there is one recurrent step.
    """
    columns = (
        conv_relu(1, 64), nn.MaxPool2d(2), conv_relu(64, 128), nn.MaxPool2d(2), conv_bn_relu(128, 256),
        conv_relu(256, 256), nn.MaxPool2d((2, 1)), conv_bn_relu(256, 512), conv_relu(512, 512), nn.MaxPool2d((2, 1)),
        nn.Conv2d(512, 512, (2, 1)), nn.BatchNorm2d(512), nn.ReLU(), Rearranged(0, 3, 1, 2, joined=2),
    )  # fmt: skip
    read = Recurrent(nn.LSTM, 512, width, 2, both=True)
    return nn.Sequential(*columns, read, nn.Linear(2 * width, characters), nn.LogSoftmax(2))


def deep_speech(bands: int, width: int, layers: int, characters: int) -> nn.Module:
    """Returns a speech recogniser like Deep Speech 2 (Amodei et al. 2015): two strided convolutions, then GRUs.

    Its input is a spectrogram of shape [batch, 1, bands, frames].
    """
    first = nn.Sequential(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0.0, 20.0))
    second = nn.Sequential(nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0.0, 20.0))
    hear = Recurrent(nn.GRU, 8 * bands, width, layers, both=True)
    return nn.Sequential(
        first, second, Rearranged(0, 3, 1, 2, joined=2), hear, nn.Linear(2 * width, characters), nn.LogSoftmax(2)
    )


class KeywordSpotter(nn.Module):
    """A keyword spotter on a second of audio (de Andrade et al. 2018): convolutions, a GRU, attention over steps."""

    def __init__(self, bands: int, width: int, words: int) -> None:
        super().__init__()
        self.listen = nn.Sequential(
            nn.Conv2d(1, 10, (5, 1), padding=(2, 0)), nn.BatchNorm2d(10), nn.ReLU(),
            nn.Conv2d(10, 1, (5, 1), padding=(2, 0)), nn.Flatten(1, 2), Recurrent(nn.GRU, bands, width, 2, both=True),
        )  # fmt: skip
        self.ask = nn.Linear(2 * width, 2 * width)
        self.classify = mlp(2 * width, 64, 32, words)

    def forward(self, x: Tensor) -> Tensor:
        """Maps spectrograms of shape [batch, 1, frames, bands] to keyword scores of shape [batch, words]."""
        heard = self.listen(x)
        weights = torch.softmax(heard @ self.ask(heard[:, -1]).unsqueeze(2), 1)
        scores: Tensor = self.classify((weights.transpose(1, 2) @ heard).squeeze(1))
        return scores


class Esim(nn.Module):
    """ESIM (Chen et al. 2016): textual entailment between two sentences by LSTMs and attention across the sentences."""

    def __init__(self, vocabulary: int, width: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.read = Recurrent(nn.LSTM, width, width, both=True)
        self.compare = nn.Sequential(
            nn.Linear(8 * width, width), nn.ReLU(), Recurrent(nn.LSTM, width, width, both=True)
        )
        self.classify = mlp(8 * width, width, classes, activation=nn.Tanh)

    def forward(self, premise: Tensor, hypothesis: Tensor) -> Tensor:
        """Maps the token ids of two sentences, [batch, length] each, to class scores, [batch, classes]."""
        first, second = self.read(self.embed(premise)), self.read(self.embed(hypothesis))
        alike = first @ second.transpose(1, 2)
        parts = (self._pooled(first, alike, second), self._pooled(second, alike.transpose(1, 2), first))
        scores: Tensor = self.classify(torch.cat(parts, 1))
        return scores

    def _pooled(self, own: Tensor, alike: Tensor, other: Tensor) -> Tensor:
        seen = torch.softmax(alike, 2) @ other
        compared = self.compare(torch.cat([own, seen, own - seen, own * seen], 2))
        return torch.cat([compared.mean(1), compared.amax(1)], 1)
