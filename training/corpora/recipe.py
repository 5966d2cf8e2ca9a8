"""Recipes: reproducible instructions, each of which makes one ONNX file of a corpus."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RANDOM_FAMILY", "Recipe"]

# Family of random networks (`costmodel.training.corpora.random_networks`), which no one deploys: they are measured as a
# whole and trained on, and no evaluation judges a regressor by them.
RANDOM_FAMILY = "random_network"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model of a corpus and the function that makes it.

    Attributes:
        name: Name unique in the corpus, and the stem of the file name; lower case, digits, underscores.
        family: Architecture lineage; one family is never split between training and test. Empty for models that no one
            deploys and that are not measured as a whole: their layers are training data, and no evaluation uses them.
        title: Human-readable name of the model, as its source (a paper or a library) has it.
        write: Writes the ONNX file to the given path, the same bytes each time.
        needs: Name of the recipe whose file must exist in the same folder first; empty for none.
        published_layers: Number of layers that the model has according to its source; 0 where the source states none.
    """

    name: str
    family: str
    title: str
    write: Callable[[Path], None]
    needs: str = ""
    published_layers: int = 0
