"""VGG (Simonyan and Zisserman 2014), an image classifier."""

from torch import nn

from costmodel.training.corpora.nets.blocks import conv_relu

__all__ = ["VGG16", "VGG19", "vgg"]

VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg(stages: tuple[tuple[int, int], ...], classes: int) -> nn.Module:
    """Returns a VGG for images of 224 x 224.

    Args:
        stages: Channels and number of convolutions of each stage.
        classes: Number of classes: 1000 for ImageNet, 101 for ages, 2 for genders.
    """
    layers: list[nn.Module] = []
    ins = 3
    for channels, count in stages:
        for _ in range(count):
            layers.append(conv_relu(ins, channels))
            ins = channels
        layers.append(nn.MaxPool2d(2))
    head = (nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Dropout(), nn.Linear(4096, classes), nn.Softmax(1))  # fmt: skip
    return nn.Sequential(*layers, *head)
