"""The weights of a model as its source has them, before a runtime rewrites them."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SMALLEST_STORED_BYTES", "SourceWeights"]

# Smaller constants and values are left out: the runtime keeps them where they were parsed.
SMALLEST_STORED_BYTES = 128


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """Sizes of the constants of a source model, which a runtime holds in memory while it rewrites them.

    Attributes:
        stored_bytes: Size in bytes of each constant that the model contains, by name, in the order of the file.
        folded_bytes: Size in bytes of each value that follows from constants alone, by name, in topological order; also
            of each weight of a convolution into which the normalisation behind it is folded.
        nodes: Number of nodes of the main graph, from which the runtime makes the layers; None if it is not known.
        dropped: Names of the values of which nothing is left but what is folded from them.
        labels: Length in bytes of the name, and number of dimensions, of each constant that the model contains: the
            runtime keeps copies of both beside it.
        copied_bytes: Sizes in bytes of the constants of which the runtime makes copies while it folds a value, by the
            name of that value; of a layer with several outputs, by that of the first. Those of values that are too
            small for `folded_bytes` are left out. A graph of an older version has none.
    """

    stored_bytes: Mapping[str, int]
    folded_bytes: Mapping[str, int]
    nodes: int | None = None
    dropped: Set[str] = frozenset()
    labels: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    copied_bytes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def renamed(self, names: Mapping[str, str]) -> "SourceWeights":
        """Returns a copy with the names that `names` gives, and numbered names ("w0") for all others."""
        everything = dict.fromkeys((*self.stored_bytes, *self.folded_bytes))
        new = {name: names.get(name, f"w{place}") for place, name in enumerate(everything)}
        return SourceWeights(
            {new[name]: nbytes for name, nbytes in self.stored_bytes.items()},
            {new[name]: nbytes for name, nbytes in self.folded_bytes.items()},
            self.nodes,
            frozenset(new[name] for name in self.dropped if name in new),
            {new[name]: label for name, label in self.labels.items() if name in new},
            {new[name]: sizes for name, sizes in self.copied_bytes.items() if name in new},
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the sizes as JSON-serialisable data, which `from_dict` reads."""
        return {
            "stored": dict(self.stored_bytes),
            "folded": dict(self.folded_bytes),
            "nodes": self.nodes,
            "dropped": sorted(self.dropped),
            "labels": {name: list(label) for name, label in self.labels.items()},
            "copied": {name: list(sizes) for name, sizes in self.copied_bytes.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "SourceWeights":
        """Returns the sizes from the output of `to_dict`."""
        return cls(
            dict(data["stored"]),
            dict(data["folded"]),
            data.get("nodes"),
            frozenset(data.get("dropped", ())),
            {name: (length, rank) for name, (length, rank) in data.get("labels", {}).items()},
            {name: tuple(sizes) for name, sizes in data.get("copied", {}).items()},
        )
