"""The NAS corpus: networks drawn at random from the search spaces of neural architecture search."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

from costmodel.training.corpora.modern_network import NetworkInput
from costmodel.training.corpora.recipe import Recipe

if TYPE_CHECKING:
    import torch

__all__ = ["NETS", "RECIPES", "SPACES", "DrawnNetwork", "Space", "make_drawn"]

_T = TypeVar("_T")

_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # NAS-Bench-201 cell: (from node, to node)
_CELL_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
_DARTS_OPERATIONS = (
    "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5", "max_pool_3x3", "avg_pool_3x3", "skip_connect",
)  # fmt: skip
_WIDTHS = (0.65, 0.8, 1.0)
_VOCABULARY = 30522

_DartsCell = tuple[tuple[tuple[str, int], ...], ...]


@dataclass(frozen=True, slots=True)
class DrawnNetwork:
    """A network drawn from a search space; two are equal if they agree in everything but their titles.

    Attributes:
        inputs: Inputs of the network, by name.
        arguments: Keyword arguments of the function that builds networks of the search space.
        title: Description of the network, which lists the choices that were drawn.
    """

    inputs: Mapping[str, NetworkInput]
    arguments: Mapping[str, object]
    title: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Space:
    """A search space and the function that draws networks from it.

    Attributes:
        name: Name of the search space, and of three things: the family of its networks, the module in `nets` that
            defines them, and the function there that builds them.
        prefix: Prefix of the names of the drawn networks.
        count: Number of networks to draw.
        draw: Function that draws one network with a given random number generator.
    """

    name: str
    prefix: str
    count: int
    draw: Callable[[Random], DrawnNetwork]


def _pick(random: Random, options: Sequence[_T]) -> _T:
    # `Random.random` is the only method documented to give the same numbers in every version of Python.
    return options[int(random.random() * len(options))]


def _image(size: int) -> dict[str, NetworkInput]:
    return {"input": NetworkInput((1, 3, size, size))}


def _nas_bench_201(random: Random) -> DrawnNetwork:
    while True:
        cell = [_pick(random, _CELL_OPERATIONS) for _ in _EDGES]
        if edges := _on_a_path(cell):
            break
    nodes = [
        "".join(f"|{cell[i]}~{source}" for i, (source, into) in enumerate(_EDGES) if into == node) for node in (1, 2, 3)
    ]
    return DrawnNetwork(_image(32), {"edges": edges}, "|+".join(nodes) + "|")


def _on_a_path(cell: Sequence[str]) -> dict[tuple[int, int], str]:
    """Returns the operations of a NAS-Bench-201 cell that affect its output, by their edge (from node, to node).

    These are the ones on a path from the cell's input to its output; the others carry constants or unused values.
    """
    edges = {edge: operation for edge, operation in zip(_EDGES, cell, strict=True) if operation != "none"}
    reached, used = {0}, {3}
    for source, node in edges:
        if source in reached:
            reached.add(node)
    for source, node in reversed(edges):
        if node in used:
            used.add(source)
    return {edge: edges[edge] for edge in edges if edge[0] in reached and edge[1] in used}


def _mobilenet_v3(random: Random) -> DrawnNetwork:
    size, width = _pick(random, range(128, 225, 16)), _pick(random, (1.0, 1.2))
    stages = tuple(
        tuple((_pick(random, (3, 5, 7)), _pick(random, (3, 4, 6))) for _ in range(_pick(random, (2, 3, 4))))
        for _ in range(5)
    )
    title = f"OFA-MobileNetV3, {size} px, width {width}, kernel x expansion {', '.join(map(_crossed, stages))}"
    return DrawnNetwork(_image(size), {"width": width, "stages": stages}, title)


def _resnet(random: Random) -> DrawnNetwork:
    size, stem, deep_stem = _pick(random, range(128, 225, 16)), _pick(random, _WIDTHS), _pick(random, (True, False))
    stages = tuple(
        (
            _pick(random, _WIDTHS),
            tuple(_pick(random, (0.2, 0.25, 0.35)) for _ in range(base + _pick(random, (0, 1, 2)))),
        )
        for base in (2, 2, 4, 2)
    )
    stage_texts = (f"{width} x ({' '.join(map(str, expansions))})" for width, expansions in stages)
    title = (
        f"OFA-ResNet50, {size} px, {'deep' if deep_stem else 'shallow'} stem x {stem}, "
        f"width x expansions {', '.join(stage_texts)}"
    )
    return DrawnNetwork(_image(size), {"stem": stem, "deep_stem": deep_stem, "stages": stages}, title)


def _darts(random: Random) -> DrawnNetwork:
    size, cells, channels = (
        _pick(random, range(96, 225, 32)), _pick(random, (5, 6, 8)), _pick(random, (24, 32, 40, 48))
    )  # fmt: skip
    normal, reduction = _darts_cell(random), _darts_cell(random)
    title = (
        f"DARTS, {size} px, {cells} cells of {channels} channels, "
        f"normal {_cell_text(normal)}, reduction {_cell_text(reduction)}"
    )
    return DrawnNetwork(
        _image(size), {"cells": cells, "channels": channels, "normal": normal, "reduction": reduction}, title
    )


def _darts_cell(random: Random) -> _DartsCell:
    """Draws a DARTS cell of four nodes; each adds up two operations on the outputs of two different earlier nodes."""
    return tuple(
        tuple((_pick(random, _DARTS_OPERATIONS), source) for source in _pick(random, [*combinations(range(node), 2)]))
        for node in range(2, 6)
    )


def _cell_text(cell: _DartsCell) -> str:
    return " ".join("+".join(f"{operation}~{source}" for operation, source in node) for node in cell)


def _vit(random: Random) -> DrawnNetwork:
    depth, size, width = (
        _pick(random, range(6, 14)), _pick(random, (160, 224)), _pick(random, (192, 216, 240, 320, 384))
    )  # fmt: skip
    heads = (3, 4) if width <= 240 else (5, 6, 7)  # those of AutoFormer's tiny and of its small supernet
    layers = tuple((_pick(random, heads), _pick(random, (3.0, 3.5, 4.0))) for _ in range(depth))
    title = f"AutoFormer, {size} px, width {width}, heads x MLP ratio {_crossed(layers)}"
    return DrawnNetwork(_image(size), {"size": size, "width": width, "layers": layers}, title)


def _bert(random: Random) -> DrawnNetwork:
    length, width = _pick(random, (16, 32, 64, 128, 256)), _pick(random, (256, 384, 512, 640))
    full = width // 64
    layers = tuple(
        (_pick(random, range(full // 2, full + 1)), _pick(random, (2, 3, 4))) for _ in range(_pick(random, range(2, 9)))
    )
    title = f"DynaBERT, {length} tokens, width {width}, heads x FFN ratio {_crossed(layers)}"
    arguments = {"vocabulary": _VOCABULARY, "length": length, "width": width, "layers": layers}
    return DrawnNetwork({"input_ids": NetworkInput((1, length), below=_VOCABULARY)}, arguments, title)


def _crossed(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{first}x{second:g}" for first, second in pairs)


SPACES = (
    Space("nas_bench_201", "nb201", 50, _nas_bench_201),
    Space("mobilenet_v3_space", "mbv3", 50, _mobilenet_v3),
    Space("elastic_resnet", "ofa_resnet", 25, _resnet),
    Space("darts_space", "darts", 25, _darts),
    Space("elastic_vit", "autoformer", 30, _vit),
    Space("elastic_bert", "dynabert", 30, _bert),
)


def _draw(space: Space) -> Iterator[tuple[str, DrawnNetwork]]:
    random = Random(space.name)  # noqa: S311 - a choice of networks, no secret
    drawn: list[DrawnNetwork] = []
    while len(drawn) < space.count:
        net = space.draw(random)
        if net not in drawn:
            yield f"{space.prefix}_{len(drawn):03}", net
            drawn.append(net)


def make_drawn(space: str, net: DrawnNetwork) -> "torch.nn.Module":
    """Builds a drawn network, with the initial weights that torch gives it.

    Args:
        space: Name of the search space of the network.
        net: The drawn network.

    Raises:
        MissingExtraError: torch is not installed.
    """
    import costmodel.onnx_io.torch_export  # noqa: F401  # raises MissingExtraError where torch is missing

    module = import_module(f"costmodel.training.corpora.nets.{space}")
    made: torch.nn.Module = getattr(module, space)(**net.arguments)
    return made


def _write(name: str, space: str, net: DrawnNetwork, path: Path) -> None:
    made = make_drawn(space, net)
    import torch

    from costmodel.onnx_io.torch_export import write_module
    from costmodel.training.corpora.nets.weights import initialise

    initialise(made, seed=zlib.crc32(name.encode()))
    example = {
        key: torch.zeros(spec.shape, dtype=torch.int64 if spec.below else torch.float32)
        for key, spec in net.inputs.items()
    }
    write_module(made, example, path)


NETS = {space.name: dict(_draw(space)) for space in SPACES}
RECIPES = tuple(
    Recipe(name, space, net.title, partial(_write, name, space, net))
    for space, nets in NETS.items()
    for name, net in nets.items()
)
