"""A recipe: how one ONNX file of a corpus is made, the same wherever it is followed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Recipe"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model of a corpus and how to make it.

    Attributes:
        name: Unique in its corpus, and the stem of the file; lower case, digits, underscores.
        family: Architecture lineage; one family is never split between training and test. Empty for what is no model of
            anybody's: its layers train, and nothing is judged on it.
        title: What its source calls it, for people.
        write: Writes the ONNX file at the path it is given, the same bytes each time.
        needs: Name of the recipe whose file must lie beside this one's first; empty for none.
        published_layers: Layers by the count of its source; 0 where there is none.
    """

    name: str
    family: str
    title: str
    write: Callable[[Path], None]
    needs: str = ""
    published_layers: int = 0
