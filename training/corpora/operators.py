"""The corpus of operators: a file for each that ONNX Runtime runs on CPUs, with layers of many sizes in it.

They are nobody's models. What trains on them has seen every operator, also one that is dear in a single family and
in no other.
"""

from functools import partial
from pathlib import Path

from costmodel.training.corpora.recipe import Recipe
from costmodel.training.corpora.sweep import (
    attention,
    classical,
    control,
    convolutions,
    elementwise,
    images,
    indexing,
    matrices,
    normalisations,
    opaque,
    quantised,
    recurrent,
    reductions,
    reshaping,
    signals,
)
from costmodel.training.corpora.sweep.instance import Sweep, model_of

__all__ = ["RECIPES", "SWEEPS"]

_ROOMS = (
    elementwise,
    convolutions,
    images,
    matrices,
    reductions,
    normalisations,
    reshaping,
    indexing,
    attention,
    recurrent,
    quantised,
    signals,
    classical,
    control,
    opaque,
)

# By the name of the operator, with the domain; after a slash, what sets an entry apart from another of that operator.
SWEEPS: dict[str, Sweep] = {name: sweep for room in _ROOMS for name, sweep in room.SWEEPS.items()}


def _file_name(name: str) -> str:
    # With a prefix, because somebody may well have a model that is called "attention".
    short = name.lower().removeprefix("com.").removeprefix("ai.onnx.")
    return "op_" + short.replace(".", "_").replace("/", "_")


def _write(name: str, path: Path) -> None:
    path.write_bytes(model_of(SWEEPS[name], name).SerializeToString(deterministic=True))


RECIPES = tuple(
    Recipe(_file_name(name), "", f"{name}, {sweep.count} sizes", partial(_write, name))
    for name, sweep in SWEEPS.items()
)
