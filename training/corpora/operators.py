"""The corpus of operators: a model for each operator of ONNX Runtime's CPU provider, with the operator in many sizes.

These models are training data only and belong to no family. They give a regressor examples of every operator, even of
those that are expensive in one family of models and absent from all others.
"""

from functools import partial
from pathlib import Path

from costmodel.training.corpora.operator_instances import (
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
from costmodel.training.corpora.operator_instances.instance import Sweep, model_of
from costmodel.training.corpora.recipe import Recipe

__all__ = ["RECIPES", "SWEEPS"]

_MODULES = (
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

# Keys are operator names with their domain; a suffix after a slash distinguishes several entries of one operator.
SWEEPS: dict[str, Sweep] = {name: sweep for module in _MODULES for name, sweep in module.SWEEPS.items()}


def _file_name(name: str) -> str:
    # The prefix avoids a clash with a user's model of the same name, such as "attention".
    short = name.lower().removeprefix("com.").removeprefix("ai.onnx.")
    return "op_" + short.replace(".", "_").replace("/", "_")


def _write(name: str, path: Path) -> None:
    path.write_bytes(model_of(SWEEPS[name], name).SerializeToString(deterministic=True))


RECIPES = tuple(
    Recipe(_file_name(name), "", f"{name}, {sweep.count} sizes", partial(_write, name))
    for name, sweep in SWEEPS.items()
)
