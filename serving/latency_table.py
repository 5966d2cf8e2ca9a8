"""Tables of latencies: what each choice of each block of a search space costs.

A network's latency is then a sum of entries, so that a search may look it up, or differentiate it: the expected latency
of a network whose choices are random is the sum of entries times their probabilities (ProxylessNAS, Cai et al., 2019).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from costmodel.composition import Cost, compose
from costmodel.decomposition import Piece
from costmodel.errors import ArtefactError
from costmodel.groups import read_bytes
from costmodel.in_place import pressure
from costmodel.sequence import LayerSequence
from costmodel.serving.networks import price_sequences, uncertainty_of
from costmodel.serving.placing import placed
from costmodel.serving.predictor import Predictor

__all__ = ["LatencyTable", "latency_table"]

_FORMAT = 1


@dataclass(frozen=True)
class LatencyTable:
    """The cost of each choice of each block, in microseconds, on one system.

    Attributes:
        system: Its name.
        version: Of the regressor that answered for what is not measured.
        blocks: Their names.
        choices: Of each block the names of its choices.
        latency_us: Shape [num_blocks, most_choices]; NaN where a block has fewer choices.
        interval_us: Where each lies with probability `interval_level`, shape [num_blocks, most_choices, 2].
        interval_level: For example 0.9.
        fixed_us: What every network has besides.
    """

    system: str
    version: str
    blocks: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    latency_us: np.ndarray
    interval_us: np.ndarray
    interval_level: float
    fixed_us: float

    def networks_us(self, picks: np.ndarray) -> np.ndarray:
        """Latencies of networks, shape [num_networks].

        Args:
            picks: For each network and block the position of its choice, shape [num_networks, num_blocks].

        Raises:
            ValueError: A choice is not there.
        """
        picks = np.atleast_2d(picks)
        if picks.shape[1] != len(self.blocks):
            raise ValueError(f"{picks.shape[1]} choices for {len(self.blocks)} blocks: give one for each")
        if (picks < 0).any() or (picks >= [len(choices) for choices in self.choices]).any():
            raise ValueError("a choice is not in the table: give positions in `choices`")
        return np.asarray(self.fixed_us + self.latency_us[np.arange(len(self.blocks)), picks].sum(axis=1))

    def save(self, path: str | Path) -> None:
        """Write it as arrays of numbers (npz) that execute nothing when they are read."""
        told = {
            "format": _FORMAT, "system": self.system, "version": self.version, "blocks": self.blocks,
            "choices": self.choices, "interval_level": self.interval_level, "fixed_us": self.fixed_us,
        }  # fmt: skip
        into = BytesIO()
        np.savez(into, told=np.array(json.dumps(told)), latency_us=self.latency_us, interval_us=self.interval_us)
        Path(path).write_bytes(into.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "LatencyTable":
        """What `save` wrote.

        Raises:
            ArtefactError: It is no such file, or of a newer format.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                told = json.loads(str(arrays["told"]))
                if told.pop("format") > _FORMAT:
                    raise ArtefactError(f"{path} is a latency table of a newer format: upgrade costmodel")
                told["blocks"], told["choices"] = tuple(told["blocks"]), tuple(map(tuple, told["choices"]))
                return cls(**told, latency_us=arrays["latency_us"], interval_us=arrays["interval_us"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
            raise ArtefactError(f"{path} is no latency table ({error}): save one again") from error


def latency_table(
    predictor: Predictor,
    blocks: Mapping[str, Mapping[str, Sequence[LayerSequence]]],
    fixed: Sequence[LayerSequence] = (),
    *,
    measured: bool = True,
) -> LatencyTable:
    """The table of a search space.

    What a layer costs depends a little on how many weights are around it: they are taken to be those of a network of
    average choices.

    Args:
        predictor: Of the system.
        blocks: For each block, the layers of each of its choices; there may be none.
        fixed: What every network has besides.
        measured: Whether to use measurements.

    Raises:
        HoleError: A layer has no cost.
        ValueError: A block has no choices.
    """
    if not blocks or not all(blocks.values()):
        raise ValueError("a table needs at least one block, and each block a choice")
    reads = [[sum(map(read_bytes, layers)) for layers in choices.values()] for choices in blocks.values()]
    footprint = float(sum(map(read_bytes, fixed)) + sum(sum(read) / len(read) for read in reads))
    every = [*fixed, *(layer for choices in blocks.values() for layers in choices.values() for layer in layers)]
    costs = iter(_placed(predictor, every, footprint, measured=measured))
    fixed_us = sum(next(costs).latency_us for _ in fixed)
    most = max(map(len, blocks.values()))
    latencies, intervals = np.full((len(blocks), most), np.nan), np.full((len(blocks), most, 2), np.nan)
    known = uncertainty_of(predictor)
    for row, choices in enumerate(blocks.values()):
        for column, layers in enumerate(choices.values()):
            of_choice = [next(costs) for _ in layers]
            latencies[row, column], intervals[row, column] = compose(of_choice, uncertainty=known)
    regression = predictor.regression
    return LatencyTable(
        system=predictor.system.name,
        version=regression.id.version if regression else "none",
        blocks=tuple(blocks),
        choices=tuple(tuple(choices) for choices in blocks.values()),
        latency_us=latencies,
        interval_us=intervals,
        interval_level=regression.bundle.calibration.level if regression else 0.9,
        fixed_us=fixed_us,
    )


def _placed(predictor: Predictor, layers: Sequence[LayerSequence], footprint: float, *, measured: bool) -> list[Cost]:
    """The cost of each layer among others."""
    costs = price_sequences(predictor, layers, footprint, measured=measured)
    if predictor.regression is None:
        return costs
    bundle = predictor.regression.bundle
    pieces = [Piece(layer, tuple(map(str, range(len(layer.layers)))), ()) for layer in layers]
    under = pressure(footprint, predictor.system.host)
    in_place = placed(pieces, costs, bundle.measured_in_place, bundle.predicted_in_place, under)
    return [cost for cost in in_place if cost is not None]
