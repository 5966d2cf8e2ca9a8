"""The errors that costmodel raises on purpose.

The class hierarchy, and the situation in which each error is raised::

    CostModelError
    ├── ModelError             the model file or graph cannot be used
    │   ├── ModelReadError     the file is not ONNX, truncated, empty, a directory, or has weights outside its folder
    │   │   └── UnknownModelError  the client never sent the model that it refers to, or the service forgot it
    │   ├── ShapeError         a dimension of a tensor is missing, zero, negative or impossibly large
    │   └── LoweringError      the runtime refuses the model: unknown operator, opset too new, cyclic
    ├── SystemNameError        the name of a system has characters that a name must not have
    ├── SystemMismatchError    this host is not the system that the user named
    ├── UnknownSystemError     no system of the given name is known, or nothing has been measured on it
    ├── HostBusyError          another process is measuring on this host
    ├── ClusterError           a Dask cluster cannot be reached or was lost, or has no machine of the requested system
    ├── BusyError              all processes that could handle the request are busy
    ├── MeasurementError       a runnable network failed to run, or its timing gave no usable latency
    ├── StoreError             the store cannot be opened, is of a newer format, is not a store, or is full
    ├── ObservationError       a latency that users observed, or a value reported with it, is out of range
    ├── IdempotencyKeyError    a client used an idempotency key again for a request with other content
    ├── SuiteError             a benchmark suite is incomplete, inconsistent, or cannot be written
    ├── EvaluationFileError    a spec is invalid, or a result folder is damaged or belongs to another spec
    ├── KubernetesError        the API server of a Kubernetes cluster does not respond, or does not list its nodes
    ├── DataFileError          a file of results or latencies cannot be read or written, or is inconsistent
    ├── ArtefactError          the files of a trained regressor cannot be loaded, or are for another feature schema
    │   └── UnknownVersionError    the system has no trained regressor of the requested version
    ├── TrainingError          there is not enough data to train on
    ├── RuleError              a composition rule does not exist, fails, or returns no share for each sequence
    ├── TrafficError           a question about traffic contradicts itself, or has no answer
    ├── TuningError            a question about settings contradicts itself, or no setting can be tried
    ├── UnpricedLayersError    layers are neither measured nor predictable, so there is no estimate
    └── MissingExtraError      an optional dependency is not installed

Each message is one sentence that names its subject and says what to do next; the command line prints the message and
exits with status 1.
"""

import copyreg
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ArtefactError",
    "BusyError",
    "ClusterError",
    "CostModelError",
    "DataFileError",
    "EvaluationFileError",
    "HostBusyError",
    "IdempotencyKeyError",
    "KubernetesError",
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
    "TrafficError",
    "TrainingError",
    "TuningError",
    "UnknownModelError",
    "UnknownSystemError",
    "UnknownVersionError",
    "UnpricedLayersError",
]


# Number of layers that a message names; the error has all of them.
_MOST_NAMED = 5


class CostModelError(Exception):
    """Base class of all errors that costmodel raises on purpose.

    The message is always a single line. Instances can be pickled, because worker processes send them to their parent.
    """

    def __init__(self, message: str = "") -> None:
        """Stores `message` as one line; the model names and runtime messages that it quotes may contain line breaks."""
        super().__init__(" ".join(message.split()))

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception.__reduce__` would call __init__ with the message, which subclasses with other parameters refuse.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ModelError(CostModelError):
    """A model cannot be used."""


class ModelReadError(ModelError):
    """A file is not a readable ONNX model."""


class UnknownModelError(ModelReadError):
    """A client refers to a model that it never sent to the service, or that the service has forgotten."""


class ShapeError(ModelError):
    """A tensor has a dimension that is missing, zero, negative or impossibly large."""


class LoweringError(ModelError):
    """The runtime refuses a model: an operator is unknown, the opset is too new, or the graph has a cycle."""


class SystemNameError(CostModelError):
    """A system's name has characters that a name must not have."""


class SystemMismatchError(CostModelError):
    """This host is not the system that the user named."""


class UnknownSystemError(CostModelError):
    """No system of the given name is known, or nothing has been measured on it."""


class HostBusyError(CostModelError):
    """Another process is measuring latencies on this host."""


class MeasurementError(CostModelError):
    """A runnable network failed to run, or its timing gave no usable latency."""


class StoreError(CostModelError):
    """The results store cannot be opened, is of a newer format, is not a store, or is full."""


class ObservationError(CostModelError):
    """A latency that users observed, or a value reported with it, is out of range."""


class IdempotencyKeyError(CostModelError):
    """A client used an idempotency key again for a request with other content."""


class SuiteError(CostModelError):
    """A benchmark suite is incomplete, inconsistent, or cannot be written."""


class EvaluationFileError(CostModelError):
    """The spec of an evaluation is invalid, or a result folder is damaged or belongs to another spec."""


class KubernetesError(CostModelError):
    """The API server of a Kubernetes cluster does not respond, or does not allow its nodes to be listed."""


class DataFileError(CostModelError):
    """A file of results or latencies cannot be read or written, or its contents contradict each other."""


class ArtefactError(CostModelError):
    """The files of a trained regressor cannot be loaded, or are for another feature schema."""


class UnknownVersionError(ArtefactError):
    """A system has no trained regressor of the requested version."""


class TrainingError(CostModelError):
    """There is not enough data to train on."""


class RuleError(CostModelError):
    """A composition rule that the user named does not exist, fails, or does not return a share for each sequence."""


class TrafficError(CostModelError):
    """A question about traffic contradicts itself, or the model has no latency to answer it with."""


class TuningError(CostModelError):
    """A question about settings contradicts itself, or no setting of the model can be priced or measured."""


class UnpricedLayersError(CostModelError):
    """A model has layers that are neither measured nor predictable.

    Attributes:
        layers: Names of the layers that have no cost, in execution order.
    """

    def __init__(self, model: str, system: str, layers: Sequence[str]) -> None:
        """Writes a message that names the first layers of `model` that have no cost on `system`."""
        self.layers = tuple(layers)
        more = f" and {len(layers) - _MOST_NAMED} more" if len(layers) > _MOST_NAMED else ""
        named = ", ".join(layers[:_MOST_NAMED]) + more
        super().__init__(
            f"{model} has {len(layers)} layers without a cost on {system}: {named}; measure its file with "
            f"`costmodel bench FILE --system {system}`, train a regressor with `costmodel train --system {system}`, or "
            "ask for a partial answer with --partial"
        )


class BusyError(CostModelError):
    """All processes that could handle a request are busy."""


class ClusterError(CostModelError):
    """A Dask cluster cannot be reached or was lost, or it has no machine of a system that was requested."""


class MissingExtraError(CostModelError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        """Writes a message that `what` needs an optional dependency, and how to install it with the extra `extra`."""
        super().__init__(f"{what} needs an optional dependency: {self.installation_of(extra)}")

    @staticmethod
    def installation_of(extra: str) -> str:
        """Returns how to install the dependencies of an extra, with the versions that costmodel is tested with."""
        return f"pip install -c constraints.txt --editable '.[{extra}]' in costmodel's folder"
