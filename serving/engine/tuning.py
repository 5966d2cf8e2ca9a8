"""Answers requests about the settings of a model: estimates it on all systems of a host and ranks the settings."""

from dataclasses import replace

from costmodel.errors import TuningError, UnknownSystemError
from costmodel.estimate.estimate import Estimate
from costmodel.partition.decomposition import Decomposition
from costmodel.serving.capacity import shapes_of_batch
from costmodel.serving.engine.sources import Deadline
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.tuning.conclusion import conclude
from costmodel.serving.tuning.nearest import systems_of_host
from costmodel.serving.tuning.pricing import price_settings
from costmodel.serving.tuning.question import TuneQuestion
from costmodel.serving.tuning.settings import FLOAT32, INT8, Space
from costmodel.serving.wire.answers import TunedAnswer
from costmodel.serving.wire.requests import Tuning
from costmodel.systems.catalogue import listed_price
from costmodel.systems.system import System
from costmodel.traffic.objective import LatencyObjective

__all__ = ["tune_document"]


def tune_document(
    service: Service,
    owner: str,
    digest: str,
    name: str,
    question: PredictionOptions,
    tuning: Tuning,
    deadline: Deadline,
    *,
    fixed: bool,
) -> TunedAnswer:
    """Returns how an uploaded model should run on the host of a system.

    Args:
        service: Service that estimates the model.
        owner: Name of the token that the request came with.
        digest: Digest of the model.
        name: Name of the model, for the answer and messages.
        question: Parameters of the predictions, for one sample: the input shapes are multiplied for batches.
        tuning: What the settings are chosen for.
        deadline: Deadline of the request; no estimate begins after it.
        fixed: Whether the model is a graph of layers, whose runtime, level and batch are those of the graph.

    Raises:
        CostModelError: The model cannot be read, or no setting can be priced.
        Problem: The deadline has passed.
    """
    loaded = service.predictors.of(question.system, question.version)
    system = loaded.predictor.system
    if system.host is None:
        raise UnknownSystemError(
            f"nothing is known about the hardware of {system.name}, only latencies that were imported: name a measured "
            "system of that machine"
        )
    asked = _question(tuning, listed_price(system.name, system.host))
    if fixed and (tuning.max_batch > 1 or tuning.int8 is not None):
        raise TuningError(f"{name} is a graph of layers, which has one batch size and no int8 version: send ONNX files")
    systems = systems_of_host(
        [service.predictors.of(known).predictor.system for known in service.predictors.systems], system.host
    )
    # The model itself is estimated first, so that one that cannot be read is refused as such.
    _, cut = _estimate(service, owner, digest, name, question, loaded)
    own = INT8 if _is_quantised(cut) else FLOAT32
    digests = {own: digest}
    if tuning.int8 is not None:
        if own == INT8:
            raise TuningError(f"{name} is quantised itself: send a float32 model, and its int8 version as int8")
        digests[INT8] = tuning.int8
    space = Space(
        (system.runtime,) if fixed else _runtimes(systems), system.host.effective_cpus, tuple(digests),
        asked.batches if tuning.max_batch > 1 else (1,), asked.side_by_side,
        (system.settings.level,) if fixed else None,
    )  # fmt: skip

    def estimate(of: System, level: str, precision: str, batch: int) -> tuple[Estimate, Decomposition]:
        deadline.check()
        version = question.version if of.name == system.name else None
        options = replace(
            question, system=of.name, version=version, level=level, batch=batch if tuning.max_batch > 1 else None,
            shapes=tuple(sorted(shapes_of_batch(dict(question.shapes), batch).items())),
        )  # fmt: skip
        predictor = loaded if of.name == system.name else service.predictors.of(of.name)
        return _estimate(service, owner, digests[precision], name, options, predictor)

    prices = price_settings(space, systems, estimate, asked)
    found = conclude(name, system.host, space, asked, prices, paths=dict.fromkeys(digests, f"{name}.onnx"))
    known = service.uploads.find(owner, digest)
    fields = {member: getattr(found, member) for member in found.__dataclass_fields__}
    return TunedAnswer(**fields, digest=digest if known is None else f"sha256:{known.stem}")


def _question(tuning: Tuning, listed: float | None) -> TuneQuestion:
    slo = None if tuning.slo_us is None else LatencyObjective(tuning.percentile, tuning.slo_us)
    price = listed if tuning.usd_per_hour is None else tuning.usd_per_hour
    return TuneQuestion(tuning.objective, slo, price, tuning.max_batch)


def _estimate(
    service: Service, owner: str, digest: str, name: str, question: PredictionOptions, loaded: LoadedPredictor
) -> tuple[Estimate, Decomposition]:
    cut, warnings = service.decompose(owner, digest, name, question)
    return loaded.predictor.estimate(cut, measured=question.measured, warnings=warnings), cut


def _is_quantised(cut: Decomposition) -> bool:
    """Returns whether a layer of a model reads or writes 8-bit integers."""
    return any(value.type.dtype in ("int8", "uint8") for one in cut.unique.values() for value in one.values)


def _runtimes(systems: list[System]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.runtime for one in sorted(systems, key=lambda one: one.runtime)))
