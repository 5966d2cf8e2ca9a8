"""YOLO V2 (Redmon and Farhadi 2016): class probabilities and boxes, without non-maximum suppression."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import conv, conv_bn_leaky

__all__ = ["YoloV2"]

# Width and height in cells of the five anchor boxes of each cell, as for MS-COCO.
_ANCHORS = ((0.57273, 0.677385), (1.87446, 2.06253), (3.33843, 5.47434), (7.88282, 3.52778), (9.77052, 9.16828))
# Channels of Darknet-19's stages; each convolution but the last of a stage is followed by a 1 x 1 one to half of them.
_FINE = ((32,), (64,), (128, 128), (256, 256), (512, 512, 512))
_COARSE = (1024, 1024, 1024)
_CELLS = 13


class YoloV2(nn.Module):
    """YOLO V2, an object detector on images of 416 x 416, by default for 80 classes."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.classes = classes
        fine: list[nn.Module] = []
        ins = 3
        for stage in _FINE:
            if fine:
                fine.append(nn.MaxPool2d(2))
            fine += _stage(ins, stage)
            ins = stage[-1]
        self.fine = nn.Sequential(*fine)
        self.coarse = nn.Sequential(
            nn.MaxPool2d(2), *_stage(512, _COARSE), conv_bn_leaky(1024, 1024), conv_bn_leaky(1024, 1024)
        )
        self.through = nn.Sequential(conv_bn_leaky(512, 64, 1), nn.PixelUnshuffle(2))
        self.detect = nn.Sequential(
            conv_bn_leaky(1024 + 256, 1024), conv(1024, len(_ANCHORS) * (5 + classes), 1, bias=True)
        )
        rows, columns = torch.meshgrid(torch.arange(_CELLS), torch.arange(_CELLS), indexing="ij")
        corner = torch.stack([columns, rows]).reshape(1, 1, 2, -1).float()
        self.register_buffer("corner", corner, persistent=False)
        self.register_buffer("anchors", torch.tensor(_ANCHORS).reshape(1, -1, 2, 1), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps an image to boxes, class probabilities and objectness.

        Shapes:
            x: [1, 3, 416, 416]; result: boxes [1, 845, 4], probabilities [1, 845, classes], objectness [1, 845, 1].
        """
        fine = self.fine(x)
        found = self.detect(torch.cat([self.through(fine), self.coarse(fine)], 1))
        found = found.view(1, len(_ANCHORS), 5 + self.classes, _CELLS * _CELLS)
        centre = (found[:, :, :2].sigmoid() + self.get_buffer("corner")) / _CELLS
        size = found[:, :, 2:4].exp() * self.get_buffer("anchors") / _CELLS
        boxes = torch.cat([centre, size], 2)
        return _rows(boxes), _rows(found[:, :, 5:].softmax(2)), _rows(found[:, :, 4:5].sigmoid())


def _rows(x: Tensor) -> Tensor:
    return x.transpose(2, 3).reshape(1, -1, x.shape[2])


def _stage(ins: int, channels: tuple[int, ...]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for i, outs in enumerate(channels):
        if i:
            layers.append(conv_bn_leaky(outs, outs // 2, 1))
        layers.append(conv_bn_leaky(outs // 2 if i else ins, outs))
    return layers
