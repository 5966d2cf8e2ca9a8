"""Mobile image classifiers: SqueezeNet 1.1 (Iandola et al. 2016) and MobileNet V2 (Sandler et al. 2018)."""

from torch import nn

from costmodel.training.corpora.nets.blocks import Concat, Residual, classifier, conv_bn, conv_relu

__all__ = ["mobilenet_v2", "squeezenet"]

# (expansion, channels, blocks, first stride) of each stage: table 2 of the paper.
_MOBILENET_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def squeezenet(classes: int) -> nn.Module:
    """Returns SqueezeNet 1.1 for images of 227 x 227."""
    return nn.Sequential(
        conv_relu(3, 64, 3, 2, padding=0), nn.MaxPool2d(3, 2, ceil_mode=True), _fire(64, 16, 64), _fire(128, 16, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True), _fire(128, 32, 128), _fire(256, 32, 128),
        nn.MaxPool2d(3, 2, ceil_mode=True), _fire(256, 48, 192), _fire(384, 48, 192),
        _fire(384, 64, 256), _fire(512, 64, 256), nn.Dropout(),
        conv_relu(512, classes, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1),
    )  # fmt: skip


def _fire(ins: int, thin: int, wide: int) -> nn.Module:
    return nn.Sequential(conv_relu(ins, thin, 1), Concat(conv_relu(thin, wide, 1), conv_relu(thin, wide)))


def mobilenet_v2(classes: int) -> nn.Module:
    """Returns MobileNet V2 with width multiplier 1, for images of 224 x 224."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2), nn.ReLU6()]
    ins = 32
    for expansion, outs, blocks, first in _MOBILENET_V2:
        for block in range(blocks):
            stride = 1 if block else first
            inner = ins * expansion
            wider = [conv_bn(ins, inner, 1), nn.ReLU6()] if expansion > 1 else []
            branch = nn.Sequential(
                *wider, conv_bn(inner, inner, 3, stride, groups=inner), nn.ReLU6(), conv_bn(inner, outs, 1)
            )
            layers.append(Residual(branch) if stride == 1 and ins == outs else branch)
            ins = outs
    return nn.Sequential(*layers, conv_bn(ins, 1280, 1), nn.ReLU6(), classifier(1280, classes))
