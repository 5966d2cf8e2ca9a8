"""Many models in one request: each has its answer or its error."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from costmodel.errors import CostModelError
from costmodel.sequence import LayerSequence
from costmodel.serving.answering import Answerer
from costmodel.serving.http.bodies import explained, parsed
from costmodel.serving.http.desk import Deadline, Desk
from costmodel.serving.http.graphs import KnownSequence, WireGraph, WireSequence
from costmodel.serving.http.problems import Problem, reason_of
from costmodel.serving.http.requests import BulkItem, BulkRequest
from costmodel.serving.service import Item, Question

__all__ = ["bulk_answer", "digest_of"]

_SEQUENCES: TypeAdapter[list[WireSequence]] = TypeAdapter(list[WireSequence])
_ITEMS: TypeAdapter[list[BulkItem]] = TypeAdapter(list[BulkItem])


def digest_of(desk: Desk, model: str | None, graph: WireGraph | None) -> str:
    """The content hash of a model that is referred to, or of a graph, which is known from then on.

    Raises:
        Problem: The graph has too many layers.
    """
    if model is not None:
        return model
    assert graph is not None
    if len(graph.layers) > desk.settings.max_layers:
        raise Problem(
            422, "model-refused",
            f"the graph has {len(graph.layers)} layers, and {desk.settings.max_layers} are accepted: send parts of it",
        )  # fmt: skip
    return desk.service.keep_graph(graph.model_dump(by_alias=True))


def bulk_answer(desk: Desk, body: bytes, version: str | None) -> bytes:
    """The answer to a bulk request.

    Raises:
        Problem: It is none, or asks for too much.
        CostModelError: The system is not known.
    """
    asked = parsed(BulkRequest, body)
    settings = desk.settings
    for what, found, most in (
        ("items", len(asked.items), settings.max_items),
        ("layers", len(asked.layers), settings.max_layers),
    ):
        if found > most:
            raise Problem(413, "body-too-large", f"{found} {what} are more than {most}: ask in several requests")
    system = desk.system(asked.system)
    items, answers = _checked_items(asked.items)
    layers = _layers(desk, asked.layers)
    listed = [place for place, item in items.items() if item.layers is not None]
    answerer = desk.service.answerers.of(system, version)
    networks, kept, problems = desk.service.price_items(
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
    until = desk.deadline()
    for place, item in items.items():
        if item.layers is None:
            answers[place] = _bulk_model(
                desk, item, _name(item, place), Question(system, version, measured=asked.measured), answerer, until
            )
    regression = answerer.predictor.regression
    document = {
        "system": system,
        "predictor": asdict(regression.id) if regression else {"name": "none", "version": "none"},
        "interval_level": regression.bundle.calibration.level if regression else 0.9,
        "failed": sum("error" in answers[place] for place in range(len(asked.items))),
        "items": [answers[place] for place in range(len(asked.items))],
    }
    return json.dumps(document).encode()


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


def _layers(desk: Desk, given: Sequence[Mapping[str, Any]]) -> list[LayerSequence | str]:
    """Each layer that is listed, or why it is none."""
    found: list[LayerSequence | str] = []
    wanted: dict[int, str] = {}
    with suppress(ValueError):  # all at once, where nothing is wrong with any
        return [one.to_sequence() for one in _SEQUENCES.validate_python(given)]
    for place, one in enumerate(given):
        try:
            if "signature" in one:
                wanted[place] = KnownSequence.model_validate(one).signature
                found.append("is not known here: send the layer itself")
            else:
                found.append(WireSequence.model_validate(one).to_sequence())
        except ValidationError as error:
            found.append(f"is no layer sequence ({explained(error)})")
        except ValueError as error:
            found.append(str(error))
    if wanted:
        known = desk.service.store.sequences(wanted.values())
        for place, signature in wanted.items():
            found[place] = known.get(signature, found[place])
    return found


def _bulk_model(
    desk: Desk, item: BulkItem, name: str, question: Question, answerer: Answerer, until: Deadline
) -> dict[str, Any]:
    try:
        until.check()
        digest = digest_of(desk, item.model, item.graph)
        estimate, _ = desk.service.estimate(digest, name, question, answerer)
    except (CostModelError, Problem) as error:
        return {"name": name, "error": reason_of(error)}
    return {
        "name": name,
        "latency_us": estimate.latency_us,
        "interval_us": list(estimate.interval_us),
        "coverage": estimate.coverage,
    }
