"""Writes models of pytorchcv and Transformers that neither a corpus, nor `others.py`, nor the lockbox has.

    pip install --no-deps --target PACKAGES pytorchcv
    PYTHONPATH=PACKAGES python benchmarks/unseen_models.py FOLDER [--set 2]

Nothing is trained or calibrated on them; `unseen_memory.py` and `tune.py` judge the product by them. The networks of
pytorchcv have their default sizes, those of Transformers mostly six layers of the sizes below. There are four sets of
models; each was chosen after the faults of the one before had been looked at. Of some in the third set and most in the
fourth, a corpus or an earlier set has another size.
"""

import argparse
from collections.abc import Mapping
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

_SECOND_CONVOLUTIONAL = {
    "vgg": {"vgg11": 224},
    "resnet_variants": {
        "resnetbc14b": 224, "senet16": 224, "airnet50_1x64d_r2": 224, "bam_resnet18": 224, "cbam_resnet18": 224,
        "resattnet56": 224, "sknet50": 224, "sharesnet18": 224, "drnd22": 224, "resnext14_32x4d": 224,
        "diapreresnet10": 224, "bagnet17": 224,
    },
    "regnet": {"regnetx002": 224, "regnety002": 224, "regnetx006": 224},
    "dense": {"densenet121": 224, "ibn_densenet121": 224, "xdensenet121_2": 224, "sparsenet121": 224},
    "dpn": {"dpn68b": 224},
    "hrnet": {"hrnet_w18_small_v1": 224},
    "squeeze": {"squeezenet_v1_0": 224, "squeezeresnet_v1_0": 224, "sqnxt23v5_w1": 224},
    "shuffle": {"shufflenet_g3_w1": 224, "shufflenetv2_w1": 224, "menet108_8x1_g3": 224, "channelnet": 224},
    "mobile": {
        "mobilenet_w1": 224, "mobilenetb_wd2": 224, "mobilenetv2_w1": 224, "mobilenetv3_small_w1": 224,
        "dicenet_w1": 224, "ghostnet": 224, "mnasnet_b1": 224, "proxylessnas_cpu": 224, "efficientnet_b0": 224,
        "efficientnet_edge_small_b": 224,
    },
    "inception": {"xception": 299, "inceptionresnetv1": 299},
    "small_images": {
        "nin_cifar10": 32, "resnet20_cifar10": 32, "preresnet20_cifar10": 32, "seresnet20_cifar10": 32,
        "wrn16_10_cifar10": 32, "densenet40_k12_cifar10": 32, "pyramidnet110_a48_cifar10": 32,
        "resnext29_32x4d_cifar10": 32, "ror3_56_cifar10": 32, "rir_cifar10": 32,
    },
    "pose": {"simplepose_resnet18_coco": 256, "simplepose_mobile_resnet18_coco": 256},
    "segmentation": {"bisenet_resnet18_celebamaskhq": 512, "fastscnn_cityscapes": 512},
}  # fmt: skip

_SECOND_TRANSFORMERS: dict[str, Source] = {
    "camembert": transformers("Camembert", ids(96), **_TEXT),
    "xlm_roberta": transformers("XLMRoberta", ids(128), **_TEXT),
    "xlm_roberta_xl": transformers("XLMRobertaXL", ids(64), **_TEXT),
    "big_bird": transformers("BigBird", ids(128), **_TEXT, attention_type="original_full"),
    "deberta_v2": transformers("DebertaV2", ids(96), **_TEXT),
    "modern_bert": transformers("ModernBert", ids(128), **_TEXT, pad_token_id=0),
    "markuplm": transformers("MarkupLM", ids(96), **_TEXT),
    "flaubert": transformers("Flaubert", ids(96), vocab_size=TOKENS, emb_dim=384, n_layers=6, n_heads=6),
    "clip_text": transformers("CLIPText", ids(77), **_TEXT),
    "siglip_text": transformers("SiglipText", ids(64), **_TEXT),
    "chinese_clip_text": transformers("ChineseCLIPText", ids(64), **_TEXT),
    "blip_text": transformers("BlipText", ids(64), **_TEXT),
    "qwen2": transformers("Qwen2", ids(96), **_FEW_KEYS),
    "stablelm": transformers("StableLm", ids(96), **_FEW_KEYS),
    "arcee": transformers("Arcee", ids(64), **_FEW_KEYS),
    "apertus": transformers("Apertus", ids(64), **_FEW_KEYS),
    "helium": transformers("Helium", ids(64), **_FEW_KEYS, head_dim=64, pad_token_id=0),
    "smollm3": transformers("SmolLM3", ids(96), **_FEW_KEYS, pad_token_id=0),
    "seed_oss": transformers("SeedOss", ids(64), **_FEW_KEYS, head_dim=64),
    "exaone4": transformers("Exaone4", ids(64), **_FEW_KEYS),
    "hunyuan": transformers("HunYuanDenseV1", ids(64), **_FEW_KEYS, head_dim=64, pad_token_id=0),
    "ernie4_5": transformers("Ernie4_5", ids(96), **_FEW_KEYS, head_dim=64),
    "glm4": transformers("Glm4", ids(64), **_FEW_KEYS, head_dim=64, pad_token_id=0),
    "olmo3": transformers("Olmo3", ids(96), **_DECODER, pad_token_id=0),
    "ministral": transformers("Ministral", ids(64), **_FEW_KEYS, head_dim=64),
    "nanochat": transformers("NanoChat", ids(64), **_DECODER),
    "diffllama": transformers("DiffLlama", ids(64), **_FEW_KEYS),
    "neox_japanese": transformers(
        "GPTNeoXJapanese", ids(64), vocab_size=TOKENS, hidden_size=512, num_hidden_layers=6, num_attention_heads=8
    ),
    "xglm": transformers(
        "XGLM", ids(64), vocab_size=TOKENS, d_model=512, num_layers=6, attention_heads=8, ffn_dim=1408
    ),
    "ctrl": transformers("CTRL", ids(96), vocab_size=TOKENS, n_embd=512, n_layer=6, n_head=8, dff=1408),
    "clip_vision": transformers("CLIPVision", image(1, 3, 224, 224), **_VISION),
    "chinese_clip_vision": transformers("ChineseCLIPVision", image(1, 3, 224, 224), **_VISION),
    "blip_vision": transformers("BlipVision", image(1, 3, 224, 224), **_VISION, image_size=224),
    "aimv2_vision": transformers("Aimv2Vision", image(1, 3, 224, 224), **_VISION),
    "mlcd_vision": transformers("MLCDVision", image(1, 3, 224, 224), **_VISION, image_size=224, patch_size=16),
    "dinov2_registers": transformers("Dinov2WithRegisters", image(1, 3, 224, 224), **_VISION),
    "dinov3_vit": transformers("DINOv3ViT", image(1, 3, 224, 224), **_VISION),
    "dinov3_convnext": transformers("DINOv3ConvNext", image(1, 3, 224, 224)),
    "levit": transformers("Levit", image(1, 3, 224, 224)),
    "poolformer": transformers("PoolFormer", image(1, 3, 224, 224)),
    "mobilevit": transformers("MobileViT", image(1, 3, 256, 256)),
    "mobilevit_v2": transformers("MobileViTV2", image(1, 3, 256, 256)),
    "convnext_v2": transformers("ConvNextV2", image(1, 3, 224, 224)),
    "vitdet": transformers("VitDet", image(1, 3, 224, 224), **_VISION),
    "vivit": transformers("Vivit", image(1, 8, 3, 112, 112), **_VISION, image_size=112, num_frames=8),
    "unispeech_sat": transformers("UniSpeechSat", image(1, 16000), **_AUDIO),
    "ast": transformers("AST", image(1, 256, 128), **_VISION, max_length=256),
    "encodec": transformers("Encodec", image(1, 1, 16000)),
}


_THIRD_CONVOLUTIONAL = {
    "vgg": {"vgg16": 224, "bn_vgg13b": 224},
    "resnet_variants": {
        "resnet26": 224, "preresnetbc14b": 224, "seresnet26": 224, "diaresnet18": 224, "ibn_resnet50": 224,
        "bam_resnet34": 224, "cbam_resnet34": 224, "airnext50_32x4d_r2": 224, "scneta50": 224, "drnd38": 224,
    },
    "regnet": {"regnetx008": 224, "regnety004": 224},
    "dense": {"densenet169": 224, "xdensenet169_2": 224},
    "hrnet": {"hrnet_w18_small_v2": 224},
    "squeeze": {"sqnxt23_w3d2": 224},
    "shuffle": {"shufflenet_g2_w1": 224, "shufflenetv2b_w1": 224, "menet256_12x1_g4": 224},
    "mobile": {
        "fdmobilenet_wd2": 224, "mobilenetv3_small_wd2": 224, "mnasnet_a1": 224, "efficientnet_b1": 224,
        "mixnet_m": 224, "dicenet_w2": 224,
    },
    "small_images": {
        "resnet56_cifar10": 32, "seresnet56_cifar10": 32, "diaresnet20_cifar10": 32, "sepreresnet20_cifar10": 32,
    },
}  # fmt: skip

_THIRD_TRANSFORMERS: dict[str, Source] = {
    "ernie_wide": transformers("Ernie", ids(160), **{**_TEXT, "hidden_size": 512, "num_attention_heads": 8}),
    "aimv2_text": transformers("Aimv2Text", ids(77), **_TEXT),
    "metaclip2_text": transformers("MetaClip2Text", ids(77), **_TEXT),
    "metaclip2_vision": transformers("MetaClip2Vision", image(1, 3, 224, 224), **_VISION),
    "clap_text": transformers("ClapText", ids(96), **_TEXT),
    "clipseg_text": transformers("CLIPSegText", ids(77), **_TEXT),
    "clipseg_vision": transformers("CLIPSegVision", image(1, 3, 224, 224), **_VISION),
    "flava_text": transformers("FlavaText", ids(96), **_TEXT),
    "flava_image": transformers("FlavaImage", image(1, 3, 224, 224), **_VISION),
    "git_vision": transformers("GitVision", image(1, 3, 224, 224), **_VISION),
    "group_vit_text": transformers("GroupViTText", ids(77), **_TEXT),
    "owlvit_text": transformers("OwlViTText", ids(16), **_TEXT),
    "owlvit_vision": transformers("OwlViTVision", image(1, 3, 224, 224), **_VISION, image_size=224),
    "xclip_text": transformers("XCLIPText", ids(77), **_TEXT),
    "intern_vl_vision": transformers("InternVLVision", image(1, 3, 224, 224), **_VISION, image_size=[224, 224]),
    "alt_clip_vision": transformers("AltCLIPVision", image(1, 3, 224, 224), **_VISION),
    "mobilenet_v1": transformers("MobileNetV1", image(1, 3, 224, 224)),
    "mobilenet_v2": transformers("MobileNetV2", image(1, 3, 224, 224)),
    "hf_regnet": transformers("RegNet", image(1, 3, 224, 224)),
    "hf_resnet": transformers("ResNet", image(1, 3, 224, 224)),
    "yolos": transformers("Yolos", image(1, 3, 256, 256), **_VISION, image_size=[256, 256]),
    "vit": transformers("ViT", image(1, 3, 160, 160), **{**_VISION, "num_hidden_layers": 8}, image_size=160),
    "deit": transformers("DeiT", image(1, 3, 224, 224), **{**_VISION, "num_hidden_layers": 10}),
    "beit": transformers("Beit", image(1, 3, 224, 224), **_VISION),
    "hubert": transformers("Hubert", image(1, 16000), **{**_AUDIO, "hidden_size": 384, "num_attention_heads": 6}),
    "wav2vec2": transformers("Wav2Vec2", image(1, 16000), **{**_AUDIO, "num_hidden_layers": 4}),
    "cwm": transformers("Cwm", ids(64), **_FEW_KEYS, head_dim=64),
    "jais2": transformers("Jais2", ids(64), **_FEW_KEYS),
    "hyperclovax": transformers("HyperCLOVAX", ids(64), **_FEW_KEYS),
    "youtu": transformers("Youtu", ids(64), **_DECODER),
    "bitnet": transformers("BitNet", ids(64), **_FEW_KEYS),
    "modern_bert_decoder": transformers("ModernBertDecoder", ids(96), **_TEXT, pad_token_id=0),
    "llama": transformers("Llama", ids(48), **{**_FEW_KEYS, "num_hidden_layers": 8}),
    "mistral_wide": transformers("Mistral", ids(64), **{**_FEW_KEYS, "hidden_size": 768, "num_attention_heads": 12}),
    "qwen3_deep": transformers("Qwen3", ids(48), **{**_FEW_KEYS, "num_hidden_layers": 12}, head_dim=64),
    "phi": transformers("Phi", ids(64), **_DECODER, pad_token_id=0),
    "falcon": transformers(
        "Falcon", ids(64), vocab_size=TOKENS, hidden_size=512, num_hidden_layers=6, num_attention_heads=8
    ),
    "opt": transformers(
        "OPT", ids(64), vocab_size=TOKENS, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, ffn_dim=1408
    ),
    "gpt_neox": transformers("GPTNeoX", ids(64), **_DECODER),
}

_FOURTH_CONVOLUTIONAL = {
    "vgg": {"alexnetb": 224, "bn_vgg11": 224},
    "resnet_variants": {
        "resnet10": 224, "resnet34": 224, "resnetbc26b": 224, "resnet50b": 224, "preresnet14": 224, "preresnet26": 224,
        "preresnet34": 224, "seresnet14": 224, "seresnet34": 224, "sepreresnet26": 224, "resnext14_16x4d": 224,
        "resnext26_32x4d": 224, "senet28": 224, "ibn_resnext50_32x4d": 224, "airnet50_1x64d_r16": 224,
        "bam_resnet50": 224, "cbam_resnet50": 224, "resattnet92": 224, "sharesnet34": 224, "drnc42": 224,
        "drnd54": 224, "diaresnet26": 224, "diapreresnet18": 224, "resnetd50b": 224, "resnetabc14b": 224,
        "bagnet33": 224,
    },
    "regnet": {"regnetx004": 224, "regnety006": 224, "regnetx016": 224, "regnety008": 224},
    "dense": {"densenet161": 224, "ibn_densenet169": 224, "sparsenet161": 224},
    "hrnet": {"hrnetv2_w18": 224},
    "squeeze": {"sqnxt23_w2": 224},
    "shuffle": {
        "shufflenet_g4_w1": 224, "shufflenet_g8_w1": 224, "shufflenetv2_w3d2": 224, "shufflenetv2b_w2": 224,
        "menet348_12x1_g3": 224,
    },
    "mobile": {
        "mobilenet_w3d4": 224, "mobilenetb_w1": 224, "fdmobilenet_w3d4": 224, "mobilenetv2b_w1": 224,
        "mobilenetv3_large_w3d4": 224, "mobilenetv3_large_w5d4": 224, "mnasnet_small": 224, "proxylessnas_gpu": 224,
        "efficientnet_b2": 224, "efficientnet_b0c": 224, "efficientnet_edge_medium_b": 224, "dicenet_wd2": 224,
    },
    "inception": {"inceptionresnetv2": 299},
    "small_images": {
        "resnet110_cifar10": 32, "preresnet56_cifar10": 32, "densenet100_k12_bc_cifar10": 32, "wrn28_10_cifar10": 32,
        "resnext20_32x4d_cifar10": 32, "pyramidnet110_a84_cifar10": 32, "ror3_110_cifar10": 32,
        "fractalnet_cifar10": 32,
    },
    "segmentation": {"fcn8sd_resnetd50b_voc": 240},
}  # fmt: skip

_NARROW = {
    "vocab_size": TOKENS, "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # fmt: skip
_BROAD = {
    "vocab_size": TOKENS, "hidden_size": 640, "num_hidden_layers": 4, "num_attention_heads": 10,
    "intermediate_size": 2560,
}  # fmt: skip
_NARROW_VISION = {name: size for name, size in _NARROW.items() if name != "vocab_size"}
_BROAD_VISION = {name: size for name, size in _BROAD.items() if name != "vocab_size"}
_FEW_KEYS_BROAD = {**_BROAD, "num_key_value_heads": 5, "intermediate_size": 1792}

_FOURTH_TRANSFORMERS: dict[str, Source] = {
    "squeezebert": transformers("SqueezeBert", ids(96), **{**_TEXT, "embedding_size": 384}),
    "lilt": transformers("Lilt", ids(96), **_TEXT),
    "luke": transformers("Luke", ids(64), **_BROAD),
    "bert_narrow": transformers("Bert", ids(96), **_NARROW),
    "bert_broad": transformers("Bert", ids(64), **_BROAD),
    "roberta_narrow": transformers("Roberta", ids(160), **_NARROW),
    "electra_broad": transformers("Electra", ids(96), **_BROAD, embedding_size=256),
    "camembert_broad": transformers("Camembert", ids(48), **_BROAD),
    "fnet": transformers("FNet", ids(128), **_TEXT),
    "yoso": transformers("Yoso", ids(128), **_TEXT),
    "xlnet": transformers("XLNet", ids(96), vocab_size=TOKENS, d_model=384, n_layer=6, n_head=6, d_inner=1536),
    "visual_bert": transformers("VisualBert", ids(96), **_BROAD),
    "tapas": transformers("Tapas", ids(96), **_TEXT),
    "gte": transformers("Gte", ids(96), **_TEXT),
    "jina_embeddings_v3": transformers("JinaEmbeddingsV3", ids(96), **_TEXT),
    "canine": transformers("Canine", ids(128), **_TEXT),
    "distilbert": transformers("DistilBert", ids(96), vocab_size=TOKENS, dim=512, n_layers=5, n_heads=8),
    "xmod": transformers("Xmod", ids(96), **_TEXT, default_language="en_XX"),
    "bloom": transformers("Bloom", ids(64), vocab_size=TOKENS, hidden_size=512, n_layer=6, n_head=8),
    "gpt_neo": transformers(
        "GPTNeo",
        ids(64),
        vocab_size=TOKENS,
        hidden_size=512,
        num_layers=6,
        num_heads=8,
        attention_types=[[["global", "local"], 3]],
    ),
    "gpt2_wide": transformers("GPT2", ids(64), vocab_size=TOKENS, n_embd=640, n_layer=4, n_head=10),
    "image_gpt": transformers("ImageGPT", ids(96), vocab_size=TOKENS, n_embd=384, n_layer=6, n_head=6),
    "llama_broad": transformers("Llama", ids(64), **_FEW_KEYS_BROAD),
    "qwen2_narrow": transformers("Qwen2", ids(96), **_NARROW, num_key_value_heads=2),
    "mistral_broad": transformers("Mistral", ids(48), **_FEW_KEYS_BROAD),
    "starcoder2_broad": transformers("Starcoder2", ids(64), **_FEW_KEYS_BROAD),
    "stablelm_broad": transformers("StableLm", ids(64), **_FEW_KEYS_BROAD),
    "doge": transformers("Doge", ids(64), **_FEW_KEYS),
    "granite_broad": transformers("Granite", ids(48), **_FEW_KEYS_BROAD),
    "phi_broad": transformers("Phi", ids(64), **_BROAD, pad_token_id=0),
    "siglip_broad": transformers("SiglipVision", image(1, 3, 224, 224), **_BROAD_VISION),
    "clip_vision_narrow": transformers("CLIPVision", image(1, 3, 160, 160), **_NARROW_VISION, image_size=160),
    "vit_broad": transformers("ViT", image(1, 3, 224, 224), **_BROAD_VISION),
    "deit_narrow": transformers("DeiT", image(1, 3, 224, 224), **_NARROW_VISION),
    "owlv2_vision": transformers("Owlv2Vision", image(1, 3, 224, 224), **_BROAD_VISION, image_size=224),
    "dpt": transformers("DPT", image(1, 3, 224, 224), **_VISION, image_size=224, backbone_out_indices=[1, 2, 4, 5]),
    "glpn": transformers("GLPN", image(1, 3, 224, 224)),
    "cvt": transformers("Cvt", image(1, 3, 224, 224)),
    "pvt_v2": transformers("PvtV2", image(1, 3, 224, 224)),
    "bit": transformers("Bit", image(1, 3, 224, 224)),
    "focalnet": transformers("FocalNet", image(1, 3, 224, 224)),
    "timesformer": transformers("Timesformer", image(1, 8, 3, 112, 112), **_VISION, image_size=112, num_frames=8),
    "sam_vision": transformers(
        "SamVision",
        image(1, 3, 256, 256),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        image_size=256,
        window_size=8,
        global_attn_indexes=[2, 5],
    ),
    "unispeech_narrow": transformers("UniSpeech", image(1, 24000), **_NARROW_VISION),
    "wav2vec2_bert": transformers("Wav2Vec2Bert", image(1, 96, 160), **_VISION),
}

_SETS = {
    1: (_CONVOLUTIONAL, _TRANSFORMERS),
    2: (_SECOND_CONVOLUTIONAL, _SECOND_TRANSFORMERS),
    3: (_THIRD_CONVOLUTIONAL, _THIRD_TRANSFORMERS),
    4: (_FOURTH_CONVOLUTIONAL, _FOURTH_TRANSFORMERS),
}


def main() -> None:
    """Writes the models that can be exported, and says why the others cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--set", type=int, choices=sorted(_SETS), default=1)
    options = parser.parse_args()
    write(options.folder, *_SETS[options.set])


def write(folder: Path, convolutional: Mapping[str, Mapping[str, int]], of_transformers: Mapping[str, Source]) -> None:
    """Writes networks of pytorchcv, by lineage with the size of their images, and models of Transformers."""
    sources = {
        lineage: {f"cv_{name}": pytorchcv(name, size) for name, size in models.items()}
        for lineage, models in convolutional.items()
    }
    for lineage, models in (sources | {name: {f"hf_{name}": one} for name, one in of_transformers.items()}).items():
        for name, source in models.items():
            try:
                export({lineage: {name: source}}, folder)
            except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)


if __name__ == "__main__":
    main()
