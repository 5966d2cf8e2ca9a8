"""Recipes of the wide corpus for networks from `transformers`, of architectures that no other corpus contains.

The networks are small enough to run on one core.
"""

from costmodel.training.corpora.modern_network import Network, NetworkInput, images, network_recipe, pairs, tokens

__all__ = ["FROM_TRANSFORMERS"]

_CLASSES = {"num_labels": 1000}
_VOCABULARY = {"vocab_size": 16000}
_NO_CACHE = _VOCABULARY | {"use_cache": False}
_SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
_DECODER = _NO_CACHE | {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4}

_SWIN_V2 = _CLASSES | {"embed_dim": 64, "depths": [2, 2, 4, 2], "num_heads": [2, 4, 8, 16], "window_size": 7}
_SWIN_2_SR = {"image_size": 64, "embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6], "upscale": 2}
_CVT = _CLASSES | {"depth": [1, 2, 4], "embed_dim": [32, 96, 192]}
_FOCAL = _CLASSES | {"embed_dim": 64, "depths": [2, 2, 4, 2]}
_HIERA = _CLASSES | {"embed_dim": 64, "depths": [1, 2, 7, 2], "num_heads": [1, 2, 4, 8]}
_BIT = _CLASSES | {"depths": [2, 2, 2, 2], "hidden_sizes": [128, 256, 512, 1024], "embedding_size": 64}
_TIMESFORMER = {
    "image_size": 112,
    "num_frames": 4,
    "hidden_size": 192,
    "num_hidden_layers": 6,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "num_labels": 400,
}
_XLNET = _VOCABULARY | {"d_model": 512, "n_layer": 4, "n_head": 8, "d_inner": 2048}
_FUNNEL = _VOCABULARY | {"block_sizes": [2, 2, 2], "d_model": 384, "n_head": 6, "d_inner": 1536}
_PERCEIVER = {
    "num_latents": 128,
    "d_latents": 384,
    "d_model": 384,
    "num_blocks": 1,
    "num_self_attends_per_block": 6,
    "max_position_embeddings": 512,
}
_LXMERT = _VOCABULARY | _SMALL | {"l_layers": 3, "x_layers": 2, "r_layers": 2}
_LXMERT_INPUTS = tokens(20) | {
    "visual_feats": NetworkInput((1, 36, 2048)),
    "visual_pos": NetworkInput((1, 36, 4)),
}
_LAYERS = ["conv", "conv", "full_attention", "conv", "conv", "full_attention"]
_LFM2 = _NO_CACHE | {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": len(_LAYERS),
    "layer_types": _LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "block_auto_adjust_ff_dim": False,
}
_SERIES = {"context_length": 336, "num_input_channels": 7, "patch_length": 16, "patch_stride": 8}
_MOONSHINE = {
    "hidden_size": 288,
    "intermediate_size": 1152,
    "encoder_num_hidden_layers": 4,
    "decoder_num_hidden_layers": 1,
}


def _series(batch: int) -> dict[str, NetworkInput]:
    return {"past_values": NetworkInput((batch, 336, 7))}


FROM_TRANSFORMERS = (
    network_recipe(
        "swin_v2_d64_224", "swin", "Swin V2, narrow", Network("Swinv2ForImageClassification", images(224), _SWIN_V2)
    ),
    network_recipe(
        "swin2sr_x2_64", "swin", "Swin2SR, light", Network("Swin2SRForImageSuperResolution", images(64), _SWIN_2_SR)
    ),
    network_recipe("pvt_v2_b0_224", "pvt", "PVT V2-B0", Network("PvtV2ForImageClassification", images(224), _CLASSES)),
    network_recipe("cvt_d192_224", "cvt", "CvT, narrow", Network("CvtForImageClassification", images(224), _CVT)),
    network_recipe(
        "focalnet_d64_224",
        "focalnet",
        "FocalNet, narrow",
        Network("FocalNetForImageClassification", images(224), _FOCAL),
    ),
    network_recipe(
        "hiera_d64_224", "hiera", "Hiera, narrow", Network("HieraForImageClassification", images(224), _HIERA)
    ),
    network_recipe(
        "bit_r26_160", "resnet", "BiT-ResNet-26, thin", Network("BitForImageClassification", images(160), _BIT)
    ),
    network_recipe("glpn_256", "segformer", "GLPN, 256 px", Network("GLPNForDepthEstimation", images(256))),
    network_recipe(
        "textnet_224", "textnet", "TextNet", Network("TextNetForImageClassification", images(224), _CLASSES)
    ),
    network_recipe(
        "timesformer_4x112",
        "timesformer",
        "TimeSformer, 4 frames",
        Network("TimesformerForVideoClassification", {"pixel_values": NetworkInput((1, 4, 3, 112, 112))}, _TIMESFORMER),
    ),
    network_recipe(
        "xlnet_l4_s64",
        "xlnet",
        "XLNet, 4 layers of 512",
        Network("XLNetModel", {"input_ids": NetworkInput((1, 64), 1000)}, _XLNET),
    ),
    network_recipe("funnel_l6_s128", "funnel", "Funnel, narrow", Network("FunnelBaseModel", tokens(128), _FUNNEL)),
    network_recipe(
        "fnet_l6_s128",
        "fnet",
        "FNet, 6 layers of 384",
        Network(
            "FNetModel",
            {"input_ids": NetworkInput((1, 128), 1000), "token_type_ids": NetworkInput((1, 128), 2)},
            _VOCABULARY | {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6},
        ),
    ),
    network_recipe(
        "squeezebert_l6_s128",
        "squeezebert",
        "SqueezeBERT, 6 layers",
        Network("SqueezeBertModel", tokens(128), {"num_hidden_layers": 6}),
    ),
    network_recipe(
        "convbert_l4_s128",
        "convbert",
        "ConvBERT, 4 layers of 384",
        Network("ConvBertModel", tokens(128), _VOCABULARY | _SMALL | {"num_hidden_layers": 4, "embedding_size": 128}),
    ),
    network_recipe(
        "roformer_l6_s64_b4",
        "roformer",
        "RoFormer, 6 layers of 384, batch 4",
        Network("RoFormerModel", tokens(64, 4), _VOCABULARY | _SMALL | {"num_hidden_layers": 6}),
    ),
    network_recipe(
        "canine_l4_s256",
        "canine",
        "CANINE, 4 layers of 384",
        Network("CanineModel", pairs(256), _SMALL | {"num_hidden_layers": 4}),
    ),
    network_recipe(
        "perceiver_text_s256",
        "perceiver",
        "Perceiver, bytes",
        Network(
            "PerceiverForSequenceClassification",
            {"inputs": NetworkInput((1, 256), 256), "attention_mask": NetworkInput((1, 256), 2)},
            _PERCEIVER,
        ),
    ),
    network_recipe("lxmert_s20", "lxmert", "LXMERT, narrow", Network("LxmertModel", _LXMERT_INPUTS, _LXMERT)),
    network_recipe(
        "bloom_l4_s64",
        "bloom",
        "BLOOM, 4 layers of 512, prefill",
        Network("BloomModel", tokens(64), _NO_CACHE | {"hidden_size": 512, "n_head": 8, "n_layer": 4}),
    ),
    network_recipe(
        "opt_l4_s128",
        "opt",
        "OPT, 4 layers of 512, prefill",
        Network("OPTModel", tokens(128), _DECODER | {"ffn_dim": 2048, "word_embed_proj_dim": 512}),
    ),
    network_recipe(
        "gpt_neo_l6_s64",
        "gpt_neo",
        "GPT-Neo, 6 layers of 512, prefill",
        Network(
            "GPTNeoModel",
            tokens(64),
            _NO_CACHE
            | {"hidden_size": 512, "num_layers": 6, "num_heads": 8, "attention_types": [[["global", "local"], 3]]},
        ),
    ),
    network_recipe(
        "pythia_l6_s64",
        "gpt_neox",
        "Pythia-70M, prefill",
        Network("GPTNeoXModel", tokens(64), _DECODER | {"intermediate_size": 2048, "num_hidden_layers": 6}),
    ),
    network_recipe(
        "gptj_l4_s64",
        "gptj",
        "GPT-J, 4 layers of 512, prefill",
        Network("GPTJModel", tokens(64), _NO_CACHE | {"n_embd": 512, "n_layer": 4, "n_head": 8, "rotary_dim": 32}),
    ),
    network_recipe(
        "phi_l4_s128",
        "phi",
        "Phi, 4 layers of 512, prefill",
        Network("PhiModel", tokens(128), _DECODER | {"intermediate_size": 2048}),
    ),
    network_recipe(
        "falcon_l4_s64", "falcon", "Falcon, 4 layers of 512, prefill", Network("FalconModel", tokens(64), _DECODER)
    ),
    network_recipe("lfm2_l6_s128", "lfm2", "LFM2, 6 layers of 512, prefill", Network("Lfm2Model", tokens(128), _LFM2)),
    network_recipe(
        "patchtst_336_b8", "patchtst", "PatchTST, batch 8", Network("PatchTSTForPrediction", _series(8), _SERIES)
    ),
    network_recipe(
        "patchtsmixer_336_b8",
        "patchtsmixer",
        "PatchTSMixer, batch 8",
        Network("PatchTSMixerForPrediction", _series(8), _SERIES | {"d_model": 64, "num_layers": 4}),
    ),
    network_recipe(
        "moonshine_encoder_2s",
        "moonshine",
        "Moonshine tiny, encoder",
        Network("MoonshineModel", {"input_values": NetworkInput((1, 32_000))}, _MOONSHINE, "encoder"),
    ),
    network_recipe(
        "hifigan_v2_64",
        "hifigan",
        "HiFi-GAN V2",
        Network("SpeechT5HifiGan", {"spectrogram": NetworkInput((1, 64, 80))}, {"upsample_initial_channel": 128}),
    ),
)
