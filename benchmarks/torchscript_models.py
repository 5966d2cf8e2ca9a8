"""Writes models by torch's older exporter, which traces them (TorchScript), for `others.py judge`.

    pip install --no-deps --target PACKAGES pytorchcv
    PYTHONPATH=PACKAGES python benchmarks/torchscript_models.py FOLDER
    costmodel bench FOLDER --threads 1
    python benchmarks/others.py judge SYSTEM FOLDER

Most ONNX files of today's hubs come from that exporter; the corpora use the newer one. It writes no shapes of inner
values, computes sizes in the graph and spells normalisations and activations out. Weights are random.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from other_packages import TOKENS, vision_absent_but_importable
from torch import Tensor, nn

_OPSET = 17

# Makes a module, and an example of each of its inputs.
Recipe = tuple[Callable[[], nn.Module], Mapping[str, Tensor]]


class _ByPosition(nn.Module):
    """A model of Transformers that takes its inputs by position and returns the first of its outputs."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: Tensor) -> Any:
        """Returns the first output."""
        return self.model(**dict(zip(self.names, inputs, strict=True)))[0]


def of_transformers(name: str, example: Mapping[str, Tensor], kind: str = "", **options: Any) -> Recipe:
    """Returns a model of Transformers.

    Args:
        name: Name of its configuration, without "Config".
        example: An example of each input.
        kind: Name of its class; by default that of the configuration with "Model".
        options: Fields of the configuration.
    """

    def make() -> nn.Module:
        package = import_module("transformers")
        config = getattr(package, f"{name}Config")(**options)
        config._attn_implementation = "eager"
        config.use_cache = False
        return _ByPosition(getattr(package, kind or f"{name}Model")(config), list(example))

    return make, example


def of_pytorchcv(name: str, size: int) -> Recipe:
    """Returns a network of pytorchcv for square images."""

    def make() -> nn.Module:
        with vision_absent_but_importable():
            return import_module("pytorchcv.model_provider").get_model(name, pretrained=False)

    return make, {"x": torch.rand(1, 3, size, size)}


def own(make: Callable[[], nn.Module], *shape: int, tokens: bool = False) -> Recipe:
    """Returns a module of this file, on numbers or on token ids."""
    return make, {"x": torch.randint(0, TOKENS, shape) if tokens else torch.rand(*shape)}


def text(batch: int, length: int) -> dict[str, Tensor]:
    """Returns token ids with a mask of ones."""
    shape = (batch, length)
    return {"input_ids": torch.randint(0, TOKENS, shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}


def image(size: int) -> dict[str, Tensor]:
    """Returns a square image."""
    return {"pixel_values": torch.rand(1, 3, size, size)}


class Tagger(nn.Module):
    """Tags tokens by two bidirectional recurrent layers."""

    def __init__(self, kind: str, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 128)
        self.recurrence = getattr(nn, kind)(128, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 20)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of each token's tags."""
        return self.head(self.recurrence(self.embedding(x))[0])


class Encoder(nn.Module):
    """Classifies tokens by torch's own transformer layers."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, activation="gelu", norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of the classes."""
        return self.head(self.layers(self.embedding(x)).mean(1))


class Reader(nn.Module):
    """Reads a line of text: convolutions, then a recurrence over the columns (CRNN)."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        sizes = (1, 32, 64, 128, 128)
        for (before, after), pool in zip(pairwise(sizes), ((2, 2), (2, 2), (2, 1), (2, 1)), strict=True):
            parts += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(pool)]
        self.columns = nn.Sequential(*parts)
        self.recurrence = nn.LSTM(256, 128, bidirectional=True)
        self.head = nn.Linear(256, 80)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the logarithms of the probabilities of letters at each column."""
        columns = self.columns(x)
        batch, channels, height, width = columns.shape
        steps = columns.reshape(batch, channels * height, width).permute(2, 0, 1)
        return self.head(self.recurrence(steps)[0]).log_softmax(-1)


class Highway(nn.Module):
    """A bank of convolutions, highway layers and a GRU, as in Tacotron."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = nn.ModuleList(nn.Conv1d(80, 128, width, padding=width // 2) for width in range(1, 9))
        self.project = nn.Conv1d(1024, 80, 3, padding=1)
        self.gates = nn.ModuleList(nn.Linear(80, 160) for _ in range(4))
        self.recurrence = nn.GRU(80, 128, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a feature vector for each frame of a spectrogram."""
        bank = torch.cat([layer(x)[..., : x.shape[-1]].relu() for layer in self.bank], 1)
        y = (self.project(bank) + x).transpose(1, 2)
        for gate in self.gates:
            value, weight = gate(y).chunk(2, -1)
            y = weight.sigmoid() * value.relu() + (1 - weight.sigmoid()) * y
        return self.recurrence(y)[0]


class StyleTransfer(nn.Module):
    """Repaints an image: instance normalisation, reflected borders, enlarged by repetition."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()

        def block(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
            convolution = nn.Conv2d(before, after, size, stride)
            return nn.Sequential(
                nn.ReflectionPad2d(size // 2), convolution, nn.InstanceNorm2d(after, affine=True), nn.ReLU()
            )

        self.down = nn.Sequential(block(3, width, 9), block(width, 2 * width, 3, 2), block(2 * width, 4 * width, 3, 2))
        self.middle = nn.ModuleList(
            nn.Sequential(block(4 * width, 4 * width, 3), block(4 * width, 4 * width, 3)) for _ in range(5)
        )
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2), block(4 * width, 2 * width, 3),
            nn.Upsample(scale_factor=2), block(2 * width, width, 3),
            nn.ReflectionPad2d(4), nn.Conv2d(width, 3, 9),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns the image in the new style."""
        y = self.down(x)
        for block in self.middle:
            y = y + block(y)
        return self.up(y)


class SkeletonGraph(nn.Module):
    """Recognises movements: convolutions over time and products with an adjacency matrix (ST-GCN)."""

    def __init__(self, width: int = 64, joints: int = 25) -> None:
        super().__init__()
        self.adjacency = nn.Parameter(torch.rand(3, joints, joints))
        sizes = (3, width, width, 2 * width, 2 * width)
        self.spatial = nn.ModuleList(nn.Conv2d(i, 3 * o, 1) for i, o in pairwise(sizes))
        self.temporal = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, (9, 1), padding=(4, 0))) for o in sizes[1:]
        )
        self.head = nn.Linear(2 * width, 60)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of the movements."""
        for spatial, temporal in zip(self.spatial, self.temporal, strict=True):
            y = spatial(x)
            batch, channels, frames, joints = y.shape
            parts = y.view(batch, 3, channels // 3, frames, joints)
            x = temporal(torch.einsum("nkctv,kvw->nctw", parts, self.adjacency)).relu()
        return self.head(x.mean((2, 3)))


class PointNet(nn.Module):
    """Classifies clouds of points."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 64, 128, 1024)
        self.points = nn.Sequential(
            *(part for i, o in pairwise(sizes) for part in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()))
        )
        self.head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 40))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of the classes."""
        return self.head(self.points(x).max(-1)[0])


class Translator(nn.Module):
    """Eight unrolled steps of a recurrent decoder, which attends to an encoder; each step reads the same weights."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.cell = nn.LSTMCell(2 * width, width)
        self.head = nn.Linear(width, 500)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of the tokens at each step."""
        memory, (hidden, state) = self.encoder(self.embedding(x))
        hidden, state = hidden[0], state[0]
        steps = []
        for step in range(8):
            weights = torch.softmax((memory @ hidden[..., None])[..., 0], -1)
            context = (weights[..., None] * memory).sum(1)
            hidden, state = self.cell(torch.cat([self.embedding(x[:, step]), context], -1), (hidden, state))
            steps.append(self.head(hidden))
        return torch.stack(steps, 1)


_TEXT = {
    "vocab_size": TOKENS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # fmt: skip
_VISION = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3, "intermediate_size": 768}
_SPEECH = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
_FEW_KEYS = {**_TEXT, "intermediate_size": 704, "num_key_value_heads": 2}
_WINDOWS = {"embed_dim": 48, "depths": [2, 2, 4, 2], "num_heads": [2, 4, 8, 16]}
_STAGES = {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 6, 2]}


def recipes() -> dict[str, Recipe]:
    """Returns the recipes of all models, by name."""
    return {
        "ts_bert": of_transformers("Bert", text(1, 64), **_TEXT),
        "ts_roberta": of_transformers("Roberta", text(2, 96), **_TEXT),
        "ts_distilbert": of_transformers(
            "DistilBert", text(1, 100), vocab_size=TOKENS, dim=256, n_layers=4, n_heads=4, hidden_dim=1024
        ),
        "ts_electra": of_transformers("Electra", text(1, 80), embedding_size=128, **_TEXT),
        "ts_deberta": of_transformers("DebertaV2", text(1, 64), **_TEXT),
        "ts_mpnet": of_transformers("MPNet", text(1, 64), **_TEXT),
        "ts_albert": of_transformers("Albert", text(1, 64), embedding_size=128, **_TEXT),
        "ts_squeezebert": of_transformers("SqueezeBert", text(1, 64), embedding_size=256, **_TEXT),
        "ts_layoutlm": of_transformers(
            "LayoutLM", {**text(1, 96), "bbox": torch.randint(0, 900, (1, 96, 4)).sort(-1)[0]}, **_TEXT
        ),
        "ts_gpt2": of_transformers(
            "GPT2", text(1, 64), "GPT2LMHeadModel", vocab_size=TOKENS, n_embd=256, n_layer=4, n_head=4
        ),
        "ts_gpt_neox": of_transformers("GPTNeoX", text(1, 64), **_TEXT),
        "ts_bloom": of_transformers("Bloom", text(1, 64), vocab_size=TOKENS, hidden_size=256, n_layer=4, n_head=4),
        "ts_llama": of_transformers("Llama", text(1, 64), **_FEW_KEYS),
        "ts_qwen2": of_transformers("Qwen2", text(1, 64), **_FEW_KEYS),
        "ts_t5_encoder": of_transformers(
            "T5", {"input_ids": text(1, 64)["input_ids"]}, "T5EncoderModel",
            vocab_size=TOKENS, d_model=256, d_kv=64, d_ff=1024, num_layers=4, num_heads=4,
        ),
        "ts_clip_text": of_transformers("CLIPText", text(1, 77), **_TEXT),
        "ts_vit": of_transformers("ViT", image(160), image_size=160, **_VISION),
        "ts_deit": of_transformers("DeiT", image(160), image_size=160, **_VISION),
        "ts_beit": of_transformers("Beit", image(160), image_size=160, **_VISION),
        "ts_clip_vision": of_transformers("CLIPVision", image(160), image_size=160, patch_size=16, **_VISION),
        "ts_yolos": of_transformers("Yolos", image(224), image_size=[224, 224], num_detection_tokens=50, **_VISION),
        "ts_dinov2": of_transformers("Dinov2", image(140), image_size=140, patch_size=14, **_VISION),
        "ts_dpt": of_transformers(
            "DPT", image(192), "DPTForDepthEstimation", image_size=192, backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[48, 96, 192, 192], fusion_hidden_size=64, **{**_VISION, "num_hidden_layers": 4},
        ),
        "ts_swin": of_transformers("Swin", image(224), **_WINDOWS),
        "ts_swinv2": of_transformers("Swinv2", image(256), image_size=256, window_size=8, **_WINDOWS),
        "ts_convnextv2": of_transformers("ConvNextV2", image(160), **_STAGES),
        "ts_segformer": of_transformers("Segformer", image(224), "SegformerForSemanticSegmentation"),
        "ts_pvt": of_transformers("PvtV2", image(224), image_size=224),
        "ts_mobilevit": of_transformers("MobileViT", image(256)),
        "ts_mobilenet_v2": of_transformers("MobileNetV2", image(192)),
        "ts_regnet": of_transformers(
            "RegNet", image(160), embedding_size=32, hidden_sizes=[48, 96, 192, 384], depths=[1, 2, 4, 2],
            groups_width=24,
        ),
        "ts_levit": of_transformers("Levit", image(224)),
        "ts_poolformer": of_transformers("PoolFormer", image(160), depths=[2, 2, 4, 2]),
        "ts_wav2vec2": of_transformers(
            "Wav2Vec2", {"input_values": torch.rand(1, 16000)}, conv_dim=[128] * 7, **_SPEECH
        ),
        "ts_hubert": of_transformers("Hubert", {"input_values": torch.rand(1, 12000)}, conv_dim=[96] * 7, **_SPEECH),
        "ts_ast": of_transformers("AST", {"input_values": torch.rand(1, 256, 128)}, max_length=256, **_VISION),
        **{
            f"ts_{name}": of_pytorchcv(name, size)
            for name, size in {
                "resnet50": 224, "shufflenetv2_w1": 224, "ghostnet": 224, "hrnet_w18_small_v1": 224,
                "mnasnet_b1": 224, "efficientnet_b1": 192, "densenet169": 224, "senet16": 224,
                "centernet_resnet18_coco": 256,
            }.items()
        },
        "ts_lstm_tagger": own(lambda: Tagger("LSTM", 128), 2, 60, tokens=True),
        "ts_gru_tagger": own(lambda: Tagger("GRU", 96), 1, 40, tokens=True),
        "ts_encoder": own(Encoder, 2, 50, tokens=True),
        "ts_encoder_short": own(Encoder, 1, 30, tokens=True),
        "ts_reader": own(Reader, 1, 1, 32, 160),
        "ts_highway": own(Highway, 1, 80, 120),
        "ts_style": own(StyleTransfer, 1, 3, 160, 160),
        "ts_skeleton": own(SkeletonGraph, 1, 3, 64, 25),
        "ts_pointnet": own(PointNet, 2, 3, 1024),
        "ts_translator": own(Translator, 1, 30, tokens=True),
    }  # fmt: skip


def main(folder: Path) -> None:
    """Writes the models, each to a subfolder of its name; those that exist are left as they are."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.backends.mha.set_fastpath_enabled(False)  # the exporter does not know its fused operator
    torch.manual_seed(0)
    for name, (make, example) in recipes().items():
        path = folder / name / f"{name}.onnx"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        inputs = tuple(example.values())
        with torch.no_grad():
            torch.onnx.export(
                make().eval(), inputs, str(path), dynamo=False, opset_version=_OPSET, input_names=list(example)
            )
        print(name, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
