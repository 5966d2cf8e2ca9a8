from .build import build_corpus as build_corpus
from .quantised import DENSE as DENSE
from .quantised import quantise_file as quantise_file
from .recipe import RANDOM_FAMILY as RANDOM_FAMILY
from .registry import RECIPE_MODULES as RECIPE_MODULES
from .registry import Entry as Entry
from .registry import read_manifest as read_manifest
from .registry import recipes_of as recipes_of
