"""A MobileNetV3-like search space, written twice: in costmodel's layers, to price it, and in torch, to build it.

A network is a stem, six blocks, and a head. For each block a search chooses kernel and expansion, or skips the block
if it changes no size.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnxruntime as ort
import torch
from torch import nn

from costmodel import CostModel, constant, layer, weight
from costmodel.onnx_io.torch_export import export_module
from costmodel.synthetic.described_layers import LayerSpec

__all__ = ["BLOCKS", "CHOICES", "SKIP", "Block", "Choice", "MobileNet", "fixed_layers", "print_found", "space"]


@dataclass(frozen=True)
class Choice:
    """A choice for a block: kernel size of its depthwise convolution, and factor by which it expands the channels."""

    kernel: int
    expansion: int

    def __str__(self) -> str:
        """Short name, such as "k3e6"."""
        return f"k{self.kernel}e{self.expansion}"


@dataclass(frozen=True)
class Block:
    """The fixed properties of a block: size of its input image, input and output channels, stride."""

    size: int
    inputs: int
    outputs: int
    stride: int

    @property
    def residual(self) -> bool:
        """Whether the input of the block is added to its output."""
        return self.stride == 1 and self.inputs == self.outputs


IMAGE, STEM, CLASSES = 96, 16, 10
CHOICES = tuple(Choice(kernel, expansion) for kernel in (3, 5, 7) for expansion in (3, 4, 6))
SKIP = "skip"
BLOCKS = (
    Block(48, 16, 24, 2), Block(24, 24, 24, 1), Block(24, 24, 40, 2), Block(12, 40, 40, 1), Block(12, 40, 80, 2),
    Block(6, 80, 80, 1),
)  # fmt: skip


def _layers(block: Block, choice: Choice) -> list[LayerSpec]:
    """Describes a block in costmodel's layers, without batch normalisation, which export folds into convolutions."""
    wide, after = block.inputs * choice.expansion, block.size // block.stride
    pad, window = choice.kernel // 2, [choice.kernel] * 2
    inner, outer = (1, wide, block.size, block.size), (1, wide, after, after)
    layers = [
        layer("Conv", (1, block.inputs, block.size, block.size), weight(wide, block.inputs, 1, 1), weight(wide)),
        layer("HardSwish", inner),
        layer(
            "Conv", inner, weight(wide, 1, *window), weight(wide), group=wide, pads=[pad] * 4,
            strides=[block.stride] * 2,
        ),
        layer("HardSwish", outer),
        layer("Conv", outer, weight(block.outputs, wide, 1, 1), weight(block.outputs)),
    ]  # fmt: skip
    if block.residual:
        shape = (1, block.outputs, after, after)
        layers.append(layer("Add", shape, shape))
    return layers


def space() -> dict[str, dict[str, list[LayerSpec] | None]]:
    """Returns the choices of each block by name, in the form that `CostModel.latency_table` takes."""
    found: dict[str, dict[str, list[LayerSpec] | None]] = {}
    for place, block in enumerate(BLOCKS):
        choices: dict[str, list[LayerSpec] | None] = {str(choice): _layers(block, choice) for choice in CHOICES}
        if block.residual:
            choices[SKIP] = None
        found[f"block{place}"] = choices
    return found


def fixed_layers() -> list[list[LayerSpec]]:
    """Returns stem and head, which every network has."""
    last = BLOCKS[-1].outputs
    size = BLOCKS[-1].size // BLOCKS[-1].stride
    stem = (1, STEM, IMAGE // 2, IMAGE // 2)
    return [
        [
            layer("Conv", (1, 3, IMAGE, IMAGE), weight(STEM, 3, 3, 3), weight(STEM), pads=[1] * 4, strides=[2, 2]),
            layer("HardSwish", stem),
        ],
        [
            layer("ReduceMean", (1, last, size, size), constant(-1, -2), keepdims=1),
            layer("Reshape", (1, last, 1, 1), constant(1, last)),
            layer("Gemm", (1, last), weight(CLASSES, last), weight(CLASSES), transB=1),
        ],
    ]


class _Inverted(nn.Module):
    """A block with one choice, in torch: an inverted residual with a depthwise convolution."""

    def __init__(self, block: Block, choice: Choice) -> None:
        super().__init__()
        wide = block.inputs * choice.expansion
        self.residual = block.residual
        self.layers = nn.Sequential(
            nn.Conv2d(block.inputs, wide, 1), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, wide, choice.kernel, block.stride, choice.kernel // 2, groups=wide),
            nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, block.outputs, 1), nn.BatchNorm2d(block.outputs),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the output of the block, shape [batch, outputs, size / stride, size / stride]."""
        made = self.layers(x)
        return x + made if self.residual else made


class MobileNet(nn.Module):
    """A network with one or several choices for each block; several are summed with the weights given to `forward`."""

    def __init__(self, chosen: Sequence[Sequence[str]]) -> None:
        """Builds the network.

        Args:
            chosen: Names of the choices of each block.
        """
        super().__init__()
        by_name: Mapping[str, Choice] = {str(choice): choice for choice in CHOICES}
        self.stem = nn.Sequential(nn.Conv2d(3, STEM, 3, 2, 1), nn.BatchNorm2d(STEM), nn.Hardswish())
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Identity() if name == SKIP else _Inverted(block, by_name[name]) for name in names)
            for block, names in zip(BLOCKS, chosen, strict=True)
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(BLOCKS[-1].outputs, CLASSES))

    def forward(self, x: torch.Tensor, shares: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
        """Returns logits, shape [batch, CLASSES].

        Args:
            x: Images, shape [batch, 3, IMAGE, IMAGE].
            shares: Weights of the choices of each block, shape [num_choices]; None for the first choice of each block.
        """
        x = self.stem(x)
        for place, choices in enumerate(self.blocks):
            if shares is None:
                x = choices[0](x)
            else:
                x = sum(share * choice(x) for share, choice in zip(shares[place], choices, strict=True))
        return self.head(x)


def print_found(cost_model: CostModel, names: Sequence[str], parts_us: float, source: str) -> None:
    """Prints the latency of a network as predicted from its parts, as predicted for the model, and as measured here.

    Args:
        cost_model: Cost model of this machine.
        names: Name of the choice of each block.
        parts_us: Latency in microseconds that the search predicted from the parts of the network.
        source: Where `parts_us` comes from, such as "the table".
    """
    network = MobileNet([[name] for name in names]).eval()
    whole = cost_model.predict(network, example=torch.zeros(1, 3, IMAGE, IMAGE))
    low, high = (us / 1e3 for us in whole.interval_us)
    print(f"predicted from {source:<10} {parts_us / 1e3:.3f} ms")
    print(f"predicted as a model      {whole.latency_us / 1e3:.3f} ms, {low:.3f} to {high:.3f} ms")
    print(f"measured here             {_measured_us(network) / 1e3:.3f} ms")


def _measured_us(module: nn.Module, runs: int = 200) -> float:
    """Measures a network in ONNX Runtime with one thread; returns the 0.2 quantile of the runs in microseconds."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    image = torch.zeros(1, 3, IMAGE, IMAGE)
    content = export_module(module, {"x": image}).SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feeds = {"x": image.numpy()}
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        session.run(None, feeds)
        times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.quantiles(times, n=10)[1]
