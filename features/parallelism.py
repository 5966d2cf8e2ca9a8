"""How ONNX Runtime divides the work of a layer among threads.

A product is divided only if it is large enough, and into whole rows or blocks of columns; the products of a batch, and
the rows of a blocked convolution, are dealt out whole; many kernels run on one thread whatever their size. The rules
for products are those of ONNX Runtime 1.31 (`core/mlas/lib/sgemm.cpp`, `core/mlas/lib/convolve.cpp`,
`core/mlas/lib/snchwc.cpp`); the list of kernels that run on one thread was taken from measurements, in which they take
at least 0.8 times as long on two threads as on one (docs/adr/0030).
"""

from dataclasses import dataclass

from costmodel.features.contraction import Contraction
from costmodel.features.products import RECURRENT
from costmodel.ir.sequence import SequenceLayer

__all__ = ["ProductTasks", "copies_on_one_thread", "product_tasks", "runs_on_one_thread"]

# Multiplications from which on a product gets a further thread.
_MULTIPLICATIONS_OF_THREAD = 65_536
_COLUMNS_IN_BLOCK = 16
_ON_ONE_THREAD = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AttnLSTM", "BatchNormalization", "Cast", "Cos", "Cosh",
    "CumSum", "DFT", "DequantizeLinear", "Dropout", "Expand", "GatherND", "Hardmax", "InstanceNormalization",
    "IsInf", "IsNaN", "LpNormalization", "LpPool", "MaxRoiPool", "Mean", "Neg", "NhwcMaxPool",
    "NonMaxSuppression", "NonZero", "Pad", "QLinearConcat", "QLinearMul", "QLinearWhere", "RandomNormalLike",
    "RandomUniformLike", "STFT", "SVMClassifier", "ScatterElements", "ScatterND", "Sign", "Sin", "Sinh",
    "SpaceToDepth", "Sum", "Tan", "Unique", "Upsample", "Where",
})  # fmt: skip
# Operators whose copies are made on one thread although their products are divided.
_COPIES_ON_ONE_THREAD = frozenset({"ConvTranspose", "Einsum", *RECURRENT})


@dataclass(frozen=True, slots=True)
class ProductTasks:
    """The tasks into which the products of a layer can be divided.

    Attributes:
        products: Number of tasks of equal size that are each done by one thread, unless they are large enough to be
            divided further.
        parts: Number of parts into which one of them can be divided at most.
        multiplications: Number of multiplications of one of them.
    """

    products: int
    parts: int = 1
    multiplications: float = 0.0

    def speedup(self, threads: int) -> float:
        """Returns how many times as quick `threads` threads are as one, if each is as quick as one alone."""
        wanted = min(threads, int(self.multiplications // _MULTIPLICATIONS_OF_THREAD) + 1)
        each = min(-(-wanted // self.products), self.parts)
        largest = -(-self.parts // each) / self.parts
        rounds = -(-self.products * each // threads)
        return self.products / (rounds * largest)


def product_tasks(layer: SequenceLayer, contraction: Contraction) -> ProductTasks:
    """Returns the tasks of the products of a layer that is no convolution in blocks of channels.

    Args:
        layer: The layer.
        contraction: The contraction that characterises it.
    """
    rows, columns = contraction.rows, contraction.columns
    if "Conv" in layer.op_type:  # the filters are the rows of its products, the positions the columns
        rows, columns = columns, rows
    return ProductTasks(
        products=1 if layer.op_type in RECURRENT else max(1, contraction.batch),  # a recurrence goes step by step
        parts=max(1, -(-columns // _COLUMNS_IN_BLOCK) if columns > rows else rows),
        multiplications=float(rows) * columns * contraction.depth,
    )


def runs_on_one_thread(layer: SequenceLayer) -> bool:
    """Returns whether the kernel of a layer without products uses one thread, whatever the size of the layer."""
    return layer.op_type in _ON_ONE_THREAD


def copies_on_one_thread(layer: SequenceLayer) -> bool:
    """Returns whether one thread copies what a layer copies before or after its products."""
    return layer.op_type in _COPIES_ON_ONE_THREAD or runs_on_one_thread(layer)
