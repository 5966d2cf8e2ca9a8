"""Building blocks that many image networks share."""

import torch
from torch import Tensor, nn

__all__ = [
    "Concat",
    "LocalResponseNorm",
    "PreActivated",
    "Residual",
    "SqueezeExcite",
    "Sum",
    "classifier",
    "conv",
    "conv_bn",
    "conv_bn_leaky",
    "conv_bn_relu",
    "conv_relu",
    "rows_of_cells",
    "upsample",
]

_OPSET = 20  # the opset that torch's exporter writes


class Concat(nn.Module):
    """Parallel branches whose outputs are concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs of all branches for `x`, concatenated along the channels."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class Sum(nn.Module):
    """Two parallel branches whose outputs are added."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """Returns the sum of the outputs of the two branches for `x`."""
        added: Tensor = self.first(x) + self.second(x)
        return added


class Residual(nn.Module):
    """A residual block, which computes after(shortcut(x) + gate(branch(x))).

    The functions that fill a network with random weights give small ones to the last layer of the branch, so that
    activations do not grow with depth.

    Args:
        branch: Module whose output is added to the shortcut.
        shortcut: Projection of the input to the shape of the branch's output; None for the identity.
        gate: Module applied to the output of the branch; None for the identity.
        after: Module applied to the sum; None for the identity.
    """

    def __init__(
        self,
        branch: nn.Module,
        shortcut: nn.Module | None = None,
        *,
        gate: nn.Module | None = None,
        after: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut or nn.Identity()
        self.gate = gate or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Returns after(shortcut(x) + gate(branch(x))), where these four modules are the arguments of the class."""
        made: Tensor = self.after(self.shortcut(x) + self.gate(self.branch(x)))
        return made


class PreActivated(nn.Module):
    """A pre-activation residual block (He et al. 2016): normalisation and ReLU precede the branch and the projection.

    Args:
        channels: Number of channels of the input.
        branch: Module whose output is added to the input or its projection.
        projection: Projection of the normalised and activated input to the shape of the branch's output; None if the
            input has this shape already.
    """

    def __init__(self, channels: int, branch: nn.Module, projection: nn.Module | None = None) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.branch = branch
        self.projection = projection

    def forward(self, x: Tensor) -> Tensor:
        """Returns branch(a) + projection(a), where a is ReLU(norm(`x`)); without a projection, branch(a) + x."""
        activated = self.activate(x)
        shortcut = x if self.projection is None else self.projection(activated)
        added: Tensor = shortcut + self.branch(activated)
        return added


class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2017): scales each channel by a weight computed from the whole feature map.

    Args:
        channels: Number of channels of the feature map.
        thin: Number of channels between the two layers that compute the weights.
        gate: Activation that makes weights from 0 to 1, such as a sigmoid or a hard sigmoid.
    """

    def __init__(self, channels: int, thin: int, gate: nn.Module) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(channels, thin, 1, bias=True), nn.ReLU(),
            conv(thin, channels, 1, bias=True), gate,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`, of shape [batch, channels, height, width], with each channel scaled by its weight."""
        weighed: Tensor = x * self.weigh(x)
        return weighed


class LocalResponseNorm(nn.Module):
    """AlexNet's local response normalisation, exported as ONNX's LRN; torch's own is exported as pads and pools.

    The module is for export only: run by torch, it returns zeros.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the shape of `x`: the normalised values in the exported model, zeros in torch."""
        return torch.onnx.ops.symbolic(
            "LRN",
            [x],
            {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
            dtype=x.dtype,
            shape=x.shape,
            version=_OPSET,
        )


def conv(
    ins: int,
    outs: int,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    *,
    dilation: int = 1,
    groups: int = 1,
    padding: int | tuple[int, int] | None = None,
    bias: bool = False,
) -> nn.Conv2d:
    """Returns a 2-D convolution that keeps height and width, unless `stride` or `padding` changes them."""
    if padding is None:
        high, wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (dilation * (high - 1) // 2, dilation * (wide - 1) // 2)
    return nn.Conv2d(ins, outs, kernel, stride, padding, dilation, groups, bias)


def conv_relu(
    ins: int,
    outs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    dilation: int = 1,
    padding: int | None = None,
) -> nn.Sequential:
    """Returns a convolution with bias, followed by a ReLU, without normalisation."""
    return nn.Sequential(conv(ins, outs, kernel, stride, dilation=dilation, padding=padding, bias=True), nn.ReLU())


def conv_bn(
    ins: int, outs: int, kernel: int | tuple[int, int] = 3, stride: int = 1, *, groups: int = 1, dilation: int = 1,
    padding: int | tuple[int, int] | None = None, bias: bool = False,
) -> nn.Sequential:  # fmt: skip
    """Returns a convolution followed by a batch normalisation, without activation."""
    convolution = conv(ins, outs, kernel, stride, groups=groups, dilation=dilation, padding=padding, bias=bias)
    return nn.Sequential(convolution, nn.BatchNorm2d(outs))


def conv_bn_relu(
    ins: int, outs: int, kernel: int | tuple[int, int] = 3, stride: int = 1, *, groups: int = 1, dilation: int = 1,
    padding: int | tuple[int, int] | None = None, bias: bool = False,
) -> nn.Sequential:  # fmt: skip
    """Returns a convolution followed by a batch normalisation and a ReLU."""
    pair = conv_bn(ins, outs, kernel, stride, groups=groups, dilation=dilation, padding=padding, bias=bias)
    return nn.Sequential(*pair, nn.ReLU())


def conv_bn_leaky(ins: int, outs: int, kernel: int = 3) -> nn.Sequential:
    """Returns a convolution followed by a batch normalisation and a leaky ReLU."""
    return nn.Sequential(*conv_bn(ins, outs, kernel), nn.LeakyReLU(0.1))


def classifier(channels: int, classes: int) -> nn.Sequential:
    """Returns a classification head: global average pool, fully connected layer and softmax."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes), nn.Softmax(1))


def upsample(factor: int = 2, mode: str = "nearest") -> nn.Upsample:
    """Returns a layer that enlarges the height and width of a feature map by `factor`."""
    return nn.Upsample(scale_factor=factor, mode=mode)


def rows_of_cells(x: Tensor, columns: int) -> Tensor:
    """Returns a feature map as a matrix: `columns` of a cell's channels in each row, cell after cell."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, columns)
