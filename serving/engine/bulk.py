"""Answers bulk requests: each of the many models in one request gets an estimate or an error."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costmodel.errors import CostModelError, ModelError
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.engine.sources import Deadline, explained, source_of
from costmodel.serving.loaded_predictors import LoadedPredictor
from costmodel.serving.service import BulkModel, PredictionOptions, Service
from costmodel.serving.validation.sequences import check_sequence
from costmodel.serving.wire.graphs import KnownSequence, WireSequence
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.serving.wire.requests import BulkItem, BulkRequest

__all__ = ["bulk_document"]

_ITEMS: TypeAdapter[list[BulkItem]] = TypeAdapter(list[BulkItem])


def bulk_document(
    service: Service, loaded: LoadedPredictor, owner: str, system: str, request: BulkRequest, settings: EngineSettings
) -> dict[str, Any]:
    """Returns the answer to a bulk request, as JSON-serialisable data.

    Args:
        service: Service that prices the models.
        loaded: Predictor used for all models of the request.
        owner: Name of the token owner who sent the request.
        system: Name of the system.
        request: The bulk request.
        settings: Limits on the size and the duration of one request.

    Raises:
        Problem: The request exceeds one of the limits.
        CostModelError: The service cannot answer now.
    """
    _check_amount(request, settings)
    items, answers = _checked_items(request.items)
    references = sum(len(item.layers or ()) for item in items.values())
    if references > settings.max_references:
        raise _too_much("references to layers", references, settings.max_references)
    layers = _layers(service, request.layers)
    layered = [position for position, item in items.items() if item.layers is not None]
    networks, priced, problems = service.price_items(
        loaded, layers, [BulkModel(_name(items[position], position), items[position].layers or ()) for position in
        layered], measured=request.measured,
    )  # fmt: skip
    for position, reason in problems.items():
        answers[layered[position]] = {"name": _name(items[layered[position]], layered[position]), "error": reason}
    if networks is not None:
        columns = (networks.latency_us.tolist(), networks.interval_us.tolist())
        shares = {source: share.tolist() for source, share in networks.coverage.items()}
        for row, position in enumerate(priced):
            answers[layered[position]] = {
                "name": _name(items[layered[position]], layered[position]),
                "latency_us": columns[0][row],
                "interval_us": columns[1][row],
                "coverage": {source: share[row] for source, share in shares.items()},
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
        "predictor": asdict(regression.id) if regression else {"name": "none", "version": "none"},
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


def _checked_items(given: list[dict[str, Any]]) -> tuple[dict[int, BulkItem], dict[int, dict[str, Any]]]:
    """Returns the valid items, and the error entries of the invalid ones, both by position in the request."""
    try:
        items = dict(enumerate(_ITEMS.validate_python(given)))
        errors: dict[int, dict[str, Any]] = {}
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
    """Returns each listed layer as a layer sequence, or the reason why it is not usable."""
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
) -> dict[str, Any]:  # fmt: skip
    try:
        deadline.check()
        digest = source_of(service, owner, item, settings)
        estimate, _ = service.estimate(owner, digest, name, question, loaded)
    except (CostModelError, Problem) as error:
        return {"name": name, "error": reason_of(error)}
    return {
        "name": name,
        "latency_us": estimate.latency_us,
        "interval_us": list(estimate.interval_us),
        "coverage": estimate.coverage,
    }
