"""How ONNX Runtime divides matrix products among threads.

A product is divided only if it is large enough, and into whole rows or blocks of columns; the products of a batch, and
the rows of a blocked convolution, are dealt out whole. The rules are those of ONNX Runtime 1.31
(`core/mlas/lib/sgemm.cpp`, `core/mlas/lib/convolve.cpp`, `core/mlas/lib/snchwc.cpp`, `core/providers/cpu/rnn`;
docs/adr/0030).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.features.contraction import Contraction
from costmodel.features.copies import CONVOLUTIONS, spreads_windows
from costmodel.features.products import RECURRENT, Types
from costmodel.ir.graph import TensorType
from costmodel.ir.sequence import SequenceLayer

__all__ = ["ProductTasks", "copies_on_one_thread", "product_tasks", "undivided_flops"]

# Multiplications from which on a product gets a further thread.
_MULTIPLICATIONS_OF_THREAD = 65_536
_COLUMNS_IN_BLOCK = 16
# An LSTM deals out whole sequences of a batch if there are more than so many, or if its states are small.
_LARGE_BATCH, _SMALL_STATE = 4, 256
# For each element, in simple operations; they need to be right within a factor of two.
_BIAS_FLOPS = 6.0
_COPIED_FLOPS = 15.0
_WITH_BIAS = ("Gemm", "FusedGemm")
# Convolutions whose images and groups are computed one after the other.
_IN_TURN = ("ConvTranspose", "ConvInteger")
_LSTMS = ("LSTM", "DynamicQuantizeLSTM")


@dataclass(frozen=True, slots=True)
class ProductTasks:
    """The tasks into which the products of a layer can be divided.

    Attributes:
        products: Number of tasks of equal size that are each done by one thread, unless they are large enough to be
            divided further.
        parts: Number of parts into which one of them can be divided at most.
        multiplications: Number of multiplications of one of them.
        in_turn: How often all of this is done, one time after the other.
    """

    products: int
    parts: int = 1
    multiplications: float = 0.0
    in_turn: int = 1

    def speedup(self, threads: int) -> float:
        """Returns how many times as quick `threads` threads are as one, if each is as quick as one alone."""
        each = self._parts_of_each(threads)
        largest = -(-self.parts // each) / self.parts
        rounds = -(-self.products * each // threads)
        return self.products / (rounds * largest)

    def regions(self, threads: int) -> int:
        """Returns how often the tasks are handed out to threads, one time after the other; 0 if one thread does all."""
        return self.in_turn if threads > 1 and self.products * self._parts_of_each(threads) > 1 else 0

    def _parts_of_each(self, threads: int) -> int:
        wanted = min(threads, int(self.multiplications // _MULTIPLICATIONS_OF_THREAD) + 1)
        return min(-(-wanted // self.products), self.parts)


def product_tasks(
    layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], contraction: Contraction
) -> ProductTasks:
    """Returns the tasks of the products of a layer that is no convolution in blocks of channels.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
        contraction: The contraction that characterises it.
    """
    if layer.op_type in RECURRENT:
        return _tasks_of_recurrence(layer, contraction)
    batch, positions, filters, depth = contraction.batch, contraction.rows, contraction.columns, contraction.depth
    if layer.op_type in CONVOLUTIONS:
        if batch > 1 and not _spreads_at_once(layer, inputs, outputs, contraction):
            return ProductTasks(products=batch)
        return _tasks_of_product(filters, positions, depth, in_turn=max(1, batch))
    if layer.op_type in _IN_TURN:  # the filters are the rows of its products, the positions the columns
        return _tasks_of_product(filters, positions, depth, in_turn=max(1, batch))
    if layer.op_type == "QLinearConv":
        images = max((1, *inputs[0].shape[:1])) if inputs and inputs[0] is not None else 1
        return ProductTasks(1, max(1, positions), float(batch // images) * positions * filters * depth, images)
    if layer.op_type == "Einsum":
        return _tasks_of_product(positions, filters, depth, in_turn=max(1, batch))
    return _tasks_of_product(positions, filters, depth, products=max(1, batch))


def _tasks_of_product(rows: int, columns: int, depth: int, products: int = 1, in_turn: int = 1) -> ProductTasks:
    return ProductTasks(
        products=products,
        parts=max(1, -(-columns // _COLUMNS_IN_BLOCK) if columns > rows else rows),
        multiplications=float(rows) * columns * depth,
        in_turn=in_turn,
    )


def _tasks_of_recurrence(layer: SequenceLayer, steps: Contraction) -> ProductTasks:
    """Returns the tasks of a recurrence, which goes step by step; each step of a GRU has two products."""
    batch, hidden = steps.rows, steps.depth
    if layer.op_type in _LSTMS and (batch > _LARGE_BATCH or (batch > 1 and hidden <= _SMALL_STATE)):
        return ProductTasks(products=batch)
    products = 2 if layer.op_type == "GRU" else 1
    return _tasks_of_product(batch, steps.columns // products, hidden, in_turn=steps.batch * products)


def _spreads_at_once(
    layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], contraction: Contraction
) -> bool:
    """Returns whether a convolution spreads all windows of an image before it multiplies, one thread alone."""
    data = inputs[0]
    wide = contraction.columns > contraction.rows
    return data is not None and bool(outputs) and wide and spreads_windows(layer, data, outputs[0])


def copies_on_one_thread(
    layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], contraction: Contraction | None
) -> bool:
    """Returns whether one thread copies what a layer copies before or after its products, which are divided.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
        contraction: The contraction that characterises it; None if there is none.
    """
    if layer.op_type in CONVOLUTIONS and contraction is not None:
        return _spreads_at_once(layer, inputs, outputs, contraction)
    return layer.op_type in ("ConvTranspose", "Einsum")


def undivided_flops(
    layer: SequenceLayer, inputs: Types, outputs: Sequence[TensorType], contraction: Contraction | None
) -> float:
    """Returns the time of what one thread does beside products, while the others wait, in simple operations.

    It copies the bias of a product into its result, or adds it to that of a convolution with its activation, and copies
    the result of an Einsum.

    Args:
        layer: The layer.
        inputs: Types of its inputs; None for an absent one.
        outputs: Types of its outputs.
        contraction: The contraction that characterises it; None if there is none.
    """
    output = outputs[0].elements if outputs else 0
    if layer.op_type == "Einsum":
        return _COPIED_FLOPS * output
    biased = any(kind is not None for kind in inputs[2:3])
    if layer.op_type in _WITH_BIAS:
        return _BIAS_FLOPS * output * biased
    data = inputs[0] if inputs else None
    if layer.op_type not in CONVOLUTIONS or contraction is None or data is None:
        return 0.0
    if data.blocked or (outputs and outputs[0].blocked):
        return 0.0
    # Where windows are spread in parts, each thread adds the bias to its own.
    spreads = bool(outputs) and spreads_windows(layer, data, outputs[0])
    spread_in_parts = spreads and not _spreads_at_once(layer, inputs, outputs, contraction)
    added = biased or "activation" in layer.attributes
    return _BIAS_FLOPS * output if added and contraction.batch == 1 and not spread_in_parts else 0.0
