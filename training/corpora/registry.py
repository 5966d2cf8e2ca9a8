"""Registry of the corpora that can be built: their recipes, and the manifest that lists the files that exist."""

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from costmodel.errors import ModelReadError
from costmodel.training.corpora.recipe import Recipe

__all__ = ["MANIFEST", "MANIFEST_FORMAT", "RECIPE_MODULES", "Entry", "read_manifest", "recipes_of"]

# Module of each corpus, which defines its RECIPES and imports nothing heavy.
RECIPE_MODULES = {
    "dlbricks": "costmodel.training.corpora.dlbricks",
    "int8": "costmodel.training.corpora.int8",
    "kernels": "costmodel.training.corpora.kernels",
    "modern": "costmodel.training.corpora.modern",
    "nas": "costmodel.training.corpora.nas",
    "operators": "costmodel.training.corpora.operators",
    "random_networks": "costmodel.training.corpora.random_networks",
    "wide": "costmodel.training.corpora.wide",
}

MANIFEST = "corpus.json"
MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One model in a manifest, the file that lists the models in a corpus folder.

    Attributes:
        name: Name of the model's recipe.
        file: Name of the ONNX file in the folder of the manifest.
        family: Architecture lineage; empty for models that no one deploys.
        title: Human-readable name of the model, as its source (a paper or a library) has it.
        published_layers: Number of layers that the model has according to its source; 0 where the source states none.
    """

    name: str
    file: str
    family: str
    title: str = ""
    published_layers: int = 0


def recipes_of(corpus: str) -> tuple[Recipe, ...]:
    """Returns the recipes of the corpus of that name.

    Raises:
        ModelReadError: No corpus of that name can be built.
    """
    if corpus not in RECIPE_MODULES:
        raise ModelReadError(f"{corpus!r} is no corpus that can be built: give one of {', '.join(RECIPE_MODULES)}")
    recipes: tuple[Recipe, ...] = import_module(RECIPE_MODULES[corpus]).RECIPES
    return recipes


def read_manifest(folder: Path) -> list[Entry]:
    """Returns the entries of the manifest in `folder` whose files exist; an empty list if there is no manifest.

    Raises:
        ModelReadError: The manifest is damaged, or its format is newer than this version of costmodel knows.
    """
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_text())
        if document["format"] == MANIFEST_FORMAT:
            entries = [Entry(**model) for model in document["models"]]
            return [entry for entry in entries if (folder / entry.file).is_file()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelReadError(f"{path} cannot be read ({error}): delete it and build the corpus again") from error
    raise ModelReadError(
        f"{path} is of format {document['format']}, which this version does not know: update costmodel"
    )
