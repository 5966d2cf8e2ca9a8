"""What many architectures are put together from."""

import torch
from torch import Tensor, nn

__all__ = [
    "Concat",
    "LocalResponseNorm",
    "PreActivated",
    "Residual",
    "Sum",
    "classifier",
    "conv",
    "conv_bn",
    "conv_bn_relu",
    "conv_relu",
    "upsample",
]

_OPSET = 20  # that torch's exporter writes


class Concat(nn.Module):
    """Branches side by side, their outputs joined along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """What each branch makes of `x`, joined."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class Sum(nn.Module):
    """Two branches side by side, their outputs added."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        """What both branches make of `x`, added."""
        added: Tensor = self.first(x) + self.second(x)
        return added


class Residual(nn.Module):
    """after(shortcut(x) + gate(branch(x))), the branch with weak random weights so that depth does not blow up.

    Args:
        branch: What is added.
        shortcut: Nothing, or the projection to the branch's shape.
        gate: What the branch goes through last.
        after: What the sum goes through.
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
        """`x` and what the branch makes of it."""
        made: Tensor = self.after(self.shortcut(x) + self.gate(self.branch(x)))
        return made


class PreActivated(nn.Module):
    """A residual block that normalises and activates first (He et al. 2016), for the branch and the projection alike.

    Args:
        channels: Of the input.
        branch: What is added.
        projection: To the branch's shape; None where the input has it.
    """

    def __init__(self, channels: int, branch: nn.Module, projection: nn.Module | None = None) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.branch = branch
        self.projection = projection

    def forward(self, x: Tensor) -> Tensor:
        """`x`, or its projection, and what the branch makes of it."""
        activated = self.activate(x)
        shortcut = x if self.projection is None else self.projection(activated)
        added: Tensor = shortcut + self.branch(activated)
        return added


class LocalResponseNorm(nn.Module):
    """AlexNet's normalisation as ONNX's own LRN; torch's takes it apart into pads and pools.

    It exists in the exported file only: run by torch, it gives zeros.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Has the shape of `x`."""
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
    """A convolution that keeps the size, unless told otherwise by stride or padding."""
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
    """As before there was batch normalisation."""
    return nn.Sequential(conv(ins, outs, kernel, stride, dilation=dilation, padding=padding, bias=True), nn.ReLU())


def conv_bn(
    ins: int, outs: int, kernel: int | tuple[int, int] = 3, stride: int = 1, *, groups: int = 1, dilation: int = 1,
    padding: int | tuple[int, int] | None = None, bias: bool = False,
) -> nn.Sequential:  # fmt: skip
    """Normalised, not activated."""
    convolution = conv(ins, outs, kernel, stride, groups=groups, dilation=dilation, padding=padding, bias=bias)
    return nn.Sequential(convolution, nn.BatchNorm2d(outs))


def conv_bn_relu(
    ins: int, outs: int, kernel: int | tuple[int, int] = 3, stride: int = 1, *, groups: int = 1, dilation: int = 1,
    padding: int | tuple[int, int] | None = None, bias: bool = False,
) -> nn.Sequential:  # fmt: skip
    """The commonest triple there is."""
    pair = conv_bn(ins, outs, kernel, stride, groups=groups, dilation=dilation, padding=padding, bias=bias)
    return nn.Sequential(*pair, nn.ReLU())


def classifier(channels: int, classes: int) -> nn.Sequential:
    """Global average, one fully connected layer, probabilities."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes), nn.Softmax(1))


def upsample(factor: int = 2, mode: str = "nearest") -> nn.Upsample:
    """To `factor` times the size."""
    return nn.Upsample(scale_factor=factor, mode=mode)
