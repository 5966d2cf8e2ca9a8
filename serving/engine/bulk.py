"""Answers bulk requests: requests about many models, each of which gets an estimate or an error of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costmodel.errors import CostModelError, ModelError
from costmodel.estimate.estimate import PredictorId
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.bulk_pricing import BulkModel, price_bulk
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.engine.sources import Deadline, explained, source_of
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.service import PredictionOptions, Service
from costmodel.serving.validation.sequences import check_sequence
from costmodel.serving.wire.answers import BulkAnswer, BulkItemAnswer
from costmodel.serving.wire.graphs import KnownSequence, WireSequence
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.serving.wire.requests import BulkItem, BulkRequest

__all__ = ["bulk_document"]

_ITEMS: TypeAdapter[list[BulkItem]] = TypeAdapter(list[BulkItem])


def bulk_document(
    service: Service, loaded: LoadedPredictor, owner: str, system: str, request: BulkRequest, settings: EngineSettings
) -> BulkAnswer:
    """Returns the answer to a bulk request (one about many models): an estimate or an error for each model.

    Args:
        service: Service that prices the models.
        loaded: Predictor used for all models of the request.
        owner: Name of the token that the request came with.
        system: Name of the system on which the models would run.
        request: The bulk request.
        settings: Settings of the engine, which limit the size and the duration of a request.

    Raises:
        Problem: The request exceeds one of the limits.
        CostModelError: The service fails, for example because the results store cannot be read.
    """
    _check_amount(request, settings)
    items, answers = _checked_items(request.items)
    references = sum(len(item.layers or ()) for item in items.values())
    if references > settings.max_references:
        raise _too_much("references to layers", references, settings.max_references)
    layers = _layers(service, request.layers)
    layered = [position for position, item in items.items() if item.layers is not None]
    models = [BulkModel(_name(items[position], position), items[position].layers or ()) for position in layered]
    networks, priced, problems = price_bulk(loaded.predictor, layers, models, measured=request.measured)
    for position, reason in problems.items():
        answers[layered[position]] = {"name": _name(items[layered[position]], layered[position]), "error": reason}
    if networks is not None:
        shares = (networks.coverage[source].tolist() for source in ("measured", "predicted", "extrapolated"))
        rows = zip(priced, networks.latency_us.tolist(), networks.interval_us.tolist(), *shares, strict=True)
        for position, latency_us, interval_us, measured, predicted, extrapolated in rows:
            answers[layered[position]] = {
                "name": _name(items[layered[position]], layered[position]),
                "latency_us": latency_us,
                "interval_us": interval_us,
                "coverage": {"measured": measured, "predicted": predicted, "extrapolated": extrapolated},
            }
    deadline = Deadline.after(settings.request_s)
    version = loaded.predictor.regression.id.version if loaded.predictor.regression else None
    question = PredictionOptions(system, version, measured=request.measured)
    for position, item in items.items():
        if item.layers is None:
            answers[position] = _model_answer(
                service, loaded, owner, item, _name(item, position), question, deadline, settings
            )
    regression = loaded.predictor.regression
    return {
        "system": system,
        "predictor": (regression.id if regression else PredictorId()).to_dict(),
        "interval_level": regression.bundle.calibration.level if regression else 0.9,
        "failed": sum("error" in answers[position] for position in range(len(request.items))),
        "items": [answers[position] for position in range(len(request.items))],
    }


def _check_amount(request: BulkRequest, settings: EngineSettings) -> None:
    for what, found, most in (
        ("items", len(request.items), settings.max_items),
        ("layers", len(request.layers), settings.max_listed_layers),
    ):
        if found > most:
            raise _too_much(what, found, most)


def _too_much(what: str, found: int, most: int) -> Problem:
    return Problem(413, "body-too-large", f"{found} {what} are more than {most}: ask in several requests")


def _name(item: BulkItem, position: int) -> str:
    return item.name or f"item {position}"


def _checked_items(given: list[dict[str, Any]]) -> tuple[dict[int, BulkItem], dict[int, BulkItemAnswer]]:
    """Validates the items (models) of a bulk request.

    Returns:
        Two dictionaries whose keys are positions in the request: the valid items, and the answers to the invalid items,
        which say what is wrong with them.
    """
    try:
        items = dict(enumerate(_ITEMS.validate_python(given)))
        errors: dict[int, BulkItemAnswer] = {}
    except ValidationError:  # validate one by one to find the invalid items
        items, errors = {}, {}
        for position, one in enumerate(given):
            try:
                items[position] = BulkItem.model_validate(one)
            except ValidationError as error:
                name = one.get("name")
                errors[position] = {
                    "name": name if isinstance(name, str) else f"item {position}",
                    "error": explained(error),
                }
    for position, item in list(items.items()):
        if sum(source is not None for source in (item.layers, item.model, item.graph)) != 1:
            errors[position] = {"name": _name(item, position), "error": "give one of layers, model and graph"}
            del items[position]
    return items, errors


def _layers(service: Service, given: Sequence[Mapping[str, Any]]) -> list[LayerSequence | str]:
    """Parses and validates the layers that a bulk request lists, each given as a layer sequence or its signature.

    Returns:
        For each of them, in the given order, the layer sequence, or the reason why it cannot be used.
    """
    found: list[LayerSequence | str] = []
    wanted: dict[int, str] = {}
    for position, one in enumerate(given):
        try:
            if "signature" in one:
                wanted[position] = KnownSequence.model_validate(one).signature
                found.append("is not known here: send the layer itself")
            else:
                sequence = WireSequence.model_validate(one).to_sequence()
                check_sequence(sequence)
                found.append(sequence)
        except ValidationError as error:
            found.append(f"is no layer sequence ({explained(error)})")
        except ModelError as error:
            found.append(f"makes no sense: {error}")
    if wanted:
        known = service.store.sequences(wanted.values())
        for position, signature in wanted.items():
            found[position] = known.get(signature, found[position])
    return found


def _model_answer(
    service: Service, loaded: LoadedPredictor, owner: str, item: BulkItem, name: str, question: PredictionOptions,
        deadline: Deadline,
    settings: EngineSettings,
) -> BulkItemAnswer:  # fmt: skip
    try:
        deadline.check()
        digest = source_of(service, owner, item, settings)
        estimate, _ = service.estimate(owner, digest, name, question, loaded)
    except (CostModelError, Problem) as error:
        return {"name": name, "error": reason_of(error)}
    return {
        "name": name,
        "latency_us": estimate.latency_us,
        "interval_us": estimate.interval_us,
        "coverage": estimate.coverage,
    }
