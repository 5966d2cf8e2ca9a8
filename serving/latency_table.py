"""Latency tables: the cost of each choice that a search space offers for each block of a network.

The latency of a network is the sum of one table entry for each block. A search can look it up, or differentiate it:
the expected latency of a network whose choices are drawn at random is the sum of all entries, each times the
probability of its choice (ProxylessNAS, Cai et al., 2019).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from costmodel.atomic_write import atomic_file
from costmodel.errors import ArtefactError
from costmodel.ir.footprint import Footprint
from costmodel.ir.sequence import LayerSequence
from costmodel.serving.batch import Batch
from costmodel.serving.networks import refuse_unpriced
from costmodel.serving.predictor import Predictor

__all__ = ["LatencyTable", "tabulate_latencies"]

_FORMAT = 1


@dataclass(frozen=True)
class LatencyTable:
    """Table of the latency of each choice for each block of a search space, in microseconds, on one system.

    Attributes:
        system: Name of the system.
        version: Version of the regressor that priced the layers without measurements; "none" if there is no regressor.
        blocks: Names of the blocks.
        choices: For each block, the names of the choices for it.
        latency_us: Latency of each choice, shape [num_blocks, most_choices]; NaN where a block has fewer choices.
        interval_us: Lower and upper bound of each latency, shape [num_blocks, most_choices, 2].
        interval_level: Probability with which a latency lies in its interval, such as 0.9.
        fixed_us: Latency of the layers that every network has, whatever is chosen, and of what every network takes
            besides its layers.
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
        """Returns the latencies of networks in microseconds, shape [num_networks].

        Args:
            picks: For each network and block, the position of the network's choice among the choices of the block in
                `choices`; shape [num_networks, num_blocks].

        Raises:
            ValueError: A position does not exist, or the number of blocks is not that of the table.
        """
        picks = np.atleast_2d(picks)
        if picks.shape[1] != len(self.blocks):
            raise ValueError(f"{picks.shape[1]} choices for {len(self.blocks)} blocks: give one for each")
        if (picks < 0).any() or (picks >= [len(choices) for choices in self.choices]).any():
            raise ValueError("a choice is not in the table: give positions in `choices`")
        return np.asarray(self.fixed_us + self.latency_us[np.arange(len(self.blocks)), picks].sum(axis=1))

    def save(self, path: str | Path) -> None:
        """Writes the table to a file as a NumPy archive (npz), which executes no code when it is read."""
        metadata = {
            "format": _FORMAT, "system": self.system, "version": self.version, "blocks": self.blocks,
            "choices": self.choices, "interval_level": self.interval_level, "fixed_us": self.fixed_us,
        }  # fmt: skip
        into = BytesIO()
        np.savez(
            into, metadata=np.array(json.dumps(metadata)), latency_us=self.latency_us, interval_us=self.interval_us
        )
        with atomic_file(Path(path)) as partial:
            partial.write_bytes(into.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "LatencyTable":
        """Reads a latency table from a file that `save` wrote.

        Raises:
            ArtefactError: The file is not a latency table, or has a newer format than this costmodel can read.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                metadata = json.loads(str(arrays["metadata"]))
                if metadata.pop("format") > _FORMAT:
                    raise ArtefactError(f"{path} is a latency table of a newer format: upgrade costmodel")
                metadata["blocks"], metadata["choices"] = (
                    tuple(metadata["blocks"]),
                    tuple(map(tuple, metadata["choices"])),
                )
                return cls(**metadata, latency_us=arrays["latency_us"], interval_us=arrays["interval_us"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
            raise ArtefactError(f"{path} is no latency table ({error}): save one again") from error


def tabulate_latencies(
    predictor: Predictor,
    blocks: Mapping[str, Mapping[str, Sequence[LayerSequence]]],
    fixed: Sequence[LayerSequence] = (),
    *,
    measured: bool = True,
) -> LatencyTable:
    """Returns the latency table of a search space.

    The cost of a layer depends a little on how much memory the model around it touches. This model is taken to touch
    what the fixed layers touch and, for each block, the mean of what the choices of the block touch.

    Args:
        predictor: Predictor of the system.
        blocks: Blocks by name. Each block maps the names of its choices to their layer sequences; a choice may have
            none.
        fixed: Layers that every network has.
        measured: Whether to use measurements; without them every cost is predicted.

    Raises:
        UnpricedLayersError: A layer has no cost on the system.
        ValueError: There are no blocks, or a block has no choices.
    """
    if not blocks or not all(blocks.values()):
        raise ValueError("a table needs at least one block, and each block a choice")
    of_choices = [np.mean([Footprint.of(layers) for layers in choices.values()], axis=0) for choices in blocks.values()]
    footprint = np.sum([Footprint.of(fixed), *of_choices], axis=0)
    batch = Batch.of([fixed, *(layers for choices in blocks.values() for layers in choices.values())])
    priced = predictor.price(batch, measured=measured, footprints=np.tile(footprint, (len(batch.lengths), 1)))
    refuse_unpriced(predictor, batch, priced)
    found = priced.compose(predictor.uncertainty)
    most = max(map(len, blocks.values()))
    latencies, intervals = np.full((len(blocks), most), np.nan), np.full((len(blocks), most, 2), np.nan)
    place = 1  # after the fixed layers
    for row, choices in enumerate(blocks.values()):
        among = slice(place, place + len(choices))
        latencies[row, : len(choices)], intervals[row, : len(choices)] = (
            found.latency_us[among],
            found.interval_us[among],
        )
        place += len(choices)
    return LatencyTable(
        system=predictor.system.name,
        version=predictor.version,
        blocks=tuple(blocks),
        choices=tuple(tuple(choices) for choices in blocks.values()),
        latency_us=latencies,
        interval_us=intervals,
        interval_level=predictor.interval_level,
        fixed_us=float(found.latency_us[0]) + predictor.model_us,
    )
