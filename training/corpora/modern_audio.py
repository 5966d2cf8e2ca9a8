"""Audio networks of the modern corpus, whose input is a waveform at 16 kHz or its mel spectrogram."""

from costmodel.training.corpora.modern_network import Network, NetworkInput, network_recipe

__all__ = ["AUDIO"]

_RATE_HZ = 16_000

_AST_5S = {"max_length": 512, "num_labels": 527}
# The decoder is built but not exported, so that it is made as small as possible.
_WHISPER_TINY = {
    "d_model": 384,
    "encoder_layers": 4,
    "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "decoder_layers": 1,
    "decoder_attention_heads": 1,
}


def _wave(seconds: int) -> dict[str, NetworkInput]:
    return {"input_values": NetworkInput((1, seconds * _RATE_HZ))}


def _mel(bands: int, frames: int) -> dict[str, NetworkInput]:
    return {"input_features": NetworkInput((1, bands, frames))}


def _spectrogram(frames: int, bands: int) -> dict[str, NetworkInput]:
    return {"input_values": NetworkInput((1, frames, bands))}


AUDIO = (
    network_recipe("wav2vec2_base_3s", "wav2vec2", "wav2vec 2.0 base", Network("Wav2Vec2ForCTC", _wave(3))),
    network_recipe("hubert_base_1s", "wav2vec2", "HuBERT base", Network("HubertModel", _wave(1))),
    network_recipe(
        "whisper_tiny_encoder",
        "whisper",
        "Whisper tiny, encoder",
        Network("WhisperModel", _mel(80, 3000), _WHISPER_TINY, "encoder"),
    ),
    network_recipe(
        "ast_base_5s",
        "vit",
        "Audio Spectrogram Transformer",
        Network("ASTForAudioClassification", _spectrogram(512, 128), _AST_5S),
    ),
)
