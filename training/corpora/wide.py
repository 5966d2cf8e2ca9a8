"""The wide corpus: a model or two from each of many lineages, so that every kind of network run on CPUs is represented.

Each model takes between a millisecond and a fifth of a second on one core. A lineage that another corpus contains too
has the same family name there.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.training.corpora.modern_network import NetworkInput
from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.wide_transformers import FROM_TRANSFORMERS

if TYPE_CHECKING:
    import torch

__all__ = ["OWN", "RECIPES", "OwnNetwork", "make_own"]


@dataclass(frozen=True, slots=True)
class OwnNetwork:
    """A network whose architecture is implemented in `nets`.

    Attributes:
        name: Name of the recipe.
        family: Architecture lineage.
        title: Human-readable description.
        builder: Module in `nets`, and the function or class in it that builds the network, joined by a dot.
        arguments: Positional arguments of the builder.
        options: Keyword arguments of the builder.
        inputs: Inputs of the network, by name.
    """

    name: str
    family: str
    title: str
    builder: str
    arguments: tuple[object, ...]
    options: Mapping[str, object]
    inputs: Mapping[str, NetworkInput]


def _own(
    name: str,
    family: str,
    title: str,
    builder: str,
    *arguments: object,
    of: Mapping[str, NetworkInput] | tuple[int, ...],
    **options: object,
) -> OwnNetwork:
    """Returns an `OwnNetwork`; `of` is the shape of its only floating-point input, or all its inputs by name."""
    inputs = {"input": NetworkInput(of)} if isinstance(of, tuple) else of
    return OwnNetwork(name, family, title, builder, arguments, options, inputs)


def _image(size: int, batch: int = 1, channels: int = 3) -> tuple[int, ...]:
    return (batch, channels, size, size)


def _ids(*shape: int, below: int, name: str = "tokens") -> dict[str, NetworkInput]:
    return {name: NetworkInput(shape, below)}


def _clicks(batch: int, dense: int, fields: int, rows: int) -> dict[str, NetworkInput]:
    return {"dense": NetworkInput((batch, dense)), "ids": NetworkInput((batch, fields), rows)}


def _step(vocabulary: int, depth: int, heads: int, length: int, batch: int = 1) -> dict[str, NetworkInput]:
    """Returns the inputs of a decoding step, by name: a token, and keys and values of `length` past tokens.

    Each attention head has a width of 64.
    """
    return {
        "token": NetworkInput((batch, 1), vocabulary),
        "past": NetworkInput((depth, 2, batch, heads, length, 64)),
    }


_DEEPLY = tuple(1 << i for i in range(9)) * 2

_CLASSIFIERS = (
    _own("lenet_32_b64", "lenet", "LeNet-5, batch 64", "classifiers.lenet", 10, of=_image(32, 64, 1)),
    _own(
        "densenet121_224", "densenet", "DenseNet-121", "classifiers.densenet", (6, 12, 24, 16), 32, 1000,
        of=_image(224),
    ),
    _own(
        "densenet_k12_32_b4", "densenet", "DenseNet-BC of growth 12, batch 4", "classifiers.densenet", (16, 16, 16), 12,
        10, small=True, of=_image(32, 4),
    ),
    _own(
        "shufflenet_v2_050_224_b2", "shufflenet", "ShuffleNet V2 0.5x, batch 2", "classifiers.shufflenet_v2",
        (48, 96, 192), 1000, of=_image(224, 2),
    ),
    _own(
        "shufflenet_v2_100_224_b4", "shufflenet", "ShuffleNet V2 1.0x, batch 4", "classifiers.shufflenet_v2",
        (116, 232, 464), 1000, of=_image(224, 4),
    ),
    _own("ghostnet_100_224", "ghostnet", "GhostNet 1.0", "classifiers.ghostnet", 1000, of=_image(224)),
    _own("xception_m4_192", "xception", "Xception, 4 middle blocks", "classifiers.xception", 4, 1000, of=_image(192)),
    _own(
        "repvgg_a0_224", "repvgg", "RepVGG-A0, deployed", "classifiers.repvgg", (48, 48, 96, 192, 1280), 1000,
        of=_image(224),
    ),
    _own(
        "repvgg_thin_160_b4", "repvgg", "RepVGG, thin, batch 4", "classifiers.repvgg", (24, 32, 64, 128, 512), 100,
        of=_image(160, 4),
    ),
    _own("hrnet_w18_192", "hrnet", "HRNet-W18, short", "classifiers.HrNet", 18, 19, of=_image(192)),
    _own("mlp_mixer_s32_224", "mlp_mixer", "MLP-Mixer S/32", "mixers.mlp_mixer", 224, 32, 512, 8, 1000, of=_image(224)),
    _own(
        "mlp_mixer_s16_d4_224", "mlp_mixer", "MLP-Mixer S/16, 4 layers", "mixers.mlp_mixer", 224, 16, 512, 4, 1000,
        of=_image(224),
    ),
    _own("resmlp_s12_160", "resmlp", "ResMLP-S12, 160 px", "mixers.resmlp", 160, 16, 384, 12, 1000, of=_image(160)),
    _own("gmlp_ti16_224", "gmlp", "gMLP-Ti/16, half as deep", "mixers.gmlp", 224, 16, 128, 15, 1000, of=_image(224)),
    _own("convmixer_256_8_224", "convmixer", "ConvMixer-256/8", "mixers.convmixer", 256, 8, 9, 7, 1000, of=_image(224)),
)  # fmt: skip

_DENSE = (
    _own("unet_w16_256", "unet", "U-Net of 16 channels", "segmentation.unet", 16, 4, 2, of=_image(256)),
    _own(
        "unet_w32_96_b2", "unet", "U-Net of 32 channels, batch 2", "segmentation.unet", 32, 4, 3, ins=1,
        of=_image(96, 2, 1),
    ),
    _own("unet3d_w8_48", "unet", "3D U-Net of 8 channels", "segmentation.unet3d", 8, 3, 4, of=(1, 1, 48, 48, 48)),
    _own("fcn8_w16_256", "vgg", "FCN-8s on a thin VGG", "segmentation.fcn", 16, 21, of=_image(256)),
    _own(
        "deeplab_w32_256", "deeplab", "DeepLabv3+, thin and separable", "segmentation.deeplab", 32, 21, of=_image(256),
    ),
    _own("fast_scnn_256x512", "fastscnn", "Fast-SCNN", "segmentation.fast_scnn", 19, of=(1, 3, 256, 512)),
    _own("edsr_x2_b8_48", "edsr", "EDSR, 8 blocks, x2", "generators.edsr", 8, 64, 2, of=_image(48)),
    _own("edsr_x4_w32_64", "edsr", "EDSR, thin, x4", "generators.edsr", 8, 32, 4, of=_image(64)),
    _own("fsrcnn_x3_160", "fsrcnn", "FSRCNN, x3", "generators.fsrcnn", 3, of=_image(160, 1, 1)),
    _own("espcn_x3_160", "espcn", "ESPCN, x3", "generators.espcn", 3, of=_image(160, 1, 1)),
    _own("srgan_b8_32", "srgan", "SRGAN, 8 blocks, x4", "generators.srgan", 8, of=_image(32)),
    _own("dncnn_17_64", "dncnn", "DnCNN-17", "generators.dncnn", 17, of=_image(64, 1, 1)),
    _own("dcgan_64_b4", "dcgan", "DCGAN, batch 4", "generators.dcgan", 64, of={"noise": NetworkInput((4, 100, 1, 1))}),
    _own(
        "vae_decoder_w32_16", "vae", "Decoder of a latent diffusion model, thin", "generators.vae_decoder", 32, 16,
        of=_image(16, 1, 4),
    ),
    _own(
        "autoencoder_128", "autoencoder", "Convolutional autoencoder", "generators.autoencoder", 128, 32, 128,
        of=_image(128),
    ),
)  # fmt: skip

_FOUND = (
    _own("yolo_v3_tiny_416", "yolo", "YOLOv3-tiny", "detectors.YoloTiny", of=_image(416)),
    _own("yolo_v8n_320", "yolo", "Like YOLOv8-nano, 320 px", "detectors.Yolo8", 320, of=_image(320)),
    _own("yolo_v8n_256_b4", "yolo", "Like YOLOv8-nano, 256 px, batch 4", "detectors.Yolo8", 256, of=_image(256, 4)),
    _own(
        "retinanet_r18_256", "resnet", "RetinaNet on ResNet-18, narrow", "detectors.RetinaNet", 128, 2, of=_image(256),
    ),
    _own("centernet_r18_256", "resnet", "CenterNet on ResNet-18", "detectors.centernet", 80, of=_image(256)),
    _own("blazeface_128_b2", "blazeface", "BlazeFace, batch 2", "detectors.BlazeFace", of=_image(128, 2)),
    _own("mobilefacenet_112", "mobilenet", "MobileFaceNet", "detectors.mobilefacenet", 128, of=_image(112)),
    _own(
        "openpose_light_256", "openpose", "OpenPose for small machines, thin", "detectors.OpenPose", 64, of=_image(256),
    ),
)  # fmt: skip

_SEQUENCES = (
    _own(
        "lstm_lm_w512_s32", "lstm", "LSTM language model", "recurrent.lstm_language_model", 10_000, 512, 2,
        of=_ids(1, 32, below=10_000),
    ),
    _own(
        "lstm_forecast_w128_s96_b8", "lstm", "LSTM forecaster, batch 8", "recurrent.lstm_forecaster", 7, 128, 24,
        of=(8, 96, 7),
    ),
    _own(
        "gru_tagger_w256_s64_b4", "gru", "GRU tagger, batch 4", "recurrent.tagger", 20_000, 256, 17,
        of=_ids(4, 64, below=20_000),
    ),
    _own("crnn_32x160", "crnn", "CRNN", "recurrent.crnn", 37, 256, of=(1, 1, 32, 160)),
    _own(
        "deepspeech2_1s", "deepspeech", "Like Deep Speech 2", "recurrent.deep_speech", 80, 384, 2, 29,
        of=(1, 1, 80, 100),
    ),
    _own(
        "kws_gru_1s", "kws", "Keyword spotter with attention", "recurrent.KeywordSpotter", 80, 128, 35,
        of=(1, 1, 100, 80),
    ),
    _own(
        "esim_w300_s32", "esim", "ESIM", "recurrent.Esim", 10_000, 300, 3,
        of=_ids(1, 32, below=10_000, name="premise") | _ids(1, 32, below=10_000, name="hypothesis"),
    ),
    _own("quartznet_5x2_2s", "quartznet", "QuartzNet 5x2", "speech.quartznet", 64, 2, 29, of=(1, 64, 200)),
    _own(
        "conformer_w144_d8_4s", "conformer", "Conformer-S, half as deep", "speech.Conformer", 80, 144, 4, 8, 29,
        of=(1, 1, 400, 80),
    ),
    _own(
        "wavenet_w64_2000", "wavenet", "WaveNet, 18 layers", "speech.WaveNet", 64, 128, _DEEPLY,
        of=_ids(1, 2000, below=256, name="wave"),
    ),
    _own("tcn_w64_512_b8", "tcn", "TCN, 7 levels, batch 8", "speech.tcn", 12, 64, 7, 1, of=(8, 12, 512)),
    _own(
        "fastspeech_w256_s40", "fastspeech", "Like FastSpeech", "speech.FastSpeech", 80, 256, 2, 5, 80,
        of=_ids(1, 40, below=80, name="phonemes"),
    ),
    _own("demucs_w32_1s", "demucs", "Demucs in real time", "speech.Demucs", 32, 5, of=(1, 1, 16_384)),
    _own(
        "textcnn_s128_b4", "textcnn", "TextCNN, batch 4", "tables.TextCnn", 20_000, 300, 100, 5,
        of=_ids(4, 128, below=20_000),
    ),
    _own(
        "gpt_step_d6_p64", "gpt2", "One step of a GPT, 64 tokens past", "decoder.GptStep", 16_000, 512, 6, 64,
        of=_step(16_000, 6, 8, 64),
    ),
    _own(
        "gpt_step_d4_p256_b4", "gpt2", "One step of a GPT, 256 tokens past, batch 4", "decoder.GptStep", 16_000, 512, 4,
        256, of=_step(16_000, 4, 8, 256, 4),
    ),
    _own(
        "llama_step_d6_p256", "llama", "One step of a Llama, 256 tokens past", "decoder.LlamaStep", 16_000, 512, 1536,
        2, 6, 256, of=_step(16_000, 6, 2, 256),
    ),
)  # fmt: skip

_ROWS = (
    _own(
        "dlrm_f26_b96", "dlrm", "DLRM, batch 96", "recommend.Dlrm", 13, 26, 10_000, 32, of=_clicks(96, 13, 26, 10_000)
    ),
    _own(
        "dlrm_f26_b256", "dlrm", "DLRM, batch 256", "recommend.Dlrm", 13, 26, 10_000, 64,
        of=_clicks(256, 13, 26, 10_000),
    ),
    _own(
        "wide_deep_b64", "wide_deep", "Wide & Deep, batch 64", "recommend.WideAndDeep", 13, 26, 10_000, 32,
        of=_clicks(64, 13, 26, 10_000),
    ),
    _own(
        "deepfm_b256", "deepfm", "DeepFM, batch 256", "recommend.DeepFM", 39, 10_000, 16,
        of=_ids(256, 39, below=10_000, name="ids"),
    ),
    _own(
        "ncf_b8192", "ncf", "NeuMF, batch 8192", "recommend.Ncf", 60_000, 4_000, 64,
        of=_ids(8192, below=60_000, name="user") | _ids(8192, below=4_000, name="item"),
    ),
    _own(
        "sasrec_s50_b8", "sasrec", "SASRec, batch 8", "recommend.SasRec", 20_000, 128, 50, 2,
        of=_ids(8, 50, below=20_000, name="history"),
    ),
    _own(
        "tabular_mlp_b128", "mlp", "Layers for tables, batch 128", "tables.tabular_mlp", 200, 1024, 512, 512, 256, 10,
        of=(128, 200),
    ),
    _own(
        "ft_transformer_b16", "ft_transformer", "FT-Transformer, batch 16", "tables.FtTransformer", 30, 192, 3, 2,
        of=(16, 30),
    ),
    _own("nbeats_b32", "nbeats", "N-BEATS, batch 32", "tables.NBeats", 120, 24, 256, 12, of=(32, 120)),
    _own("pointnet_1024", "pointnet", "PointNet", "points.PointNet", 40, of=(1, 3, 1024)),
    _own(
        "gcn_2000", "gcn", "GCN, 2000 nodes", "points.Gcn", 256, 128, 128, 40,
        of={"nodes": NetworkInput((2000, 256)), "edges": NetworkInput((2, 10_000), 2000)},
    ),
    _own(
        "nerf_w256_2048", "nerf", "NeRF, 2048 points", "points.Nerf", 256,
        of={"place": NetworkInput((2048, 3)), "direction": NetworkInput((2048, 3))},
    ),
    _own("c3d_w32_8x56", "c3d", "C3D, half as wide", "volumes.c3d", 32, 101, of=(1, 3, 8, 56, 56)),
    _own("r3d_10_8x64", "resnet", "R3D-10, half as wide", "volumes.r3d", 32, 1, 400, of=(1, 3, 8, 64, 64)),
)  # fmt: skip

OWN = (*_CLASSIFIERS, *_DENSE, *_FOUND, *_SEQUENCES, *_ROWS)


def make_own(own: OwnNetwork) -> "torch.nn.Module":
    """Builds the network, with the initial weights that torch gives it.

    Raises:
        MissingExtraError: torch is not installed.
    """
    import costmodel.onnx_io.torch_export  # noqa: F401  # raises MissingExtraError where torch is missing

    file, _, builder = own.builder.partition(".")
    module = import_module(f"costmodel.training.corpora.nets.{file}")
    made: torch.nn.Module = getattr(module, builder)(*own.arguments, **own.options)
    return made


def _write(own: OwnNetwork, path: Path) -> None:
    made = make_own(own)
    import torch

    from costmodel.onnx_io.torch_export import write_module
    from costmodel.training.corpora.nets.weights import initialise_any

    initialise_any(made, seed=zlib.crc32(own.name.encode()))
    example = {
        key: torch.zeros(spec.shape, dtype=torch.int64 if spec.below else torch.float32)
        for key, spec in own.inputs.items()
    }
    write_module(made, example, path)


RECIPES = (*(Recipe(own.name, own.family, own.title, partial(_write, own)) for own in OWN), *FROM_TRANSFORMERS)
