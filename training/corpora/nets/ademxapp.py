"""Ademxapp (Wu, Shen and van den Hengel 2016): a ResNet that is wide rather than deep."""

from torch import nn

from costmodel.training.corpora.nets.blocks import PreActivated, classifier, conv, conv_bn_relu, conv_relu, upsample

__all__ = ["ademxapp_a", "ademxapp_a1"]

# (number of blocks, channels of the convolutions of a block) of each stage.
_STAGES = (
    (3, (128, 128)), (3, (256, 256)), (6, (512, 512)), (3, (512, 1024)), (1, (512, 1024, 2048)),
    (1, (1024, 2048, 4096)),
)  # fmt: skip
_POOLED = 2  # number of stages that begin with a pool; the next three use a stride instead


def ademxapp_a(classes: int) -> nn.Module:
    """Returns model A of Ademxapp, which classifies images of 224 x 224."""
    return nn.Sequential(*_body(dilated=False), classifier(4096, classes))


def ademxapp_a1(classes: int) -> nn.Module:
    """Returns model A1 of Ademxapp, which classifies each pixel of images of 504 x 504.

    It is model A with dilated instead of strided convolutions once the feature map has 1/8 of the image's height and
    width.
    """
    return nn.Sequential(
        *_body(dilated=True),
        conv_relu(4096, 512, dilation=12),
        conv(512, classes, dilation=12, bias=True),
        upsample(8, "bilinear"),
        nn.Softmax(1),
    )


def _body(*, dilated: bool) -> list[nn.Module]:
    layers: list[nn.Module] = [conv(3, 64)]
    ins, dilation = 64, 1
    for stage, (blocks, channels) in enumerate(_STAGES):
        stride = 1
        if stage < _POOLED:
            layers.append(nn.MaxPool2d(3, 2, 1))
        elif dilated and stage in (3, 4):
            dilation *= 2
        elif stage < len(_STAGES) - 1:
            stride = 2
        for block in range(blocks):
            first = stride if not block else 1
            projection = conv(ins, channels[-1], 1, first) if not block else None
            layers.append(PreActivated(ins, _branch(ins, channels, first, dilation), projection))
            ins = channels[-1]
    return [*layers, nn.BatchNorm2d(ins), nn.ReLU()]


def _branch(ins: int, channels: tuple[int, ...], stride: int, dilation: int) -> nn.Module:
    if len(channels) == 2:
        inner, outer = channels
        return nn.Sequential(
            conv_bn_relu(ins, inner, 3, stride, dilation=dilation), conv(inner, outer, dilation=dilation)
        )
    thin, inner, outer = channels
    return nn.Sequential(
        conv_bn_relu(ins, thin, 1, stride), conv_bn_relu(thin, inner, dilation=dilation), nn.Dropout(),
        conv(inner, outer, 1),
    )  # fmt: skip
