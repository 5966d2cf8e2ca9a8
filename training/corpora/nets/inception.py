"""Inception: V1 (Szegedy et al. 2014), BN (Ioffe and Szegedy 2015) and V3 (Szegedy et al. 2015).

Inception-BN is V1 with batch normalisation.
"""

from torch import nn

from costmodel.training.corpora.nets.blocks import Concat, LocalResponseNorm, classifier, conv_bn_relu, conv_relu

__all__ = ["image_identify", "inception_v1", "inception_v3"]


def inception_v1(classes: int) -> nn.Module:
    """Returns GoogLeNet as in Caffe, for images of 224 x 224, without the auxiliary heads that only training uses."""
    return nn.Sequential(
        conv_relu(3, 64, 7, 2), _pool(), LocalResponseNorm(),
        conv_relu(64, 64, 1), conv_relu(64, 192), LocalResponseNorm(), _pool(),
        _v1(192, 64, (96, 128), (16, 32), 32), _v1(256, 128, (128, 192), (32, 96), 64), _pool(),
        _v1(480, 192, (96, 208), (16, 48), 64), _v1(512, 160, (112, 224), (24, 64), 64),
        _v1(512, 128, (128, 256), (24, 64), 64), _v1(512, 112, (144, 288), (32, 64), 64),
        _v1(528, 256, (160, 320), (32, 128), 128), _pool(),
        _v1(832, 256, (160, 320), (32, 128), 128), _v1(832, 384, (192, 384), (48, 128), 128),
        classifier(1024, classes),
    )  # fmt: skip


def _pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, 2, ceil_mode=True)


def _v1(ins: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> nn.Module:
    return Concat(
        conv_relu(ins, one, 1),
        nn.Sequential(conv_relu(ins, three[0], 1), conv_relu(*three)),
        nn.Sequential(conv_relu(ins, five[0], 1), conv_relu(*five, 5)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_relu(ins, pooled, 1)),
    )


def image_identify(classes: int) -> nn.Module:
    """Returns MXNet's Inception-BN for images of 224 x 224.

    It has as many layers and parameters as Wolfram's ImageIdentify, which it represents.
    """
    return nn.Sequential(
        conv_bn_relu(3, 64, 7, 2), _pool(), conv_bn_relu(64, 64, 1), conv_bn_relu(64, 192), _pool(),
        _bn(192, 64, (64, 64), (64, 96), 32), _bn(256, 64, (64, 96), (64, 96), 64),
        _bn_smaller(320, (128, 160), (64, 96)),
        _bn(576, 224, (64, 96), (96, 128), 128), _bn(576, 192, (96, 128), (96, 128), 128),
        _bn(576, 160, (128, 160), (128, 160), 128), _bn(608, 96, (128, 192), (160, 192), 128),
        _bn_smaller(608, (128, 192), (192, 256)),
        _bn(1056, 352, (192, 320), (160, 224), 128),
        _bn(1024, 352, (192, 320), (192, 224), 128, nn.MaxPool2d(3, 1, 1)),
        classifier(1024, classes),
    )  # fmt: skip


def _bn(
    ins: int,
    one: int,
    three: tuple[int, int],
    double: tuple[int, int],
    pooled: int,
    pool: nn.Module | None = None,
) -> nn.Module:
    return Concat(
        conv_bn_relu(ins, one, 1),
        nn.Sequential(conv_bn_relu(ins, three[0], 1), conv_bn_relu(*three)),
        nn.Sequential(conv_bn_relu(ins, double[0], 1), conv_bn_relu(*double), conv_bn_relu(double[1], double[1])),
        nn.Sequential(pool or nn.AvgPool2d(3, 1, 1), conv_bn_relu(ins, pooled, 1)),
    )


def _bn_smaller(ins: int, three: tuple[int, int], double: tuple[int, int]) -> nn.Module:
    return Concat(
        nn.Sequential(conv_bn_relu(ins, three[0], 1), conv_bn_relu(*three, 3, 2)),
        nn.Sequential(conv_bn_relu(ins, double[0], 1), conv_bn_relu(*double), conv_bn_relu(double[1], double[1], 3, 2)),
        nn.MaxPool2d(3, 2, 1),
    )


def inception_v3(classes: int) -> nn.Module:
    """Returns Inception V3 for images of 299 x 299, without the auxiliary head that only training uses."""
    return nn.Sequential(
        conv_bn_relu(3, 32, 3, 2, padding=0), conv_bn_relu(32, 32, padding=0), conv_bn_relu(32, 64), nn.MaxPool2d(3, 2),
        conv_bn_relu(64, 80, 1), conv_bn_relu(80, 192, padding=0), nn.MaxPool2d(3, 2),
        _v3_a(192, 32), _v3_a(256, 64), _v3_a(288, 64), _v3_b(288),
        _v3_c(128), _v3_c(160), _v3_c(160), _v3_c(192), _v3_d(768),
        _v3_e(1280), _v3_e(2048), classifier(2048, classes),
    )  # fmt: skip


def _pooled(ins: int, outs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_bn_relu(ins, outs, 1))


def _v3_a(ins: int, pooled: int) -> nn.Module:
    return Concat(
        conv_bn_relu(ins, 64, 1),
        nn.Sequential(conv_bn_relu(ins, 48, 1), conv_bn_relu(48, 64, 5)),
        nn.Sequential(conv_bn_relu(ins, 64, 1), conv_bn_relu(64, 96), conv_bn_relu(96, 96)),
        _pooled(ins, pooled),
    )


def _v3_b(ins: int) -> nn.Module:
    return Concat(
        conv_bn_relu(ins, 384, 3, 2, padding=0),
        nn.Sequential(conv_bn_relu(ins, 64, 1), conv_bn_relu(64, 96), conv_bn_relu(96, 96, 3, 2, padding=0)),
        nn.MaxPool2d(3, 2),
    )


def _v3_c(thin: int) -> nn.Module:
    wide, high = (1, 7), (7, 1)
    return Concat(
        conv_bn_relu(768, 192, 1),
        nn.Sequential(conv_bn_relu(768, thin, 1), conv_bn_relu(thin, thin, wide), conv_bn_relu(thin, 192, high)),
        nn.Sequential(
            conv_bn_relu(768, thin, 1), conv_bn_relu(thin, thin, high), conv_bn_relu(thin, thin, wide),
            conv_bn_relu(thin, thin, high), conv_bn_relu(thin, 192, wide),
        ),
        _pooled(768, 192),
    )  # fmt: skip


def _v3_d(ins: int) -> nn.Module:
    return Concat(
        nn.Sequential(conv_bn_relu(ins, 192, 1), conv_bn_relu(192, 320, 3, 2, padding=0)),
        nn.Sequential(
            conv_bn_relu(ins, 192, 1), conv_bn_relu(192, 192, (1, 7)), conv_bn_relu(192, 192, (7, 1)),
            conv_bn_relu(192, 192, 3, 2, padding=0),
        ),
        nn.MaxPool2d(3, 2),
    )  # fmt: skip


def _v3_e(ins: int) -> nn.Module:
    return Concat(
        conv_bn_relu(ins, 320, 1),
        nn.Sequential(conv_bn_relu(ins, 384, 1), _both_ways()),
        nn.Sequential(conv_bn_relu(ins, 448, 1), conv_bn_relu(448, 384), _both_ways()),
        _pooled(ins, 192),
    )


def _both_ways() -> nn.Module:
    return Concat(conv_bn_relu(384, 384, (1, 3)), conv_bn_relu(384, 384, (3, 1)))
