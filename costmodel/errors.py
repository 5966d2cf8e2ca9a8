"""Every error that costmodel raises on purpose.

The tree, and when each happens::

    CostModelError
    ├── ModelError             the model file or graph cannot be used
    │   ├── ModelReadError     not ONNX, truncated, empty, a directory, weights outside its folder
    │   │   └── UnknownModelError  it is referred to, and its owner never sent it, or it was forgotten
    │   ├── ShapeError         a dimension is missing, zero, negative or absurd
    │   └── LoweringError      the runtime refuses it: unknown operator, opset too new, cyclic
    ├── SystemNameError        the name of a system has characters that a name must not have
    ├── SystemMismatchError    this host is not the system that was named
    ├── UnknownSystemError     nothing is known or measured under that name
    ├── HostBusyError          another process is measuring on this host
    ├── BusyError              everything that could do it is at work already
    ├── MeasurementError       a network failed to run, or gave no usable time
    ├── StoreError             the store cannot be opened, is of a newer format, is no store, or is full
    ├── ObservationError       a reported latency, or what comes with it, is out of range
    ├── IdempotencyKeyError    an idempotency key was used before with another content
    ├── BrickError             a folder of bricks or a results file is incomplete or inconsistent
    ├── ArtefactError          a trained regressor cannot be loaded here, or has another feature schema
    │   └── UnknownVersionError    there is no trained regressor of that version
    ├── TrainingError          there is not enough data to train on
    ├── RuleError              a composition rule of the user's own is not there, or does not do what a rule does
    ├── HoleError              layers that are neither measured nor predictable: there is no estimate
    └── MissingExtraError      an optional dependency is not installed

The message is one sentence that names its subject and says what to do next; the CLI prints it and exits 1.
"""

import copyreg
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ArtefactError",
    "BrickError",
    "BusyError",
    "CostModelError",
    "HoleError",
    "HostBusyError",
    "IdempotencyKeyError",
    "LoweringError",
    "MeasurementError",
    "MissingExtraError",
    "ModelError",
    "ModelReadError",
    "ObservationError",
    "RuleError",
    "ShapeError",
    "StoreError",
    "SystemMismatchError",
    "SystemNameError",
    "TrainingError",
    "UnknownModelError",
    "UnknownSystemError",
    "UnknownVersionError",
]


class CostModelError(Exception):
    """Base of everything that costmodel raises on purpose.

    The message is one line, whatever it quotes; the error crosses process borders (workers lower and measure).
    """

    def __init__(self, message: str = "") -> None:
        """Keep `message` on one line: names in a model, and a runtime's own words, may hold line breaks."""
        super().__init__(" ".join(message.split()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way back calls __init__ with the message, which subclasses with other parameters refuse.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ModelError(CostModelError):
    """A model cannot be used."""


class ModelReadError(ModelError):
    """A file is not a readable ONNX model."""


class UnknownModelError(ModelReadError):
    """A model is referred to that its owner never sent, or that was forgotten."""


class ShapeError(ModelError):
    """A tensor has a dimension that is missing, zero, negative or absurd."""


class LoweringError(ModelError):
    """The runtime refuses to build the model."""


class SystemNameError(CostModelError):
    """A system's name has characters that a name must not have."""


class SystemMismatchError(CostModelError):
    """This host is not the system that was named."""


class UnknownSystemError(CostModelError):
    """Nothing is known under that system name."""


class HostBusyError(CostModelError):
    """Another process is measuring on this host."""


class MeasurementError(CostModelError):
    """A network failed to run, or gave no usable time."""


class StoreError(CostModelError):
    """The results store cannot be used."""


class ObservationError(CostModelError):
    """A reported latency, or what comes with it, is out of range."""


class IdempotencyKeyError(CostModelError):
    """An idempotency key was used before with another content."""


class BrickError(CostModelError):
    """A folder of bricks or a results file is incomplete or inconsistent."""


class ArtefactError(CostModelError):
    """A trained regressor cannot be loaded here."""


class UnknownVersionError(ArtefactError):
    """A system has no trained regressor of that version."""


class TrainingError(CostModelError):
    """There is not enough data to train on."""


class RuleError(CostModelError):
    """A composition rule of the user's own is not there, or does not do what a rule does."""


class HoleError(CostModelError):
    """Layers that are neither measured nor predictable.

    Attributes:
        layers: The names of the layers that have no cost, in execution order.
    """

    def __init__(self, model: str, system: str, layers: Sequence[str]) -> None:
        """Name every layer of `model` that has no cost on `system`."""
        self.layers = tuple(layers)
        super().__init__(
            f"{model} has {len(layers)} layers without a cost on {system}: {', '.join(layers)}; measure its file with "
            f"`costmodel bench FILE --system {system}`, train a regressor with `costmodel train --system {system}`, or "
            "ask for a partial answer with --partial"
        )


class BusyError(CostModelError):
    """Everything that could do it is at work already."""


class MissingExtraError(CostModelError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        """Say what needs `extra` and the exact line that installs it."""
        super().__init__(f"{what} needs an optional dependency: pip install 'costmodel[{extra}]'")
