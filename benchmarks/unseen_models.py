"""Writes models of pytorchcv and Transformers that neither a corpus, nor `others.py`, nor the lockbox has.

    pip install --no-deps --target PACKAGES pytorchcv
    PYTHONPATH=PACKAGES python benchmarks/unseen_models.py FOLDER

Nothing is trained or calibrated on them; `unseen_memory.py` and `tune.py` judge the product by them. The networks of
pytorchcv have their default sizes, those of Transformers mostly six layers of the sizes below.
"""

import sys
from pathlib import Path

from other_packages import TOKENS, Source, export, ids, image, pytorchcv, transformers

_CONVOLUTIONAL = {
    "alexnet": {"alexnet": 224, "zfnet": 224},
    "vgg": {"bn_vgg11b": 224, "vgg13": 224},
    "resnet_variants": {
        "preresnet18": 224, "seresnet18": 224, "sepreresnet10": 224,
        "diaresnet10": 224, "ibnb_resnet50": 224, "scnet50": 224,
        "resneta18": 224, "bagnet9": 224, "drnc26": 224, "wrn50_2": 224,
    },
    "dpn": {"dpn68": 224},
    "squeeze": {"squeezenet_v1_1": 224, "squeezeresnet_v1_1": 224, "sqnxt23_w1": 224},
    "shuffle": {"shufflenet_g1_w1": 224, "menet228_12x1_g3": 224},
    "mobile": {
        "fdmobilenet_w1": 224, "mobilenetv3_large_w1": 224, "proxylessnas_mobile": 224, "fbnet_cb": 224,
        "spnasnet": 224,
    },
    "cell": {"nasnet_4a1056": 224, "darts": 224},
    "inception": {"inceptionv3": 299, "inceptionv4": 299},
    "segmentation": {
        "espnetv2_wd2": 224, "cgnet_cityscapes": 256, "dabnet_cityscapes": 256, "erfnet_cityscapes": 256,
        "linknet_cityscapes": 256, "unet_cityscapes": 256,
    },
}  # fmt: skip

_TEXT = {
    "vocab_size": TOKENS, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6,
    "intermediate_size": 1536,
}  # fmt: skip
_DECODER = {
    "vocab_size": TOKENS, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
    "intermediate_size": 1408,
}  # fmt: skip
_FEW_KEYS = {**_DECODER, "num_key_value_heads": 2}
_VISION = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536}
_AUDIO = {**_VISION, "hidden_size": 512, "num_attention_heads": 8}

_TRANSFORMERS: dict[str, Source] = {
    "electra": transformers("Electra", ids(128), **_TEXT, embedding_size=128),
    "ernie": transformers("Ernie", ids(64), **_TEXT),
    "nystromformer": transformers("Nystromformer", ids(128), **_TEXT),
    "rembert": transformers("RemBert", ids(96), **_TEXT, input_embedding_size=128),
    "megatron_bert": transformers("MegatronBert", ids(128), **{**_TEXT, "hidden_size": 768, "num_attention_heads": 12}),
    "layoutlm": transformers("LayoutLM", ids(160), **_TEXT),
    "data2vec_text": transformers("Data2VecText", ids(128), **_TEXT),
    "splinter": transformers("Splinter", ids(192), **_TEXT),
    "ibert": transformers("IBert", ids(64), **_TEXT),
    "deberta": transformers("Deberta", ids(128), **_TEXT, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "esm": transformers("Esm", ids(128), **_TEXT, pad_token_id=1, position_embedding_type="rotary"),
    "nomic_bert": transformers("NomicBert", ids(128), **_TEXT),
    "eurobert": transformers("EuroBert", ids(128), **_TEXT, num_key_value_heads=6, pad_token_id=0),
    "prelayernorm": transformers("RobertaPreLayerNorm", ids(96), **_TEXT),
    "roc_bert": transformers("RoCBert", ids(96), **_TEXT),
    "xlm": transformers("XLM", ids(96), n_words=TOKENS, emb_dim=384, n_layers=6, n_heads=6),
    "mistral": transformers("Mistral", ids(128), **_FEW_KEYS),
    "qwen3": transformers("Qwen3", ids(96), **_FEW_KEYS, head_dim=64),
    "granite": transformers("Granite", ids(64), **_FEW_KEYS),
    "starcoder2": transformers("Starcoder2", ids(128), **_FEW_KEYS),
    "gpt_bigcode": transformers("GPTBigCode", ids(96), vocab_size=TOKENS, n_embd=512, n_layer=6, n_head=8),
    "codegen": transformers("CodeGen", ids(64), vocab_size=TOKENS, n_embd=512, n_layer=6, n_head=8, rotary_dim=32),
    "biogpt": transformers("BioGpt", ids(64), **_DECODER),
    "openai_gpt": transformers("OpenAIGPT", ids(128), vocab_size=TOKENS, n_embd=384, n_layer=6, n_head=6),
    "persimmon": transformers("Persimmon", ids(64), **_DECODER),
    "nemotron": transformers("Nemotron", ids(64), **_FEW_KEYS),
    "olmo2": transformers("Olmo2", ids(96), **_DECODER),
    "phi3": transformers("Phi3", ids(96), **_FEW_KEYS, pad_token_id=0),
    "glm": transformers("Glm", ids(64), **_FEW_KEYS, head_dim=64, pad_token_id=0),
    "siglip": transformers("SiglipVision", image(1, 3, 224, 224), **_VISION),
    "vit_msn": transformers("ViTMSN", image(1, 3, 224, 224), **_VISION),
    "data2vec_vision": transformers("Data2VecVision", image(1, 3, 224, 224), **_VISION),
    "ijepa": transformers("IJepa", image(1, 3, 224, 224), **_VISION, patch_size=16, image_size=224),
    "pvt_v1": transformers("Pvt", image(1, 3, 224, 224)),
    "swiftformer": transformers("SwiftFormer", image(1, 3, 224, 224)),
    "videomae": transformers("VideoMAE", image(1, 8, 3, 112, 112), **_VISION, image_size=112, num_frames=8),
    "unispeech": transformers("UniSpeech", image(1, 16000), **_AUDIO),
    "data2vec_audio": transformers("Data2VecAudio", image(1, 16000), **_AUDIO),
    "wav2vec2_conformer": transformers("Wav2Vec2Conformer", image(1, 16000), **_AUDIO),
    "sew_d": transformers("SEWD", image(1, 16000), **_AUDIO),
}


def main() -> None:
    """Writes the models that can be exported, and says why the others cannot."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sources = {
        lineage: {f"cv_{name}": pytorchcv(name, size) for name, size in models.items()}
        for lineage, models in _CONVOLUTIONAL.items()
    }
    for lineage, models in (sources | {name: {f"hf_{name}": one} for name, one in _TRANSFORMERS.items()}).items():
        for name, source in models.items():
            try:
                export({lineage: {name: source}}, Path(sys.argv[1]))
            except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)


if __name__ == "__main__":
    main()
