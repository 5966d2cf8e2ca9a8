"""Detectors of objects, faces and key points: YOLO, RetinaNet, CenterNet, BlazeFace, MobileFaceNet, OpenPose."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import (
    Concat,
    Residual,
    conv,
    conv_bn,
    conv_bn_leaky,
    conv_bn_relu,
    conv_relu,
    rows_of_cells,
    upsample,
)

__all__ = ["BlazeFace", "OpenPose", "RetinaNet", "Yolo8", "YoloTiny", "centernet", "mobilefacenet"]


class YoloTiny(nn.Module):
    """YOLOv3-tiny (Redmon and Farhadi 2018), an object detector: boxes and their scores from two feature maps."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.columns = 5 + classes
        fine: list[nn.Module] = [conv_bn_leaky(3, 16)]
        for ins in (16, 32, 64, 128):
            fine += [nn.MaxPool2d(2), conv_bn_leaky(ins, 2 * ins)]
        self.fine = nn.Sequential(*fine)
        self.coarse = nn.Sequential(
            nn.MaxPool2d(2), conv_bn_leaky(256, 512), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1),
            conv_bn_leaky(512, 1024), conv_bn_leaky(1024, 256, 1),
        )  # fmt: skip
        self.large = nn.Sequential(conv_bn_leaky(256, 512), conv(512, 3 * self.columns, 1, bias=True))
        self.up = nn.Sequential(conv_bn_leaky(256, 128, 1), upsample())
        self.small = nn.Sequential(conv_bn_leaky(384, 256), conv(256, 3 * self.columns, 1, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        """Maps images to boxes with their objectness and class scores.

        Shapes:
            x: [batch, 3, height, width]; result: [batch, boxes, 5 + classes].
        """
        fine = self.fine(x)
        coarse = self.coarse(fine)
        maps = self.large(coarse), self.small(torch.cat([self.up(coarse), fine], 1))
        return torch.cat([rows_of_cells(m, self.columns) for m in maps], 1).sigmoid()


def _silu(ins: int, outs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(*conv_bn(ins, outs, kernel, stride), nn.SiLU())


class _C2f(nn.Module):
    """YOLOv8's C2f block: a chain of bottlenecks whose intermediate outputs are all concatenated."""

    def __init__(self, ins: int, outs: int, count: int, *, shortcut: bool = True) -> None:
        super().__init__()
        half = outs // 2
        self.split = _silu(ins, outs, 1)
        chain = [nn.Sequential(_silu(half, half), _silu(half, half)) for _ in range(count)]
        self.chain = nn.ModuleList(Residual(step) if shortcut else step for step in chain)
        self.join = _silu((2 + count) * half, outs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps feature maps of shape [batch, ins, height, width] to [batch, outs, height, width]."""
        parts = list(self.split(x).chunk(2, 1))
        for step in self.chain:
            parts.append(step(parts[-1]))
        joined: Tensor = self.join(torch.cat(parts, 1))
        return joined


class _PooledPyramid(nn.Module):
    """Fast spatial pyramid pooling (SPPF): concatenates a feature map and the results of three successive max pools."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow, self.pool = _silu(width, width // 2, 1), nn.MaxPool2d(5, 1, 2)
        self.join = _silu(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns feature maps of the shape of `x`, [batch, channels, height, width]."""
        parts = [self.narrow(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        joined: Tensor = self.join(torch.cat(parts, 1))
        return joined


class Yolo8(nn.Module):
    """A detector like YOLOv8 (Jocher et al. 2023), with boxes decoded from distributions over distances.

    The nano variant has a `width` of 16.
    """

    def __init__(self, size: int, width: int = 16, classes: int = 80) -> None:
        super().__init__()
        w = width
        self.shallow = nn.Sequential(
            _silu(3, w, 3, 2), _silu(w, 2 * w, 3, 2), _C2f(2 * w, 2 * w, 1), _silu(2 * w, 4 * w, 3, 2),
            _C2f(4 * w, 4 * w, 2),
        )  # fmt: skip
        self.middle = nn.Sequential(_silu(4 * w, 8 * w, 3, 2), _C2f(8 * w, 8 * w, 2))
        self.deep = nn.Sequential(_silu(8 * w, 16 * w, 3, 2), _C2f(16 * w, 16 * w, 1), _PooledPyramid(16 * w))
        self.up = upsample()
        self.merge_middle = _C2f(24 * w, 8 * w, 1, shortcut=False)
        self.merge_shallow = _C2f(12 * w, 4 * w, 1, shortcut=False)
        self.down_middle, self.out_middle = _silu(4 * w, 4 * w, 3, 2), _C2f(12 * w, 8 * w, 1, shortcut=False)
        self.down_deep, self.out_deep = _silu(8 * w, 8 * w, 3, 2), _C2f(24 * w, 16 * w, 1, shortcut=False)
        widths = (4 * w, 8 * w, 16 * w)
        self.boxes = nn.ModuleList(_head(ins, 64, 64) for ins in widths)
        self.classes = nn.ModuleList(_head(ins, max(4 * w, classes), classes) for ins in widths)
        places = [torch.arange(size // stride) + 0.5 for stride in (8, 16, 32)]
        grids = [torch.stack(torch.meshgrid(p, p, indexing="xy")).flatten(1) for p in places]
        self.register_buffer("places", torch.cat(grids, 1)[None], persistent=False)
        self.register_buffer("distances", torch.arange(16.0).view(1, 1, 16, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps images to a box and class scores for each cell of three grids.

        Shapes:
            x: [batch, 3, size, size]; result: [batch, 4 + classes, cells of all grids].
        """
        shallow = self.shallow(x)
        middle = self.middle(shallow)
        deep = self.deep(middle)
        up = self.merge_middle(torch.cat([self.up(deep), middle], 1))
        fine = self.merge_shallow(torch.cat([self.up(up), shallow], 1))
        mid = self.out_middle(torch.cat([self.down_middle(fine), up], 1))
        coarse = self.out_deep(torch.cat([self.down_deep(mid), deep], 1))
        maps = (fine, mid, coarse)
        boxes = torch.cat([head(m).flatten(2) for head, m in zip(self.boxes, maps, strict=True)], 2)
        scores = torch.cat([head(m).flatten(2) for head, m in zip(self.classes, maps, strict=True)], 2)
        spread = boxes.view(boxes.shape[0], 4, 16, -1).softmax(2)
        near, far = (spread * self.get_buffer("distances")).sum(2).chunk(2, 1)
        places = self.get_buffer("places")
        return torch.cat([places + (far - near) / 2, near + far, scores.sigmoid()], 1)


def _head(ins: int, inner: int, outs: int) -> nn.Module:
    return nn.Sequential(_silu(ins, inner), _silu(inner, inner), conv(inner, outs, 1, bias=True))


def _basic(ins: int, outs: int, stride: int) -> nn.Module:
    branch = nn.Sequential(conv_bn_relu(ins, outs, 3, stride), conv_bn(outs, outs))
    return Residual(branch, None if ins == outs else conv_bn(ins, outs, 1, stride), after=nn.ReLU())


def _stage(ins: int, outs: int, stride: int = 2) -> nn.Module:
    return nn.Sequential(_basic(ins, outs, stride), _basic(outs, outs, 1))


def _stem() -> nn.Module:
    return nn.Sequential(conv_bn_relu(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), _stage(64, 64, 1), _stage(64, 128))


class RetinaNet(nn.Module):
    """RetinaNet (Lin et al. 2017) on ResNet-18: a feature pyramid of `width` channels, heads shared by all levels."""

    def __init__(self, width: int, depth: int, classes: int = 80, anchors: int = 9) -> None:
        super().__init__()
        self.columns = classes
        self.fine, self.middle, self.coarse = _stem(), _stage(128, 256), _stage(256, 512)
        self.sides = nn.ModuleList(conv(ins, width, 1, bias=True) for ins in (128, 256, 512))
        self.smooth = nn.ModuleList(conv(width, width, bias=True) for _ in range(3))
        self.sixth = conv(512, width, 3, 2, bias=True)
        self.up = upsample()
        self.classify = nn.Sequential(
            *(conv_relu(width, width) for _ in range(depth)), conv(width, anchors * classes, bias=True)
        )
        self.locate = nn.Sequential(
            *(conv_relu(width, width) for _ in range(depth)), conv(width, anchors * 4, bias=True)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps images to class scores and box offsets.

        Shapes:
            x: [batch, 3, height, width]; result: scores [batch, boxes, classes], offsets [batch, boxes, 4].
        """
        fine = self.fine(x)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        top = self.sides[2](coarse)
        mid = self.sides[1](middle) + self.up(top)
        low = self.sides[0](fine) + self.up(mid)
        maps = [smooth(m) for smooth, m in zip(self.smooth, (low, mid, top), strict=True)]
        maps.append(self.sixth(coarse))
        scores = torch.cat([rows_of_cells(self.classify(m), self.columns) for m in maps], 1)
        return scores.sigmoid(), torch.cat([rows_of_cells(self.locate(m), 4) for m in maps], 1)


def centernet(classes: int) -> nn.Module:
    """Returns CenterNet (Zhou et al. 2019) on ResNet-18, which finds objects by a heat map, their sizes and offsets.

    Three transposed convolutions enlarge the feature map before the three heads.
    """
    up: list[nn.Module] = []
    ins = 512
    for outs in (256, 128, 64):
        up += [nn.ConvTranspose2d(ins, outs, 4, 2, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU()]
        ins = outs
    heat = nn.Sequential(conv_relu(64, 64), conv(64, classes, 1, bias=True), nn.Sigmoid())
    others = [nn.Sequential(conv_relu(64, 64), conv(64, 2, 1, bias=True)) for _ in range(2)]
    return nn.Sequential(_stem(), _stage(128, 256), _stage(256, 512), *up, Concat(heat, *others))


class _Wider(nn.Module):
    """A module that appends channels of zeros to a feature map."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, height, width] to [batch, channels + more, height, width]."""
        return nn.functional.pad(x, (0, 0, 0, 0, 0, self.more))


def _blaze(ins: int, outs: int, stride: int = 1) -> nn.Module:
    """Returns a BlazeFace block: a depthwise and a pointwise convolution with a shortcut.

    The shortcut is pooled and padded with channels of zeros where the shape changes.
    """
    branch = nn.Sequential(conv(ins, ins, 5, stride, groups=ins, bias=True), conv(ins, outs, 1, bias=True))
    pooled = [nn.MaxPool2d(2)] if stride > 1 else []
    wider = [_Wider(outs - ins)] if outs > ins else []
    return Residual(branch, nn.Sequential(*pooled, *wider), after=nn.ReLU())


class BlazeFace(nn.Module):
    """BlazeFace (Bazarevsky et al. 2019), which finds faces in front-camera images of 128 x 128."""

    def __init__(self) -> None:
        super().__init__()
        fine: list[nn.Module] = [nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU()]
        widths = ((24, 24, 1), (24, 28, 1), (28, 32, 2), (32, 36, 1), (36, 42, 1), (42, 48, 2), (48, 56, 1),
                  (56, 64, 1), (64, 72, 1), (72, 80, 1), (80, 88, 1))  # fmt: skip
        self.fine = nn.Sequential(*fine, *(_blaze(*spec) for spec in widths))
        self.coarse = nn.Sequential(_blaze(88, 96, 2), *(_blaze(96, 96) for _ in range(4)))
        self.scores = nn.ModuleList((conv(88, 2, 1, bias=True), conv(96, 6, 1, bias=True)))
        self.points = nn.ModuleList((conv(88, 32, 1, bias=True), conv(96, 96, 1, bias=True)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps images, [batch, 3, 128, 128], to scores, [batch, 896, 1], and boxes and key points, [batch, 896, 16]."""
        fine = self.fine(x)
        maps = (fine, self.coarse(fine))
        scores = [rows_of_cells(head(m), 1) for head, m in zip(self.scores, maps, strict=True)]
        points = [rows_of_cells(head(m), 16) for head, m in zip(self.points, maps, strict=True)]
        return torch.cat(scores, 1), torch.cat(points, 1)


def mobilefacenet(embedding: int) -> nn.Module:
    """Returns MobileFaceNet (Chen et al. 2018), which maps faces of 112 x 112 to vectors of `embedding` numbers.

    It is a MobileNet V2 with PReLU, pooled by a depthwise convolution.
    """

    def prelu(ins: int, outs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
        return nn.Sequential(*conv_bn(ins, outs, kernel, stride, groups=groups), nn.PReLU(outs))

    layers: list[nn.Module] = [prelu(3, 64, 3, 2), prelu(64, 64, groups=64)]
    ins = 64
    for expansion, outs, blocks, first in (
        (2, 64, 5, 2),
        (4, 128, 1, 2),
        (2, 128, 6, 1),
        (4, 128, 1, 2),
        (2, 128, 2, 1),
    ):
        for block in range(blocks):
            stride, inner = 1 if block else first, ins * expansion
            branch = nn.Sequential(prelu(ins, inner, 1), prelu(inner, inner, 3, stride, inner), conv_bn(inner, outs, 1))
            layers.append(Residual(branch) if stride == 1 and ins == outs else branch)
            ins = outs
    pool = conv_bn(512, 512, 7, groups=512, padding=0)
    return nn.Sequential(*layers, prelu(ins, 512, 1), pool, conv_bn(512, embedding, 1), nn.Flatten())


class OpenPose(nn.Module):
    """Lightweight OpenPose (Osokin 2018): heat maps of key points and part affinity fields, refined in one stage."""

    def __init__(self, width: int, points: int = 19, fields: int = 38) -> None:
        super().__init__()
        w = width
        widths = ((32, w, 1), (w, 2 * w, 2), (2 * w, 2 * w, 1), (2 * w, 4 * w, 2), *((4 * w, 4 * w, 1),) * 4)
        self.features = nn.Sequential(
            conv_bn_relu(3, 32, 3, 2),
            *(layer for i, o, s in widths for layer in (conv_bn_relu(i, i, 3, s, groups=i), conv_bn_relu(i, o, 1))),
        )
        self.first = self._stage(4 * w, w, points + fields, 3)
        self.second = self._stage(4 * w + points + fields, w, points + fields, 5)

    @staticmethod
    def _stage(ins: int, inner: int, outs: int, count: int) -> nn.Module:
        trunk = [conv_relu(ins, inner), *(Residual(conv_relu(inner, inner, dilation=2)) for _ in range(count))]
        return nn.Sequential(*trunk, conv_relu(inner, 4 * inner, 1), conv(4 * inner, outs, 1, bias=True))

    def forward(self, x: Tensor) -> Tensor:
        """Maps images to heat maps and affinity fields at an eighth of the images' height and width.

        Shapes:
            x: [batch, 3, height, width]; result: [batch, points + fields, height / 8, width / 8].
        """
        features = self.features(x)
        refined: Tensor = self.second(torch.cat([features, self.first(features)], 1))
        return refined
