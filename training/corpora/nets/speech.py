"""Audio networks, mostly without recurrence: QuartzNet, Conformer, WaveNet, TCN, FastSpeech, Demucs."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual
from costmodel.training.corpora.nets.layers import (
    Attention,
    Gated,
    Permuted,
    conv1d_bn_relu,
    feed_forward,
)
from costmodel.training.corpora.nets.recurrent import Recurrent

__all__ = ["Conformer", "Demucs", "FastSpeech", "WaveNet", "quartznet", "tcn"]


def _separable(ins: int, outs: int, kernel: int, dilation: int = 1, stride: int = 1) -> nn.Sequential:
    around = nn.Conv1d(ins, ins, kernel, stride, dilation * (kernel - 1) // 2, dilation, ins, bias=False)
    return nn.Sequential(around, nn.Conv1d(ins, outs, 1, bias=False), nn.BatchNorm1d(outs))


def quartznet(bands: int, repeats: int, characters: int) -> nn.Module:
    """Returns QuartzNet (Kriman et al. 2019), a speech recogniser made of blocks of separable 1-D convolutions.

    A block repeats its convolution `repeats` times; QuartzNet 5x5 has 5 repeats.
    """
    layers: list[nn.Module] = [*_separable(bands, 256, 33, stride=2), nn.ReLU()]
    ins = 256
    for outs, kernel in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)):
        parts: list[nn.Module] = []
        for step in range(repeats):
            parts += [*_separable(outs if step else ins, outs, kernel), nn.ReLU()]
        shortcut = nn.Sequential(nn.Conv1d(ins, outs, 1, bias=False), nn.BatchNorm1d(outs))
        layers.append(Residual(nn.Sequential(*parts[:-1]), shortcut, after=nn.ReLU()))
        ins = outs
    layers += [*_separable(512, 512, 87, dilation=2), nn.ReLU(), conv1d_bn_relu(512, 1024, 1)]
    return nn.Sequential(*layers, nn.Conv1d(1024, characters, 1), nn.LogSoftmax(1))


def _conformer_block(width: int, heads: int, kernel: int) -> nn.Module:
    convolve = nn.Sequential(
        nn.LayerNorm(width),
        Permuted(
            nn.Conv1d(width, 2 * width, 1), Gated(nn.Sigmoid(), 1),
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width), nn.BatchNorm1d(width), nn.SiLU(),
            nn.Conv1d(width, width, 1),
        ),
    )  # fmt: skip
    return nn.Sequential(
        feed_forward(width, 4 * width, nn.SiLU), Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads))),
        Residual(convolve), feed_forward(width, 4 * width, nn.SiLU), nn.LayerNorm(width),
    )  # fmt: skip


class Conformer(nn.Module):
    """Conformer (Gulati et al. 2020), a speech recogniser that alternates attention and convolution.

    It works at a quarter of the spectrogram's frame rate.

    Args:
        bands: Bands of the spectrogram.
        width: Width of a step's vector; 144 in Conformer-S.
        heads: Number of attention heads; 4 in Conformer-S.
        depth: Number of blocks; 16 in Conformer-S.
        characters: Number of output characters.
    """

    def __init__(self, bands: int, width: int, heads: int, depth: int, characters: int) -> None:
        super().__init__()
        self.shrink = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.enter = nn.Linear(width * (bands // 4), width)
        self.blocks = nn.Sequential(*(_conformer_block(width, heads, 31) for _ in range(depth)))
        self.classify = nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        """Maps spectrograms, [batch, 1, frames, bands], to character scores, [batch, frames / 4, characters]."""
        shrunk: Tensor = self.shrink(x)
        scores: Tensor = self.classify(self.blocks(self.enter(shrunk.transpose(1, 2).flatten(2))))
        return scores


class _CausalGate(nn.Module):
    """WaveNet's layer: a dilated causal convolution, gated by tanh and sigmoid, with a residual and a skip output."""

    def __init__(self, width: int, skip: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.look = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.keep, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, skip, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the residual output, of the shape of `x`, [batch, width, samples], and the skip output.

        The skip output has the shape [batch, skip, samples].
        """
        filtered, gate = self.look(nn.functional.pad(x, (self.dilation, 0))).chunk(2, 1)
        gated = torch.tanh(filtered) * torch.sigmoid(gate)
        return (x + self.keep(gated)) * 0.5**0.5, self.skip(gated)


class WaveNet(nn.Module):
    """WaveNet (van den Oord et al. 2016), which scores a whole quantised waveform at once rather than generate it."""

    def __init__(self, width: int, skip: int, dilations: tuple[int, ...], classes: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        self.layers = nn.ModuleList(_CausalGate(width, skip, dilation) for dilation in dilations)
        self.classify = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, classes, 1))

    def forward(self, wave: Tensor) -> Tensor:
        """Maps quantised samples, [batch, samples], to scores of all sample values, [batch, classes, samples]."""
        x = self.embed(wave).transpose(1, 2)
        total = None
        for layer in self.layers:
            x, given = layer(x)
            total = given if total is None else total + given
        scores: Tensor = self.classify(total)
        return scores


class _Causal(nn.Module):
    """A dilated causal convolution, padded on the left only."""

    def __init__(self, ins: int, outs: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.past = (kernel - 1) * dilation
        self.convolve = nn.Conv1d(ins, outs, kernel, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Maps sequences of shape [batch, ins, steps] to [batch, outs, steps]."""
        made: Tensor = self.convolve(nn.functional.pad(x, (self.past, 0)))
        return made


def tcn(series: int, width: int, levels: int, outs: int) -> nn.Module:
    """Returns a temporal convolutional network (Bai et al. 2018): causal, with dilations that double at each level."""
    layers: list[nn.Module] = []
    ins = series
    for level in range(levels):
        branch = nn.Sequential(
            _Causal(ins, width, 3, 1 << level), nn.ReLU(), _Causal(width, width, 3, 1 << level), nn.ReLU()
        )
        layers.append(Residual(branch, nn.Conv1d(ins, width, 1) if ins != width else None, after=nn.ReLU()))
        ins = width
    return nn.Sequential(*layers, nn.Conv1d(width, outs, 1))


class FastSpeech(nn.Module):
    """A speech synthesiser like FastSpeech (Ren et al. 2019): makes `frames` spectrogram frames for each phoneme."""

    def __init__(self, phonemes: int, width: int, depth: int, frames: int, bands: int) -> None:
        super().__init__()
        self.frames = frames
        self.embed = nn.Embedding(phonemes, width)
        self.encode = nn.Sequential(*(self._block(width) for _ in range(depth)))
        self.decode = nn.Sequential(*(self._block(width) for _ in range(depth)), nn.Linear(width, bands))
        self.refine = Residual(
            Permuted(
                nn.Conv1d(bands, width, 5, padding=2), nn.BatchNorm1d(width), nn.Tanh(),
                nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.Tanh(),
                nn.Conv1d(width, bands, 5, padding=2),
            )
        )  # fmt: skip

    @staticmethod
    def _block(width: int) -> nn.Module:
        convolve = Permuted(nn.Conv1d(width, 4 * width, 9, padding=4), nn.ReLU(), nn.Conv1d(4 * width, width, 1))
        return nn.Sequential(
            Residual(Attention(width, 2), after=nn.LayerNorm(width)), Residual(convolve, after=nn.LayerNorm(width))
        )

    def forward(self, phonemes: Tensor) -> Tensor:
        """Maps phoneme ids of shape [batch, phonemes] to spectrograms of shape [batch, phonemes * frames, bands]."""
        spoken = self.encode(self.embed(phonemes)).repeat_interleave(self.frames, 1)
        spectrogram: Tensor = self.refine(self.decode(spoken))
        return spectrogram


class Demucs(nn.Module):
    """Real-time Demucs (Défossez et al. 2020): denoises speech with a 1-D U-Net and an LSTM at its bottom."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        ins = 1
        for level in range(depth):
            outs = width << level
            self.down.append(
                nn.Sequential(
                    nn.Conv1d(ins, outs, 8, 4, 2), nn.ReLU(), nn.Conv1d(outs, 2 * outs, 1), Gated(nn.Sigmoid(), 1)
                )
            )
            last = nn.ReLU() if level else nn.Identity()
            self.up.insert(
                0,
                nn.Sequential(
                    nn.Conv1d(outs, 2 * outs, 1), Gated(nn.Sigmoid(), 1), nn.ConvTranspose1d(outs, ins, 8, 4, 2), last
                ),
            )
            ins = outs
        self.middle = Permuted(Recurrent(nn.LSTM, ins, ins, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Maps noisy speech to denoised speech, both [batch, 1, samples]; samples must be divisible by 4 ** depth."""
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        x = self.middle(x)
        for layer in self.up:
            x = layer(x + kept.pop())
        return x
