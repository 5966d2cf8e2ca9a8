"""ResNet (He et al. 2015) and its variants: wide, thin, pre-activated, squeeze-and-excitation."""

from torch import nn

from costmodel.training.corpora.nets.blocks import (
    PreActivated,
    Residual,
    SqueezeExcite,
    classifier,
    conv,
    conv_bn,
    conv_bn_relu,
)

__all__ = ["DEPTH_50", "DEPTH_101", "DEPTH_152", "resnet", "resnet_v2", "senet154"]

DEPTH_50, DEPTH_101, DEPTH_152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)


def resnet(
    depth: tuple[int, ...], classes: int, *, width: int = 64, outs: int = 256, late_stride: bool = False
) -> nn.Module:
    """Returns a ResNet for images of 224 x 224.

    Args:
        depth: Number of blocks of each stage.
        classes: Number of classes.
        width: Channels inside a block of the first stage; each stage doubles them. 128 gives a wide ResNet.
        outs: Channels after the first stage; each further stage doubles them.
        late_stride: Whether the stride of a block is in its 3 x 3 convolution (as in Torch) or in its first one (as in
            Caffe and in the paper).
    """
    layers: list[nn.Module] = [conv_bn_relu(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    ins = 64
    for stage, blocks in enumerate(depth):
        inner, outer = width << stage, outs << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_bn_relu(ins, inner, 1, 1 if late_stride else stride),
                conv_bn_relu(inner, inner, 3, stride if late_stride else 1),
                conv_bn(inner, outer, 1),
            )
            shortcut = None if block else conv_bn(ins, outer, 1, stride)
            layers.append(Residual(branch, shortcut, after=nn.ReLU()))
            ins = outer
    return nn.Sequential(*layers, classifier(ins, classes))


def resnet_v2(depth: tuple[int, ...], classes: int) -> nn.Module:
    """Returns MXNet's pre-activated ResNet (He et al. 2016) for images of 224 x 224.

    Its first layer is a batch normalisation of the images.
    """
    layers: list[nn.Module] = [nn.BatchNorm2d(3), conv_bn_relu(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    ins = 64
    for stage, blocks in enumerate(depth):
        inner, outer = 64 << stage, 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_bn_relu(ins, inner, 1), conv_bn_relu(inner, inner, 3, stride), conv(inner, outer, 1)
            )
            layers.append(PreActivated(ins, branch, None if block else conv(ins, outer, 1, stride)))
            ins = outer
    return nn.Sequential(*layers, nn.BatchNorm2d(ins), nn.ReLU(), classifier(ins, classes))


def senet154(classes: int) -> nn.Module:
    """Returns SENet-154, the winner of ILSVRC 2017, for images of 224 x 224.

    It is a ResNeXt-152 (64 groups) with squeeze-and-excitation.
    """
    layers: list[nn.Module] = [
        conv_bn_relu(3, 64, 3, 2), conv_bn_relu(64, 64), conv_bn_relu(64, 128), nn.MaxPool2d(3, 2, ceil_mode=True)
    ]  # fmt: skip
    ins = 128
    for stage, blocks in enumerate(DEPTH_152):
        inner, outer = 128 << stage, 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(
                conv_bn_relu(ins, inner, 1), conv_bn_relu(inner, outer, 3, stride, groups=64), conv_bn(outer, outer, 1)
            )
            shortcut = None if block else conv_bn(ins, outer, 3 if stage else 1, stride)
            gate = SqueezeExcite(outer, outer // 16, nn.Sigmoid())
            layers.append(Residual(branch, shortcut, gate=gate, after=nn.ReLU()))
            ins = outer
    return nn.Sequential(*layers, classifier(ins, classes))
