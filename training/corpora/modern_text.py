"""Text networks of the modern corpus: encoders for search and classification, and small language models.

The language models process a prompt.
"""

from costmodel.training.corpora.modern_network import Network, network_recipe, pairs, tokens

__all__ = ["TEXT"]

_BERT_SMALL = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
_ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
# The default of AlbertConfig is the xxlarge model, 12 times as wide.
_ALBERT_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_DEBERTA_XSMALL = {
    "vocab_size": 128100,
    "hidden_size": 384,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
}
# Fewer than ModernBERT-base's 22 layers, so that the file stays below half a gigabyte.
_MODERN_BERT = {"num_hidden_layers": 10}
_MARIAN = {
    "vocab_size": 58101,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 1,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "max_position_embeddings": 512,
    "activation_function": "swish",
    "pad_token_id": 58100,
}
_NO_CACHE = {"use_cache": False}
_LLAMA = _NO_CACHE | {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
}
# SmolLM-135M's widths, 12 of its 30 layers.
_SMOLLM = _NO_CACHE | {
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 12,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "tie_word_embeddings": True,
}
# Qwen2-0.5B's widths, 6 of its 24 layers and a fifth of its vocabulary.
_QWEN2 = _NO_CACHE | {
    "vocab_size": 32000,
    "hidden_size": 896,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "tie_word_embeddings": True,
}

TEXT = (
    network_recipe("bert_base_s128", "bert", "BERT-base", Network("BertModel", pairs(128))),
    network_recipe("bert_base_s384", "bert", "BERT-base, questions", Network("BertForQuestionAnswering", pairs(384))),
    network_recipe("bert_small_s64_b4", "bert", "BERT-small, batch 4", Network("BertModel", pairs(64, 4), _BERT_SMALL)),
    network_recipe("minilm_l6_s128", "bert", "MiniLM-L6", Network("BertModel", pairs(128), _MINILM)),
    network_recipe("minilm_l6_s64_b8", "bert", "MiniLM-L6, batch 8", Network("BertModel", pairs(64, 8), _MINILM)),
    network_recipe(
        "distilbert_s128", "bert", "DistilBERT", Network("DistilBertForSequenceClassification", tokens(128))
    ),
    network_recipe(
        "roberta_base_s64", "bert", "RoBERTa-base", Network("RobertaForSequenceClassification", tokens(64), _ROBERTA)
    ),
    network_recipe("mpnet_base_s96", "bert", "MPNet-base", Network("MPNetModel", tokens(96))),
    network_recipe(
        "albert_base_s128", "bert", "ALBERT-base", Network("AlbertForSequenceClassification", pairs(128), _ALBERT_BASE)
    ),
    network_recipe(
        "mobilebert_s128", "mobilebert", "MobileBERT", Network("MobileBertForSequenceClassification", pairs(128))
    ),
    network_recipe(
        "deberta_v3_xsmall_s128",
        "deberta",
        "DeBERTa-v3-xsmall",
        Network("DebertaV2ForSequenceClassification", tokens(128), _DEBERTA_XSMALL),
    ),
    network_recipe(
        "modernbert_l10_s256",
        "modernbert",
        "ModernBERT, 10 layers",
        Network("ModernBertModel", tokens(256), _MODERN_BERT),
    ),
    network_recipe("t5_small_encoder_s256", "t5", "T5-small, encoder", Network("T5EncoderModel", tokens(256))),
    network_recipe(
        "marian_encoder_s64", "bart", "Marian, encoder", Network("MarianModel", tokens(64), _MARIAN, part="encoder")
    ),
    network_recipe(
        "clip_text_b_s77", "clip", "CLIP ViT-B/32, text", Network("CLIPTextModelWithProjection", tokens(77))
    ),
    network_recipe("gpt2_s128", "gpt2", "GPT-2, prefill", Network("GPT2Model", tokens(128), _NO_CACHE)),
    network_recipe(
        "distilgpt2_s32",
        "gpt2",
        "DistilGPT-2, prefill",
        Network("GPT2LMHeadModel", tokens(32), _NO_CACHE | {"n_layer": 6}),
    ),
    network_recipe(
        "llama_l4_h1024_s128",
        "llama",
        "Llama, 4 layers of 1024, prefill",
        Network("LlamaForCausalLM", tokens(128), _LLAMA),
    ),
    network_recipe(
        "smollm_l12_s64", "llama", "SmolLM, 12 layers, prefill", Network("LlamaForCausalLM", tokens(64), _SMOLLM)
    ),
    network_recipe(
        "qwen2_l6_h896_s256", "llama", "Qwen2, 6 layers of 896, prefill", Network("Qwen2Model", tokens(256), _QWEN2)
    ),
)
