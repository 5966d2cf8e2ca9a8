"""The 50 models of table 1 of the DLBricks paper (Li et al. 2019), with random weights at their real input sizes.

The paper took its models from the Wolfram Neural Net Repository; here each architecture is reimplemented in torch, and
models of the table that have the same architecture share one file.
"""

import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from costmodel.training.corpora.recipe import Recipe

if TYPE_CHECKING:
    import torch

__all__ = ["NETS", "RECIPES", "Net", "make_net"]


@dataclass(frozen=True, slots=True)
class Net:
    """An architecture and the arguments that distinguish its variants.

    Attributes:
        family: Architecture lineage.
        file: Name of the module in `nets` that defines the architecture.
        builder: Name of the function or class in that module that builds the network.
        size: Channels, height and width of each input.
        arguments: Keyword arguments of the builder; "@NAME" stands for the constant NAME of the same module.
        inputs: Names of the inputs.
    """

    family: str
    file: str
    builder: str
    size: tuple[int, int, int] = (3, 224, 224)
    arguments: Mapping[str, object] = field(default_factory=dict)
    inputs: tuple[str, ...] = ("input",)


def _a(**arguments: object) -> Mapping[str, object]:
    return MappingProxyType(arguments)


_FACES = (3, 256, 256)
NETS = {
    "ademxapp_a": Net("ademxapp", "ademxapp", "ademxapp_a", arguments=_a(classes=1000)),
    "ademxapp_a1_ade20k": Net("ademxapp", "ademxapp", "ademxapp_a1", (3, 504, 504), _a(classes=150)),
    "ademxapp_a1_voc": Net("ademxapp", "ademxapp", "ademxapp_a1", (3, 504, 504), _a(classes=21)),
    "vgg16": Net("vgg", "vgg", "vgg", arguments=_a(stages="@VGG16", classes=1000)),
    "vgg16_age": Net("vgg", "vgg", "vgg", arguments=_a(stages="@VGG16", classes=101)),
    "vgg16_gender": Net("vgg", "vgg", "vgg", arguments=_a(stages="@VGG16", classes=2)),
    "vgg19": Net("vgg", "vgg", "vgg", arguments=_a(stages="@VGG19", classes=1000)),
    "capsnet": Net("capsnet", "capsnet", "CapsNet", (1, 28, 28)),
    "inception_v1": Net("inception", "inception", "inception_v1", arguments=_a(classes=1000)),
    "inception_v1_salient": Net("inception", "inception", "inception_v1", arguments=_a(classes=5)),
    "inception_v1_places": Net("inception", "inception", "inception_v1", arguments=_a(classes=365)),
    "inception_v3": Net("inception", "inception", "inception_v3", (3, 299, 299), _a(classes=1000)),
    "image_identify": Net("inception", "inception", "image_identify", arguments=_a(classes=4315)),
    "mobilenet_v2": Net("mobilenet", "mobile", "mobilenet_v2", arguments=_a(classes=1000)),
    "resnet50": Net("resnet", "resnet", "resnet", arguments=_a(depth="@DEPTH_50", classes=1000)),
    "resnet101": Net("resnet", "resnet", "resnet", arguments=_a(depth="@DEPTH_101", classes=1000)),
    "resnet101_yfcc": Net("resnet", "resnet", "resnet_v2", arguments=_a(depth="@DEPTH_101", classes=15527)),
    "resnet152": Net("resnet", "resnet", "resnet", arguments=_a(depth="@DEPTH_152", classes=1000)),
    "wide_resnet50": Net(
        "resnet", "resnet", "resnet", arguments=_a(depth="@DEPTH_50", classes=1000, width=128, late_stride=True)
    ),
    "open_nsfw": Net("resnet", "resnet", "resnet", arguments=_a(depth="@DEPTH_50", classes=2, width=32, outs=128)),
    "senet154": Net("senet", "resnet", "senet154", arguments=_a(classes=1000)),
    "squeezenet": Net("squeezenet", "mobile", "squeezenet", (3, 227, 227), _a(classes=1000)),
    "adain": Net("adain", "translate", "AdaIN", (3, 512, 512), inputs=("content", "style")),
    "colorful": Net("colorful", "colorize", "colorful", (1, 224, 224)),
    "colornet": Net("colornet", "colorize", "ColorNet", (1, 224, 224)),
    "cyclegan": Net("cyclegan", "translate", "cyclegan", (3, 256, 256)),
    "cyclegan_padded": Net("cyclegan", "translate", "cyclegan", (3, 256, 256), _a(padded=True)),
    "pix2pix": Net("pix2pix", "translate", "pix2pix", (3, 256, 256)),
    "vdsr": Net("vdsr", "translate", "vdsr", (1, 256, 256)),
    "ssd300": Net("vgg", "ssd", "SSD", (3, 300, 300), _a(layout="@SSD_300", classes=21)),
    "ssd512": Net("vgg", "ssd", "SSD", (3, 512, 512), _a(layout="@SSD_512", classes=81)),
    "yolo_v2": Net("yolo", "yolo", "YoloV2", (3, 416, 416)),
    "face_alignment": Net("hourglass", "hourglass", "FaceAlignment", _FACES),
    "depth": Net("hourglass", "depth", "depth_in_the_wild", (3, 240, 320)),
    "volumetric": Net("hourglass", "hourglass", "volumetric", (3, 192, 192)),
    "dilated": Net("dilated", "dilated", "dilated", (3, 900, 1100), _a(classes=11)),
}

# The rows of table 1 in their order: name here, key in NETS, the paper's title and number of layers.
_TABLE = (
    ("ademxapp_a_imagenet", "ademxapp_a", "Ademxapp Model A Trained on ImageNet Competition Data", 142),
    ("vgg16_age_lap", "vgg16_age", "Age Estimation VGG-16 Trained on IMDB-WIKI and Looking at People Data", 40),
    ("vgg16_age", "vgg16_age", "Age Estimation VGG-16 Trained on IMDB-WIKI Data", 40),
    ("capsnet_mnist", "capsnet", "CapsNet Trained on MNIST Data", 53),
    ("vgg16_gender", "vgg16_gender", "Gender Prediction VGG-16 Trained on IMDB-WIKI Data", 40),
    (
        "inception_v1_salient", "inception_v1_salient",
        "Inception V1 Trained on Extended Salient Object Subitizing Data", 147,
    ),
    ("inception_v1_imagenet", "inception_v1", "Inception V1 Trained on ImageNet Competition Data", 147),
    ("inception_v1_places365", "inception_v1_places", "Inception V1 Trained on Places365 Data", 147),
    ("inception_v3_imagenet", "inception_v3", "Inception V3 Trained on ImageNet Competition Data", 311),
    ("mobilenet_v2_imagenet", "mobilenet_v2", "MobileNet V2 Trained on ImageNet Competition Data", 153),
    ("resnet101_imagenet", "resnet101", "ResNet-101 Trained on ImageNet Competition Data", 347),
    ("resnet101_yfcc100m", "resnet101_yfcc", "ResNet-101 Trained on YFCC100m Geotagged Data", 344),
    ("resnet152_imagenet", "resnet152", "ResNet-152 Trained on ImageNet Competition Data", 517),
    ("resnet50_imagenet", "resnet50", "ResNet-50 Trained on ImageNet Competition Data", 177),
    ("senet154_imagenet", "senet154", "Squeeze-and-Excitation Net Trained on ImageNet Competition Data", 874),
    ("squeezenet_v1_1_imagenet", "squeezenet", "SqueezeNet V1.1 Trained on ImageNet Competition Data", 69),
    ("vgg16_imagenet", "vgg16", "VGG-16 Trained on ImageNet Competition Data", 40),
    ("vgg19_imagenet", "vgg19", "VGG-19 Trained on ImageNet Competition Data", 46),
    ("wide_resnet50_2_imagenet", "wide_resnet50", "Wide ResNet-50-2 Trained on ImageNet Competition Data", 176),
    ("image_identify_v1", "image_identify", "Wolfram ImageIdentify Net V1", 232),
    ("open_nsfw_v1", "open_nsfw", "Yahoo Open NSFW Model V1", 177),
    ("adain_style", "adain", "AdaIN-Style Trained on MS-COCO and Painter by Numbers Data", 109),
    ("colorful_imagenet", "colorful", "Colorful Image Colorization Trained on ImageNet Competition Data", 58),
    ("colornet_imagenet", "colornet", "ColorNet Image Colorization Trained on ImageNet Competition Data", 62),
    ("colornet_places", "colornet", "ColorNet Image Colorization Trained on Places Data", 62),
    (
        "cyclegan_apple_to_orange", "cyclegan",
        "CycleGAN Apple-to-Orange Translation Trained on ImageNet Competition Data", 94,
    ),
    (
        "cyclegan_horse_to_zebra", "cyclegan",
        "CycleGAN Horse-to-Zebra Translation Trained on ImageNet Competition Data", 94,
    ),
    ("cyclegan_monet_to_photo", "cyclegan", "CycleGAN Monet-to-Photo Translation", 94),
    (
        "cyclegan_orange_to_apple", "cyclegan",
        "CycleGAN Orange-to-Apple Translation Trained on ImageNet Competition Data", 94,
    ),
    ("cyclegan_photo_to_cezanne", "cyclegan_padded", "CycleGAN Photo-to-Cezanne Translation", 96),
    ("cyclegan_photo_to_monet", "cyclegan", "CycleGAN Photo-to-Monet Translation", 94),
    ("cyclegan_photo_to_van_gogh", "cyclegan_padded", "CycleGAN Photo-to-Van Gogh Translation", 96),
    ("cyclegan_summer_to_winter", "cyclegan", "CycleGAN Summer-to-Winter Translation", 94),
    ("cyclegan_winter_to_summer", "cyclegan", "CycleGAN Winter-to-Summer Translation", 94),
    (
        "cyclegan_zebra_to_horse", "cyclegan",
        "CycleGAN Zebra-to-Horse Translation Trained on ImageNet Competition Data", 94,
    ),
    ("pix2pix_photo_to_map", "pix2pix", "Pix2pix Photo-to-Street-Map Translation", 56),
    ("pix2pix_map_to_photo", "pix2pix", "Pix2pix Street-Map-to-Photo Translation", 56),
    ("vdsr", "vdsr", "Very Deep Net for Super-Resolution", 40),
    ("ssd_vgg_300_voc", "ssd300", "SSD-VGG-300 Trained on PASCAL VOC Data", 145),
    ("ssd_vgg_512_coco", "ssd512", "SSD-VGG-512 Trained on MS-COCO Data", 157),
    ("yolo_v2_coco", "yolo_v2", "YOLO V2 Trained on MS-COCO Data", 106),
    ("face_alignment_2d", "face_alignment", "2D Face Alignment Net Trained on 300W Large Pose Data", 967),
    ("face_alignment_3d", "face_alignment", "3D Face Alignment Net Trained on 300W Large Pose Data", 967),
    ("depth_diw", "depth", "Single-Image Depth Perception Net Trained on Depth in the Wild Data", 501),
    (
        "depth_nyu_diw", "depth",
        "Single-Image Depth Perception Net Trained on NYU Depth V2 and Depth in the Wild Data", 501,
    ),
    ("depth_nyu", "depth", "Single-Image Depth Perception Net Trained on NYU Depth V2 Data", 501),
    (
        "vrn_unguided", "volumetric",
        "Unguided Volumetric Regression Net for 3D Face Reconstruction", 1029,
    ),
    ("ademxapp_a1_ade20k", "ademxapp_a1_ade20k", "Ademxapp Model A1 Trained on ADE20K Data", 141),
    ("ademxapp_a1_voc_coco", "ademxapp_a1_voc", "Ademxapp Model A1 Trained on PASCAL VOC2012 and MS-COCO Data", 141),
    ("context_aggregation_camvid", "dilated", "Multi-scale Context Aggregation Net Trained on CamVid Data", 53),
)  # fmt: skip


def make_net(name: str) -> "torch.nn.Module":
    """Builds the network that `NETS` has under this name, with the initial weights that torch gives it.

    Raises:
        MissingExtraError: torch is not installed.
    """
    import costmodel.onnx_io.torch_export  # noqa: F401  # raises MissingExtraError where torch is missing

    net = NETS[name]
    module = import_module(f"costmodel.training.corpora.nets.{net.file}")
    arguments = {
        key: getattr(module, value[1:]) if isinstance(value, str) else value for key, value in net.arguments.items()
    }
    made: torch.nn.Module = getattr(module, net.builder)(**arguments)
    return made


def _write(name: str, path: Path) -> None:
    made = make_net(name)
    import torch

    from costmodel.onnx_io.torch_export import write_module
    from costmodel.training.corpora.nets.weights import initialise

    net = NETS[name]
    initialise(made, seed=zlib.crc32(name.encode()))
    write_module(made, {key: torch.zeros(1, *net.size) for key in net.inputs}, path)


def _share(first: str, path: Path) -> None:
    """Makes `path` a hard link to, or a copy of, the file of the model `first`, which has the same architecture."""
    file = path.with_name(f"{first}.onnx")
    try:
        os.link(file, path)
    except OSError:  # not every file system has hard links
        shutil.copyfile(file, path)


def _recipes() -> tuple[Recipe, ...]:
    first: dict[str, str] = {}
    recipes = []
    for name, net, title, layers in _TABLE:
        needs = first.get(net, "")
        write = partial(_share, needs) if needs else partial(_write, net)
        recipes.append(Recipe(name, NETS[net].family, title, write, needs, layers))
        first.setdefault(net, name)
    return tuple(recipes)


RECIPES = _recipes()
