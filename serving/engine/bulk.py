"""Many models in one request: each has its answer or its error."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costmodel.checking import check_sequence
from costmodel.errors import CostModelError, ModelError
from costmodel.sequence import LayerSequence
from costmodel.serving.answering import Answerer
from costmodel.serving.engine.settings import EngineSettings
from costmodel.serving.engine.sources import Deadline, explained, source_of
from costmodel.serving.service import Item, Question, Service
from costmodel.serving.wire.graphs import KnownSequence, WireSequence
from costmodel.serving.wire.problems import Problem, reason_of
from costmodel.serving.wire.requests import BulkItem, BulkRequest

__all__ = ["bulk_document"]

_ITEMS: TypeAdapter[list[BulkItem]] = TypeAdapter(list[BulkItem])


def bulk_document(
    service: Service, answerer: Answerer, owner: str, system: str, asked: BulkRequest, settings: EngineSettings
) -> dict[str, Any]:
    """The answer to a bulk request.

    Args:
        service: What answers.
        answerer: What prices, for all models of the request.
        owner: Who asks.
        system: Name of the system.
        asked: The request.
        settings: How much one request may ask for.

    Raises:
        Problem: It asks for too much.
        CostModelError: No answer can be given now.
    """
    _check_amount(asked, settings)
    items, answers = _checked_items(asked.items)
    references = sum(len(item.layers or ()) for item in items.values())
    if references > settings.max_references:
        raise _too_much("references to layers", references, settings.max_references)
    layers = _layers(service, asked.layers)
    listed = [place for place, item in items.items() if item.layers is not None]
    networks, kept, problems = service.price_items(
        answerer, layers, [Item(_name(items[place], place), items[place].layers or ()) for place in listed],
        measured=asked.measured,
    )  # fmt: skip
    for place, reason in problems.items():
        answers[listed[place]] = {"name": _name(items[listed[place]], listed[place]), "error": reason}
    if networks is not None:
        columns = (networks.latency_us.tolist(), networks.interval_us.tolist())
        shares = {source: share.tolist() for source, share in networks.coverage.items()}
        for row, place in enumerate(kept):
            answers[listed[place]] = {
                "name": _name(items[listed[place]], listed[place]),
                "latency_us": columns[0][row],
                "interval_us": columns[1][row],
                "coverage": {source: share[row] for source, share in shares.items()},
            }
    until = Deadline.after(settings.request_s)
    version = answerer.predictor.regression.id.version if answerer.predictor.regression else None
    question = Question(system, version, measured=asked.measured)
    for place, item in items.items():
        if item.layers is None:
            answers[place] = _model_answer(
                service, answerer, owner, item, _name(item, place), question, until, settings
            )
    regression = answerer.predictor.regression
    return {
        "system": system,
        "predictor": asdict(regression.id) if regression else {"name": "none", "version": "none"},
        "interval_level": regression.bundle.calibration.level if regression else 0.9,
        "failed": sum("error" in answers[place] for place in range(len(asked.items))),
        "items": [answers[place] for place in range(len(asked.items))],
    }


def _check_amount(asked: BulkRequest, settings: EngineSettings) -> None:
    for what, found, most in (
        ("items", len(asked.items), settings.max_items),
        ("layers", len(asked.layers), settings.max_listed_layers),
    ):
        if found > most:
            raise _too_much(what, found, most)


def _too_much(what: str, found: int, most: int) -> Problem:
    return Problem(413, "body-too-large", f"{found} {what} are more than {most}: ask in several requests")


def _name(item: BulkItem, place: int) -> str:
    return item.name or f"item {place}"


def _checked_items(given: list[dict[str, Any]]) -> tuple[dict[int, BulkItem], dict[int, dict[str, Any]]]:
    """The items that are sound, and the answers to those that are not, by position."""
    try:
        items = dict(enumerate(_ITEMS.validate_python(given)))
        refused: dict[int, dict[str, Any]] = {}
    except ValidationError:  # look for it one by one
        items, refused = {}, {}
        for place, one in enumerate(given):
            try:
                items[place] = BulkItem.model_validate(one)
            except ValidationError as error:
                name = one.get("name")
                refused[place] = {"name": name if isinstance(name, str) else f"item {place}", "error": explained(error)}
    for place, item in list(items.items()):
        if sum(of is not None for of in (item.layers, item.model, item.graph)) != 1:
            refused[place] = {"name": _name(item, place), "error": "give one of layers, model and graph"}
            del items[place]
    return items, refused


def _layers(service: Service, given: Sequence[Mapping[str, Any]]) -> list[LayerSequence | str]:
    """Each layer that is listed, or why it is none."""
    found: list[LayerSequence | str] = []
    wanted: dict[int, str] = {}
    for place, one in enumerate(given):
        try:
            if "signature" in one:
                wanted[place] = KnownSequence.model_validate(one).signature
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
        for place, signature in wanted.items():
            found[place] = known.get(signature, found[place])
    return found


def _model_answer(
    service: Service, answerer: Answerer, owner: str, item: BulkItem, name: str, question: Question, until: Deadline,
    settings: EngineSettings,
) -> dict[str, Any]:  # fmt: skip
    try:
        until.check()
        digest = source_of(service, owner, item, settings)
        estimate, _ = service.estimate(owner, digest, name, question, answerer)
    except (CostModelError, Problem) as error:
        return {"name": name, "error": reason_of(error)}
    return {
        "name": name,
        "latency_us": estimate.latency_us,
        "interval_us": list(estimate.interval_us),
        "coverage": estimate.coverage,
    }
