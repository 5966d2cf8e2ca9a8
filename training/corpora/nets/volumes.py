"""Video classifiers: C3D (Tran et al. 2014) and R3D, the plain variant of R(2+1)D (Tran et al. 2017)."""

from torch import nn

from costmodel.training.corpora.nets.blocks import Residual

__all__ = ["c3d", "r3d"]


def c3d(width: int, classes: int) -> nn.Module:
    """Returns a C3D of six 3 x 3 x 3 convolutions for 8 frames of 56 x 56.

    The original has eight convolutions and a width of 64.
    """
    w = width
    layers: list[nn.Module] = []
    for ins, outs, pool in (
        (3, w, (1, 2, 2)), (w, 2 * w, (2, 2, 2)), (2 * w, 4 * w, None), (4 * w, 4 * w, (2, 2, 2)),
        (4 * w, 8 * w, None), (8 * w, 8 * w, (2, 2, 2)),
    ):  # fmt: skip
        layers += [nn.Conv3d(ins, outs, 3, padding=1), nn.ReLU()]
        if pool is not None:
            layers.append(nn.MaxPool3d(pool))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(8 * w * 3 * 3, 1024), nn.ReLU(), nn.Linear(1024, classes), nn.Softmax(1)
    )


def _conv_bn(ins: int, outs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(ins, outs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm3d(outs))


def r3d(width: int, blocks: int, classes: int) -> nn.Module:
    """Returns an R3D, a ResNet of 3 x 3 x 3 convolutions; R3D-18 has width 64 and 2 blocks per stage."""
    stem = nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    layers: list[nn.Module] = [stem, nn.BatchNorm3d(width), nn.ReLU()]
    ins = width
    for stage in range(4):
        outs = width << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            branch = nn.Sequential(*_conv_bn(ins, outs, 3, stride), nn.ReLU(), *_conv_bn(outs, outs))
            layers.append(Residual(branch, None if ins == outs else _conv_bn(ins, outs, 1, stride), after=nn.ReLU()))
            ins = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(ins, classes))
