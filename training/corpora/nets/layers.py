"""Building blocks for sequences, volumes and tables; those for images are in `blocks`."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from costmodel.training.corpora.nets.blocks import Residual

__all__ = [
    "Attention",
    "Gated",
    "Permuted",
    "Rearranged",
    "Tokens",
    "conv1d_bn_relu",
    "encoder_layer",
    "feed_forward",
    "mlp",
]


class Permuted(nn.Module):
    """A module that exchanges two dimensions of its input, applies other modules, and exchanges the dimensions back."""

    def __init__(self, *inner: nn.Module, first: int = 1, second: int = 2) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output of the inner modules for `x`, with the two dimensions exchanged before and after."""
        made: Tensor = self.inner(x.transpose(self.first, self.second))
        return made.transpose(self.first, self.second)


class Rearranged(nn.Module):
    """A module that permutes the dimensions of a tensor, and optionally flattens the last ones into one."""

    def __init__(self, *order: int, joined: int | None = None) -> None:
        super().__init__()
        self.order, self.joined = order, joined

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x` with its dimensions permuted and, if the module was built to do so, the last ones flattened."""
        x = x.permute(self.order)
        return x if self.joined is None else x.flatten(self.joined)


class Gated(nn.Module):
    """A gate (Dauphin et al. 2016): value * activation(gate), where value and gate are the two halves of the input."""

    def __init__(self, activation: nn.Module, dimension: int = -1) -> None:
        super().__init__()
        self.activation, self.dimension = activation, dimension

    def forward(self, x: Tensor) -> Tensor:
        """Returns value * activation(gate), which has half as many channels as `x`."""
        value, gate = x.chunk(2, self.dimension)
        gated: Tensor = value * self.activation(gate)
        return gated


class Tokens(nn.Module):
    """A patch embedding: cuts an image into square patches and projects each to a vector."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the embedded patches of the images, in row-major order.

        Shapes:
            x: [batch, 3, size, size]; result: [batch, (size / patch)^2, width].
        """
        cut: Tensor = self.cut(x)
        return cut.flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention (Vaswani et al. 2017).

    Args:
        width: Width of a token vector.
        heads: Number of heads; a divisor of the width.
        causal: Whether a token attends only to itself and earlier tokens.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps token vectors of shape [batch, tokens, width] to token vectors of the same shape."""
        batch, length, width = x.shape
        projected = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = projected[0], projected[1], projected[2]
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        joined: Tensor = self.join(seen.transpose(1, 2).reshape(batch, length, width))
        return joined


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Returns fully connected layers between successive widths, with an activation after each layer but the last."""
    layers: list[nn.Module] = []
    for ins, outs in pairwise(widths):
        layers += [nn.Linear(ins, outs), activation()]
    return nn.Sequential(*layers[:-1])


def feed_forward(width: int, inner: int, activation: type[nn.Module] = nn.GELU) -> nn.Module:
    """Returns the feed-forward half of a transformer layer: a residual block of a normalisation and an MLP."""
    return Residual(nn.Sequential(nn.LayerNorm(width), *mlp(width, inner, width, activation=activation)))


def encoder_layer(width: int, heads: int, *, ratio: int = 4, causal: bool = False) -> nn.Module:
    """Returns a pre-norm transformer encoder layer: normalisations precede the attention and the feed-forward half."""
    attend = Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads, causal=causal)))
    return nn.Sequential(attend, feed_forward(width, ratio * width))


def conv1d_bn_relu(
    ins: int, outs: int, kernel: int, stride: int = 1, *, groups: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Returns a 1-D convolution, a batch normalisation and a ReLU; only `stride` makes the sequence shorter."""
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv1d(ins, outs, kernel, stride, padding, dilation, groups, bias=False), nn.BatchNorm1d(outs), nn.ReLU()
    )
