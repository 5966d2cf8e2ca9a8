"""One decoding step of a language model, whose inputs are a token and the keys and values of the previous tokens."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.blocks import Residual
from costmodel.training.corpora.nets.layers import feed_forward

__all__ = ["GptStep", "LlamaStep"]

_HEAD = 64


def _attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Computes the attention of one token to all tokens so far; groups of query heads share key and value heads.

    Shapes:
        query: [batch, heads, 1, 64]; keys and values: [batch, key heads, tokens, 64]; result: [batch, 1, heads * 64].
    """
    groups = query.shape[1] // keys.shape[1]
    if groups > 1:
        keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    weights = torch.softmax(query @ keys.transpose(2, 3) * _HEAD**-0.5, -1)
    return (weights @ values).transpose(1, 2).flatten(2)


class _GptLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // _HEAD
        self.enter, self.join = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width)), nn.Linear(width, width)
        self.forth = feed_forward(width, 4 * width)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        batch = x.shape[0]
        query, key, value = self.enter(x).view(batch, 1, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)
        keys, values = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        x = x + self.join(_attend(query, keys, values))
        return self.forth(x), torch.stack([keys, values])


class _Step(nn.Module):
    """Base class of decoding steps, which run all layers of a language model for one token.

    A step returns the scores of the next token, and the keys and values extended by those of this token.
    """

    def __init__(self, vocabulary: int, width: int, layers: list[nn.Module], norm: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def _through(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        pasts = []
        for i, layer in enumerate(self.layers):
            x, new = layer(x, past[i])
            pasts.append(new)
        return self.norm(x) @ self.embed.weight.t(), torch.stack(pasts)


class GptStep(_Step):
    """A decoding step of a model like GPT-2 (Radford et al. 2019): learnt positions, LayerNorm, tied embeddings."""

    def __init__(self, vocabulary: int, width: int, depth: int, length: int) -> None:
        super().__init__(vocabulary, width, [_GptLayer(width) for _ in range(depth)], nn.LayerNorm(width))
        self.places = nn.Parameter(torch.zeros(1, length + 1, width))

    def forward(self, token: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Maps a token and the past keys and values to scores of the next token and the extended keys and values.

        Shapes:
            token: [batch, 1]; past: [layers, 2, batch, heads, past tokens, 64].
            result: scores [batch, 1, vocabulary]; keys and values [layers, 2, batch, heads, past tokens + 1, 64].
        """
        return self._through(self.embed(token) + self.places[:, past.shape[4] :], past)


class _RootNorm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019): divides a vector by the root of its mean square, then scales each element."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale


class _GatedLinear(nn.Module):
    """The SwiGLU feed-forward layer (Shazeer 2020)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return made


class _LlamaLayer(nn.Module):
    def __init__(self, width: int, inner: int, shared: int, length: int) -> None:
        super().__init__()
        self.heads, self.shared = width // _HEAD, shared
        self.norm = _RootNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, shared * _HEAD, bias=False) for _ in range(2))
        self.join = nn.Linear(width, width, bias=False)
        self.forth = Residual(nn.Sequential(_RootNorm(width), _GatedLinear(width, inner)))
        angle = (length * 10_000.0 ** (-torch.arange(0, _HEAD, 2) / _HEAD)).repeat(2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def _turned(self, x: Tensor, heads: int) -> Tensor:
        """Applies the rotary embedding (Su et al. 2021) of the token's position, which is the number of past tokens.

        Shapes:
            x: [batch, 1, heads * 64]; result: [batch, heads, 1, 64].
        """
        x = x.view(x.shape[0], 1, heads, _HEAD).transpose(1, 2)
        first, second = x.chunk(2, -1)
        return x * self.get_buffer("cosine") + torch.cat([-second, first], -1) * self.get_buffer("sine")

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        seen = self.norm(x)
        value = self.value(seen).view(x.shape[0], 1, self.shared, _HEAD).transpose(1, 2)
        keys = torch.cat([past[0], self._turned(self.key(seen), self.shared)], 2)
        values = torch.cat([past[1], value], 2)
        x = x + self.join(_attend(self._turned(self.query(seen), self.heads), keys, values))
        return self.forth(x), torch.stack([keys, values])


class LlamaStep(_Step):
    """A decoding step of a model like Llama (Touvron et al. 2023): rotary embeddings, grouped queries, SwiGLU."""

    def __init__(self, vocabulary: int, width: int, inner: int, shared: int, depth: int, length: int) -> None:
        layers: list[nn.Module] = [_LlamaLayer(width, inner, shared, length) for _ in range(depth)]
        super().__init__(vocabulary, width, layers, _RootNorm(width))

    def forward(self, token: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Maps a token and the past keys and values to scores of the next token and the extended keys and values.

        Shapes:
            token: [batch, 1]; past: [layers, 2, batch, key heads, past tokens, 64].
            result: scores [batch, 1, vocabulary]; keys and values [layers, 2, batch, key heads, past tokens + 1, 64].
        """
        return self._through(self.embed(token), past)
