"""How well a convolution of floats fills the vector units where images have their channels last, as under OpenVINO.

oneDNN multiplies the elements of a window that lie side by side with a vector of output channels, which it fills up. A
window with few input channels in a row leaves the units waiting for their results. Narrow groups are padded, and a
depthwise convolution begins anew at each position.

The times were fitted to 7,000 convolutions of OpenVINO 2026.4 on a Zen 4, of which a core multiplies a vector of 16
floats in a cycle. They need to be right within a factor of two.
"""

import math
from dataclasses import dataclass
from typing import Self

from costmodel.ir.attributes import integer
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["ChannelsLastConvolution"]

_WAIT = 5.0  # cycles that the results of a row of the window take
# Cycles of a depthwise convolution for each position, and for each element of its window.
_POSITION, _TAP = 9.0, 1.25
_STRIDED_POSITION, _STRIDED_TAP = 23.0, 1.65
# Groups of a multiple of so many channels fill vectors; what others take, times their number of channels.
_GROUP, _OF_GROUPS, _OF_PADDED_GROUPS = 8, 1.3, 20.0


@dataclass(frozen=True, slots=True)
class ChannelsLastConvolution:
    """A convolution that reads or writes an image whose channels are last.

    Attributes:
        group: Number of groups.
        channels: Number of input channels of a group.
        filters: Number of output channels of a group.
        taps: Number of elements of the window.
        row_taps: Number of elements of the window in a row.
        strided: Whether the window moves by more than one element.
    """

    group: int
    channels: int
    filters: int
    taps: int
    row_taps: int
    strided: bool

    @classmethod
    def of(cls, layer: SequenceLayer, data: TensorType, output: TensorType) -> Self | None:
        """Describes a layer; None if it is no convolution, or has its channels first.

        Args:
            layer: Layer to describe.
            data: Type of its first input.
            output: Type of its first output.
        """
        kernel = layer.attributes.get("kernel_shape", {}).get("ints", [])
        if layer.op_type != "Conv" or not kernel or min(len(data.shape), len(output.shape)) < 2:
            return None
        if not (data.blocked or output.blocked):
            return None
        group = max(1, integer(layer.attributes, "group", 1))
        return cls(
            group=group,
            channels=max(1, data.shape[1] // group),
            filters=max(1, output.shape[1] // group),
            taps=max(1, math.prod(kernel)),
            row_taps=max(1, kernel[-1]),
            strided=math.prod(layer.attributes.get("strides", {}).get("ints", [])) != 1,
        )

    def slowdown(self, lanes: int) -> float:
        """Returns how many times as long a multiplication takes as one in full vectors with all units busy.

        Args:
            lanes: Floats of a vector.
        """
        if self.group > 1 and self.channels == self.filters == 1:
            filled = -(-self.group // lanes) * lanes / self.group
            position, tap = (_STRIDED_POSITION, _STRIDED_TAP) if self.strided else (_POSITION, _TAP)
            return filled * (position / self.taps + tap)
        if self.group > 1:
            padded = 0.0 if self.filters % _GROUP == 0 else _OF_PADDED_GROUPS / self.filters
            return max(_OF_GROUPS, padded)
        waiting = 1 + _WAIT / (self.channels * self.row_taps)
        return -(-self.filters // lanes) * lanes / self.filters * waiting
