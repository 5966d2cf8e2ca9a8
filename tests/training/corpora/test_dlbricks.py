"""The recipes of the paper's 50 models, compared with its table 1."""

from collections import Counter
from itertools import groupby

from costmodel.training.corpora.dlbricks import NETS, RECIPES

# Number of layers in the rows of table 1, ids 1 to 50.
TABLE_LAYERS = (
    142, 40, 40, 53, 40, 147, 147, 147, 311, 153, 347, 344, 517, 177, 874, 69, 40, 46, 176, 232, 177,
    109, 58, 62, 62, 94, 94, 94, 94, 96, 94, 96, 94, 94, 94, 56, 56, 40, 145, 157, 106,
    967, 967, 501, 501, 501, 1029, 141, 141, 53,
)  # fmt: skip


def test_the_rows_of_the_table() -> None:
    """All 50 rows are present in order, with their numbers of layers: 10,815 together."""
    assert tuple(recipe.published_layers for recipe in RECIPES) == TABLE_LAYERS
    assert sum(TABLE_LAYERS) == 10815
    assert len({recipe.title for recipe in RECIPES}) == len({recipe.name for recipe in RECIPES}) == 50


def test_names_are_file_names() -> None:
    """Names are valid file names on every file system."""
    assert all(recipe.name.replace("_", "").isalnum() and recipe.name == recipe.name.lower() for recipe in RECIPES)


def test_a_row_shares_the_file_of_an_earlier_one() -> None:
    """Each architecture is built once; rows that need its file come later and are of its family."""
    made = {recipe.name: recipe for recipe in RECIPES if not recipe.needs}
    assert len(made) == len(NETS)
    names = [recipe.name for recipe in RECIPES]
    for recipe in RECIPES:
        if recipe.needs:
            assert names.index(recipe.needs) < names.index(recipe.name)
            assert made[recipe.needs].family == recipe.family
            assert made[recipe.needs].published_layers == recipe.published_layers


def test_siblings_are_of_one_family() -> None:
    """Models of one lineage have one family: SSD, for example, that of VGG-16."""
    families = {recipe.name: recipe.family for recipe in RECIPES}
    assert {family for name, family in families.items() if "vgg" in name} == {"vgg"}
    assert {family for name, family in families.items() if "resnet" in name or "nsfw" in name} == {"resnet"}
    assert Counter(families.values())["cyclegan"] == 10
    by_prefix = groupby(sorted(families), key=lambda name: name.split("_")[0])
    assert all(len({families[name] for name in names}) == 1 for _, names in by_prefix)
