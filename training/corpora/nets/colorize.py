"""Colourisation of grey images of 224 x 224, by the networks of Zhang et al. 2016 and Iizuka et al. 2016 (ColorNet)."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import conv, conv_bn_relu, conv_relu, upsample

__all__ = ["ColorNet", "colorful"]

# (channels, stride of the last convolution, dilation, number of convolutions) of each of the first seven stages.
_COLORFUL = (
    (64, 2, 1, 2),
    (128, 2, 1, 2),
    (256, 2, 1, 3),
    (512, 1, 1, 3),
    (512, 1, 2, 3),
    (512, 1, 2, 3),
    (512, 1, 1, 3),
)


def colorful() -> nn.Module:
    """Returns the network of Zhang et al. 2016, which predicts a distribution over 313 colours for each pixel.

    The mean of the distribution is upsampled to the image size.
    """
    layers: list[nn.Module] = []
    ins = 1
    for channels, stride, dilation, count in _COLORFUL:
        for i in range(count):
            layers.append(conv_relu(ins, channels, 3, stride if i == count - 1 else 1, dilation=dilation))
            ins = channels
        layers.append(nn.BatchNorm2d(channels))
    return nn.Sequential(
        *layers, nn.ConvTranspose2d(512, 256, 4, 2, 1), nn.ReLU(), conv_relu(256, 256), conv_relu(256, 256),
        conv(256, 313, 1, bias=True), nn.Softmax(1), conv(313, 2, 1), upsample(4, "bilinear"),
    )  # fmt: skip


class ColorNet(nn.Module):
    """The network of Iizuka et al. 2016: global features of the image are fused into the features of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(
            _conv(1, 64, 2), _conv(64, 128), _conv(128, 128, 2), _conv(128, 256), _conv(256, 256, 2), _conv(256, 512)
        )
        self.middle = nn.Sequential(_conv(512, 512), _conv(512, 256))
        self.whole = nn.Sequential(
            _conv(512, 512, 2), _conv(512, 512), _conv(512, 512, 2), _conv(512, 512), nn.Flatten(),
            _linear(512 * 7 * 7, 1024), _linear(1024, 512), _linear(512, 256),
        )  # fmt: skip
        self.fuse = conv_bn_relu(512, 256, 1, bias=True)
        self.colour = nn.Sequential(
            _conv(256, 128), upsample(), _conv(128, 64), _conv(64, 64), upsample(), _conv(64, 32),
            conv(32, 2, bias=True), nn.Sigmoid(), upsample(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Maps grey images of shape [batch, 1, 224, 224] to their two colour channels, [batch, 2, 224, 224]."""
        low = self.low(x)
        middle = self.middle(low)
        whole = self.whole(low)[:, :, None, None].expand_as(middle)
        colours: Tensor = self.colour(self.fuse(torch.cat([middle, whole], 1)))
        return colours


def _conv(ins: int, outs: int, stride: int = 1) -> nn.Module:
    return conv_bn_relu(ins, outs, 3, stride, bias=True)


def _linear(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(ins, outs), nn.BatchNorm1d(outs), nn.ReLU())
