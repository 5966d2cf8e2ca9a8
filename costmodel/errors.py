"""Every error that costmodel raises on purpose.

The tree, and when each happens::

    CostModelError
    ├── ModelError             the model file or graph cannot be used
    │   ├── ModelReadError     not ONNX, truncated, empty, a directory, weights outside its folder
    │   │   └── UnknownModelError  the client never sent the model that it refers to, or the model was forgotten
    │   ├── ShapeError         a dimension is missing, zero, negative or absurd
    │   └── LoweringError      the runtime refuses it: unknown operator, opset too new, cyclic
    ├── SystemNameError        the name of a system has characters that a name must not have
    ├── SystemMismatchError    this host is not the system that was named
    ├── UnknownSystemError     nothing is known or measured under that name
    ├── HostBusyError          another process is measuring on this host
    ├── BusyError              all workers for the request are busy
    ├── MeasurementError       a network failed to run, or gave no usable time
    ├── StoreError             the store cannot be opened, is of a newer format, is no store, or is full
    ├── ObservationError       a reported latency, or what comes with it, is out of range
    ├── IdempotencyKeyError    an idempotency key was used before with another content
    ├── SuiteError             a benchmark suite is incomplete, inconsistent, or cannot be written
    ├── DataFileError          a file of results or latencies cannot be read or written, or contradicts itself
    ├── ArtefactError          a trained regressor cannot be loaded here, or has another feature schema
    │   └── UnknownVersionError    there is no trained regressor of that version
    ├── TrainingError          there is not enough data to train on
    ├── RuleError              a composition rule of the user does not exist, or breaks the contract of rules
    ├── UnpricedLayersError    layers are neither measured nor predictable, so there is no estimate
    └── MissingExtraError      an optional dependency is not installed

The message is one sentence that names its subject and says what to do next; the CLI prints it and exits 1.
"""

import copyreg
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ArtefactError",
    "BusyError",
    "CostModelError",
    "DataFileError",
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
    "SuiteError",
    "SystemMismatchError",
    "SystemNameError",
    "TrainingError",
    "UnknownModelError",
    "UnknownSystemError",
    "UnknownVersionError",
    "UnpricedLayersError",
]


class CostModelError(Exception):
    """Base class of all errors that costmodel raises on purpose.

    The message is one line, whatever it quotes. Instances can be pickled, because worker processes raise them too.
    """

    def __init__(self, message: str = "") -> None:
        """Joins `message` into one line: names in a model, and messages of a runtime, may contain line breaks."""
        super().__init__(" ".join(message.split()))

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception.__reduce__` would call __init__ with the message, which subclasses with other parameters refuse.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ModelError(CostModelError):
    """A model cannot be used."""


class ModelReadError(ModelError):
    """A file is not a readable ONNX model."""


class UnknownModelError(ModelReadError):
    """The client never sent the model that it refers to, or the service has forgotten the model."""


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


class SuiteError(CostModelError):
    """A benchmark suite is incomplete, inconsistent, or cannot be written."""


class DataFileError(CostModelError):
    """A file of results or latencies cannot be read or written, or contradicts itself."""


class ArtefactError(CostModelError):
    """A trained regressor cannot be loaded here."""


class UnknownVersionError(ArtefactError):
    """A system has no trained regressor of that version."""


class TrainingError(CostModelError):
    """There is not enough data to train on."""


class RuleError(CostModelError):
    """A composition rule of the user does not exist, or breaks the contract of rules."""


class UnpricedLayersError(CostModelError):
    """A model has layers that are neither measured nor predictable.

    Attributes:
        layers: Names of the layers that have no cost, in execution order.
    """

    def __init__(self, model: str, system: str, layers: Sequence[str]) -> None:
        """Names every layer of `model` that has no cost on `system`."""
        self.layers = tuple(layers)
        super().__init__(
            f"{model} has {len(layers)} layers without a cost on {system}: {', '.join(layers)}; measure its file with "
            f"`costmodel bench FILE --system {system}`, train a regressor with `costmodel train --system {system}`, or "
            "ask for a partial answer with --partial"
        )


class BusyError(CostModelError):
    """All workers that could do the job are busy."""


class MissingExtraError(CostModelError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        """Names what needs `extra`, and the exact command that installs it."""
        super().__init__(f"{what} needs an optional dependency: pip install 'costmodel[{extra}]'")
