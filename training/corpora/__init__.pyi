from .build import build_corpus as build_corpus
from .registry import MADE as MADE
from .registry import Entry as Entry
from .registry import read_manifest as read_manifest
from .registry import recipes_of as recipes_of
