"""The modern corpus: models that are deployed on CPUs today, in float32 and some of them also in int8."""

from costmodel.training.corpora.modern_audio import AUDIO
from costmodel.training.corpora.modern_text import TEXT
from costmodel.training.corpora.modern_vision import VISION
from costmodel.training.corpora.quantised import DENSE, quantised

__all__ = ["RECIPES"]

_FLOAT = {recipe.name: recipe for recipe in (*VISION, *TEXT, *AUDIO)}

_INT8 = (
    quantised(_FLOAT["resnet50_224"]),
    quantised(_FLOAT["mobilenet_v2_100_224"]),
    quantised(_FLOAT["convnext_tiny_224"], DENSE),
    quantised(_FLOAT["deit_tiny_p16_224"]),
    quantised(_FLOAT["vit_small_p16_224"], DENSE),
    quantised(_FLOAT["minilm_l6_s128"], DENSE),
    quantised(_FLOAT["distilbert_s128"], DENSE),
)

RECIPES = (*_FLOAT.values(), *_INT8)
