"""The corpus of int8 models: quantised versions of models of many lineages, each beside the model it was made from.

The corpora `modern` and `wide` contain the float32 models too, under the same names, so that their layers are measured
once. Convolutional networks are quantised whole, transformers in their products only. DenseNet is not among them,
because OpenVINO 2026.4 crashes on its int8 version.
"""

from costmodel.training.corpora import modern, wide
from costmodel.training.corpora.quantised import DENSE, quantised

__all__ = ["RECIPES"]

_ELSEWHERE = {recipe.name: recipe for recipe in (*modern.RECIPES, *wide.RECIPES)}

_WHOLE = (
    "resnet18_224",
    "mobilenet_v1_100_224",
    "regnet_y_400mf_224",
    "fast_scnn_256x512",
    "shufflenet_v2_100_224_b4",
    "repvgg_a0_224",
    "xception_m4_192",
    "yolo_v3_tiny_416",
    "unet_w32_96_b2",
    "edsr_x4_w32_64",
    "autoencoder_128",
)
_PRODUCTS = (
    "poolformer_s12_224",
    "segformer_b0_512",
    "mlp_mixer_s16_d4_224",
    "bert_small_s64_b4",
    "squeezebert_l6_s128",
    "roformer_l6_s64_b4",
    "whisper_tiny_encoder",
    "conformer_w144_d8_4s",
)

RECIPES = tuple(
    recipe
    for names, only in ((_WHOLE, ()), (_PRODUCTS, DENSE))
    for name in names
    for recipe in (_ELSEWHERE[name], quantised(_ELSEWHERE[name], only))
)
