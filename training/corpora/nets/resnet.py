"""ResNet (He et al. 2015) and its variants: wide, thin, pre-activated, squeeze-and-excitation."""

from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import PreActivated, Residual, classifier, conv, conv_bn, conv_bn_relu

__all__ = ["DEPTH_50", "DEPTH_101", "DEPTH_152", "resnet", "resnet_v2", "senet154"]

DEPTH_50, DEPTH_101, DEPTH_152 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3)


def resnet(
    depth: tuple[int, ...], classes: int, *, width: int = 64, outs: int = 256, late_stride: bool = False
) -> nn.Module:
    """ResNet, 224 x 224.

    Args:
        depth: Number of blocks of each stage.
        classes: Number of classes.
        width: Channels inside a block of the first stage; each stage doubles them. 128 gives a wide ResNet.
        outs: Channels after the first stage.
        late_stride: Whether a block strides in its 3 x 3 convolution (Torch) or in its first (Caffe, the original).
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
    """MXNet's pre-activated ResNet (He et al. 2016), 224 x 224, which also normalises its input."""
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


class _SqueezeExcite(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2017): scales channels by weights computed from the whole image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        thin = channels // 16
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(channels, thin, 1, bias=True), nn.ReLU(),
            conv(thin, channels, 1, bias=True), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`."""
        weighed: Tensor = x * self.weigh(x)
        return weighed


def senet154(classes: int) -> nn.Module:
    """SENet-154, the winner of ILSVRC 2017: a ResNeXt-152 (64 groups) with squeeze-and-excitation, 224 x 224."""
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
            layers.append(Residual(branch, shortcut, gate=_SqueezeExcite(outer), after=nn.ReLU()))
            ins = outer
    return nn.Sequential(*layers, classifier(ins, classes))
