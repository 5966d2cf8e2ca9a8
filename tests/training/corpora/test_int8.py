"""The corpus of int8 models."""

from costmodel.training.corpora.int8 import RECIPES
from costmodel.training.corpora.registry import recipes_of


def test_each_int8_model_follows_the_one_it_was_made_from() -> None:
    """Half of the recipes are int8 versions of the others, each of another family."""
    floats = {recipe.name: recipe for recipe in RECIPES if not recipe.needs}
    made = [recipe for recipe in RECIPES if recipe.needs]
    assert len(floats) == len(made) == len({recipe.family for recipe in made})
    assert {recipe.needs for recipe in made} == set(floats)
    assert all(recipe.family == floats[recipe.needs].family for recipe in made)
    assert not {recipe.name for recipe in made} & {recipe.name for recipe in recipes_of("modern")}
