"""Prices the models of a bulk request, which name their layers by positions in one shared list."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from costmodel.ir.sequence import LayerSequence
from costmodel.serving.networks import Networks, price_networks
from costmodel.serving.predictor import Predictor

__all__ = ["BulkModel", "price_bulk"]


@dataclass(frozen=True, slots=True)
class BulkModel:
    """One model of a bulk request: its name, and the positions of its layers in the list of layers of the request."""

    name: str
    layers: Sequence[int]


def price_bulk(
    predictor: Predictor, layers: Sequence[LayerSequence | str], models: Sequence[BulkModel], *, measured: bool
) -> tuple[Networks | None, list[int], dict[int, str]]:
    """Prices many models, each of which names its layers by their positions in one shared list.

    Args:
        predictor: Predictor to use.
        layers: List of layers: each a layer sequence, or the reason why it is not valid.
        models: The models.
        measured: Whether to use measurements; without them every cost is predicted.

    Returns:
        The latencies of the models that can be priced (None if there are none), the positions of these models in
        `models`, in the same order, and the reasons why the other models cannot be priced, by their positions in
        `models`.
    """
    refused = {place: reason for place, reason in enumerate(layers) if isinstance(reason, str)}
    valid = {place: layer for place, layer in enumerate(layers) if isinstance(layer, LayerSequence)}
    priced = _priced(predictor, valid, refused, measured=measured)
    problems = _problems(models, refused, priced)
    kept = [place for place in range(len(models)) if place not in problems]
    if not kept:
        return None, [], problems
    blocks = [[valid[place]] if priced[place] else [] for place in range(len(layers))]
    found = price_networks(predictor, blocks, [models[place].layers for place in kept], measured=measured)
    return found, kept, problems


def _priced(
    predictor: Predictor, layers: Mapping[int, LayerSequence], refused: dict[int, str], *, measured: bool
) -> np.ndarray:
    """Returns, for each position in a list of layers, whether the layer there has a cost on the predictor's system.

    Args:
        predictor: Predictor to use.
        layers: Valid layers by position in the list.
        refused: Reasons why the other layers cannot be used, by position; those that have no cost are added.
        measured: Whether to use measurements; without them every cost is predicted.

    Returns:
        Mask of shape [num_layers].
    """
    costs = predictor.costs({one.signature: one for one in layers.values()}, measured=measured)
    priced = np.zeros(len(layers) + len(refused), dtype=bool)
    for place, layer in layers.items():
        cost = costs.get(layer.signature)
        if cost is not None and math.isfinite(cost.interval_us[1]):
            priced[place] = True
        else:
            refused[place] = f"({layer.kind}) has no cost on this system"
    return priced


def _problems(models: Sequence[BulkModel], refused: Mapping[int, str], priced: np.ndarray) -> dict[int, str]:
    """Returns the reasons why models of a bulk request cannot be priced, by their positions in `models`.

    Models that can be priced are left out.

    Args:
        models: The models.
        refused: Reasons why layers of the request cannot be used, by position of the layer.
        priced: Whether each layer of the request has a cost, shape [num_layers].
    """
    lengths = np.fromiter((len(model.layers) for model in models), np.int64, len(models))
    rows = np.fromiter(chain.from_iterable(model.layers for model in models), np.int64, int(lengths.sum()))
    valid = np.append(priced, False)[np.minimum(rows, len(priced))]
    invalid = np.unique(np.repeat(np.arange(len(models)), lengths)[~valid])
    found = {place: f"{models[place].name} has no layers" for place in np.flatnonzero(lengths == 0).tolist()}
    for place in invalid.tolist():
        model = models[place]
        layer = next(layer for layer in model.layers if layer >= len(priced) or not priced[layer])
        if layer >= len(priced):
            found[place] = f"{model.name} names the layer {layer}, and {len(priced)} are listed"
        else:
            found[place] = f"{model.name}: layer {layer} {refused[layer]}"
    return found
