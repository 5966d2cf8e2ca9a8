"""Segmentation of images and volumes: U-Net in two and three dimensions, FCN, DeepLab, Fast-SCNN."""

from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import (
    Concat,
    Residual,
    Sum,
    conv,
    conv_bn,
    conv_bn_relu,
    conv_relu,
    upsample,
)

__all__ = ["deeplab", "fast_scnn", "fcn", "unet", "unet3d"]


def unet(width: int, levels: int, classes: int, *, ins: int = 3) -> nn.Module:
    """Returns U-Net (Ronneberger et al. 2015), with batch normalisation and transposed convolutions.

    Args:
        width: Channels at the full size; each level has twice those of the level above.
        levels: Number of times that the size is halved.
        classes: Number of classes that each pixel is scored for.
        ins: Channels of the image.
    """
    inner = _twice(width << (levels - 1), width << levels)
    for level in reversed(range(levels)):
        outer = width << level
        before = _twice(ins if level == 0 else outer // 2, outer)
        below = nn.Sequential(nn.MaxPool2d(2), inner, nn.ConvTranspose2d(2 * outer, outer, 2, 2))
        inner = nn.Sequential(before, Concat(nn.Identity(), below), _twice(2 * outer, outer))
    return nn.Sequential(inner, conv(width, classes, 1, bias=True))


def _twice(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(conv_bn_relu(ins, outs), conv_bn_relu(outs, outs))


def unet3d(width: int, levels: int, classes: int) -> nn.Module:
    """Returns a 3D U-Net (Çiçek et al. 2016) with instance normalisation, for volumes of one channel."""
    inner = _twice3d(width << (levels - 1), width << levels)
    for level in reversed(range(levels)):
        outer = width << level
        before = _twice3d(1 if level == 0 else outer // 2, outer)
        below = nn.Sequential(nn.MaxPool3d(2), inner, nn.ConvTranspose3d(2 * outer, outer, 2, 2))
        inner = nn.Sequential(before, Concat(nn.Identity(), below), _twice3d(2 * outer, outer))
    return nn.Sequential(inner, nn.Conv3d(width, classes, 1))


def _twice3d(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(ins, outs, 3, padding=1), nn.InstanceNorm3d(outs, affine=True), nn.LeakyReLU(0.01),
        nn.Conv3d(outs, outs, 3, padding=1), nn.InstanceNorm3d(outs, affine=True), nn.LeakyReLU(0.01),
    )  # fmt: skip


def fcn(width: int, classes: int) -> nn.Module:
    """Returns FCN-8s (Long et al. 2014) on a narrow VGG: class scores from three depths are added during upsampling."""

    def stage(ins: int, outs: int) -> nn.Module:
        return nn.Sequential(conv_relu(ins, outs), conv_relu(outs, outs), nn.MaxPool2d(2))

    def score(ins: int) -> nn.Module:
        return conv(ins, classes, 1, bias=True)

    def double() -> nn.Module:
        return nn.ConvTranspose2d(classes, classes, 4, 2, 1)

    fifth = nn.Sequential(
        stage(8 * width, 8 * width), conv_relu(8 * width, 16 * width, 7), conv_relu(16 * width, 16 * width, 1),
        score(16 * width), double(),
    )  # fmt: skip
    fourth = nn.Sequential(stage(4 * width, 8 * width), Sum(score(8 * width), fifth), double())
    third = nn.Sequential(
        stage(3, width), stage(width, 2 * width), stage(2 * width, 4 * width), Sum(score(4 * width), fourth)
    )
    return nn.Sequential(third, nn.ConvTranspose2d(classes, classes, 16, 8, 4))


def _separable(ins: int, outs: int, stride: int = 1, dilation: int = 1) -> nn.Module:
    around = conv_bn_relu(ins, ins, 3, stride, groups=ins, dilation=dilation)
    return nn.Sequential(*around, *conv_bn_relu(ins, outs, 1))


class _Everywhere(nn.Module):
    """Global average pooling, whose result passes through other layers and is broadcast to each position of the map."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, ins, height, width] to [batch, outs, height, width]."""
        mean: Tensor = self.inner(x.mean((2, 3), keepdim=True))
        return mean.expand(-1, -1, *x.shape[2:])


def deeplab(width: int, classes: int) -> nn.Module:
    """Returns DeepLabv3+ (Chen et al. 2018) with a narrow backbone of separable convolutions.

    The atrous pyramid works at 1/16 of the image size, and its result is refined at 1/4.
    """
    deep = nn.Sequential(
        _separable(2 * width, 4 * width, 2), *(_residual(4 * width) for _ in range(2)),
        _separable(4 * width, 8 * width, 2), *(_residual(8 * width, 2) for _ in range(4)),
        Concat(
            conv_bn_relu(8 * width, 128, 1), *(_separable(8 * width, 128, dilation=rate) for rate in (6, 12, 18)),
            _Everywhere(conv_relu(8 * width, 128, 1)),
        ),
        conv_bn_relu(5 * 128, 128, 1), upsample(4, "bilinear"),
    )  # fmt: skip
    shallow = nn.Sequential(conv_bn_relu(3, width, 3, 2), _separable(width, 2 * width, 2), _residual(2 * width))
    return nn.Sequential(
        shallow, Concat(conv_bn_relu(2 * width, 48, 1), deep), _separable(128 + 48, 128),
        conv(128, classes, 1, bias=True), upsample(4, "bilinear"),
    )  # fmt: skip


def _residual(width: int, dilation: int = 1) -> nn.Module:
    return Residual(nn.Sequential(*(_separable(width, width, dilation=dilation) for _ in range(2))))


class _Pooled(nn.Module):
    """One level of pyramid pooling (Zhao et al. 2016): averages a feature map to a coarse grid and resizes it back."""

    def __init__(self, ins: int, outs: int, cell: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.AvgPool2d(cell), conv_bn_relu(ins, outs, 1), upsample(cell, "bilinear"))

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, ins, height, width] to [batch, outs, height, width]."""
        made: Tensor = self.inner(x)
        return made


def _bottleneck(ins: int, outs: int, stride: int = 1) -> nn.Module:
    inner = 6 * ins
    branch = nn.Sequential(
        conv_bn_relu(ins, inner, 1), conv_bn_relu(inner, inner, 3, stride, groups=inner), conv_bn(inner, outs, 1)
    )
    return Residual(branch) if ins == outs and stride == 1 else branch


def fast_scnn(classes: int) -> nn.Module:
    """Returns Fast-SCNN (Poudel et al. 2019): a fine and a coarse branch, which part at 1/8 of the image size.

    The sides of the images must be divisible by 256.
    """
    down = nn.Sequential(conv_bn_relu(3, 32, 3, 2), _separable(32, 48, 2), _separable(48, 64, 2))
    coarse = nn.Sequential(
        _bottleneck(64, 64, 2), _bottleneck(64, 64), _bottleneck(64, 64), _bottleneck(64, 96, 2), _bottleneck(96, 96),
        _bottleneck(96, 96), _bottleneck(96, 128), _bottleneck(128, 128), _bottleneck(128, 128),
        Concat(nn.Identity(), *(_Pooled(128, 32, cell) for cell in (1, 2, 4, 8))), conv_bn_relu(256, 128, 1),
        upsample(4, "bilinear"), conv_bn_relu(128, 128, 3, dilation=4, groups=128), conv_bn(128, 128, 1),
    )  # fmt: skip
    return nn.Sequential(
        down, Sum(coarse, conv_bn(64, 128, 1)), nn.ReLU(), _separable(128, 128), _separable(128, 128),
        conv(128, classes, 1, bias=True), upsample(8, "bilinear"),
    )  # fmt: skip
