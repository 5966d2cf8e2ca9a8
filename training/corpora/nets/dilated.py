"""Multi-scale context aggregation by dilated convolutions (Yu and Koltun 2016), as trained on CamVid."""

from torch import nn

from costmodel.training.corpora.nets.blocks import conv, conv_relu, upsample
from costmodel.training.corpora.nets.vgg import VGG16

__all__ = ["dilated"]

_CONTEXT = (1, 1, 2, 4, 8, 16, 1)  # dilations of the context module's convolutions
_MARGIN = 33  # pixels that the unpadded convolutions of the context module remove on each side


def dilated(classes: int) -> nn.Module:
    """Builds the network, which takes images of 640 x 480 padded to 1100 x 900, and classifies 728 x 528 pixels.

    These are fewer pixels than it takes, because the front end (the layers before the context module) uses no padding.
    """
    layers: list[nn.Module] = []
    ins = 3
    for stage, (channels, count) in enumerate(VGG16):
        for _ in range(count):
            layers.append(conv_relu(ins, channels, dilation=2 if stage == 4 else 1, padding=0))
            ins = channels
        if stage < 3:
            layers.append(nn.MaxPool2d(2))
    front = (
        conv_relu(512, 4096, 7, dilation=4, padding=0),
        conv_relu(4096, 4096, 1),
        conv(4096, classes, 1, bias=True),
    )
    context = (
        conv_relu(classes, classes, dilation=dilation, padding=0 if i else _MARGIN)
        for i, dilation in enumerate(_CONTEXT)
    )
    last = conv(classes, classes, 1, bias=True)
    return nn.Sequential(*layers, *front, *context, last, upsample(8, "bilinear"), nn.Softmax(1))
