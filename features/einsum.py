"""The steps in which ONNX Runtime computes an Einsum: sums over axes, transpositions, and batched matrix products.

The rules are those of ONNX Runtime 1.31 (`core/providers/cpu/math/einsum_utils`). They read every tensor with one axis
for each letter of the equation, of size 1 where the tensor lacks the letter, in the order in which the letters first
occur.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.features.contraction import Contraction
from costmodel.features.transposition import TransposePath, transpose_flops, transpose_path
from costmodel.ir.equation import expand_equation

__all__ = ["EinsumSteps"]

_BEGIN_FLOPS = 160_000.0  # to read the equation and to reserve the tensors between the steps
_PRODUCT_FLOPS = 4000.0  # to begin each product of a batch


@dataclass
class EinsumSteps:
    """The steps of an Einsum.

    Attributes:
        products: The batched matrix products, first to last.
        transposed: Each transposition, as its order and the shape of what is transposed.
        summed: Number of elements that are read by sums over axes.
        copied: Number of elements that are copied as they are.
    """

    products: list[Contraction] = field(default_factory=list)
    transposed: list[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    summed: int = 0
    copied: int = 0

    @classmethod
    def of(cls, equation: str, shapes: Sequence[Sequence[int]]) -> "EinsumSteps":
        """Returns the steps of an Einsum.

        Args:
            equation: The equation.
            shapes: Shape of each input.

        Raises:
            ModelError: The equation does not fit the inputs.
        """
        terms, result = expand_equation(equation, [len(shape) for shape in shapes])
        steps = cls()
        # The axes of an ellipsis come first.
        letters = sorted(dict.fromkeys("".join(terms)), key=str.isalpha)
        last_input = {letter: slot for slot, term in enumerate(terms) for letter in term}
        tensors = []
        for term, shape in zip(terms, shapes, strict=True):
            tensor = dict(zip(term, shape, strict=True))  # an axis that occurs twice stands for its diagonal
            tensor = steps._transpose(tensor, [letter for letter in letters if letter in tensor], own=False)
            tensors.append({letter: tensor.get(letter, 1) for letter in letters})
        made = tensors[0]
        steps._sum(made, [letter for letter in letters if last_input[letter] == 0 and letter not in result])
        for slot, tensor in enumerate(tensors[1:], start=1):
            last = [letter for letter in letters if last_input[letter] == slot and letter not in result]
            made = steps._multiply(made, tensor, last, final=slot == len(tensors) - 1)
        made = {letter: size for letter, size in made.items() if letter in result}
        steps._transpose(made, [letter for letter in result if letter in made], own=False)
        steps.copied += math.prod(made.values())
        return steps

    @property
    def copy_flops(self) -> float:
        """Time of all steps except the products, in simple operations; see `costmodel.features.copies`."""
        transposed = sum(transpose_flops(order, shape) for order, shape in self.transposed)
        begun = _BEGIN_FLOPS + _PRODUCT_FLOPS * sum(product.batch for product in self.products)
        return begun + self.summed + self.copied + transposed

    def _transpose(self, tensor: dict[str, int], wanted: Sequence[str], *, own: bool) -> dict[str, int]:
        """Brings the axes of a tensor into the wanted order.

        Args:
            tensor: Size of each axis by letter, in the order of the axes.
            wanted: Letters of the axes, in the order that is wanted.
            own: Whether the tensor may be changed in place, which makes it free to move an axis of size 1.
        """
        letters = list(tensor)
        order, shape = tuple(letters.index(letter) for letter in wanted), tuple(tensor.values())
        if list(wanted) != letters and not (own and transpose_path(order, shape) == TransposePath.COPY):
            self.transposed.append((order, shape))
        return {letter: tensor[letter] for letter in wanted}

    def _sum(self, tensor: dict[str, int], letters: Sequence[str]) -> bool:
        """Sums a tensor over its axes of some letters; returns whether there were any of a size above 1."""
        summed = [letter for letter in letters if tensor[letter] > 1]
        if summed:
            self.summed += math.prod(tensor.values())
            tensor.update(dict.fromkeys(summed, 1))
        return bool(summed)

    def _multiply(
        self, left: dict[str, int], right: dict[str, int], last: Sequence[str], *, final: bool
    ) -> dict[str, int]:
        """Multiplies two tensors and returns their product.

        Args:
            left: Size of each axis of the first tensor by letter.
            right: The same of the second tensor, with the same letters in the same order.
            last: Letters over which the product is summed.
            final: Whether no other product follows; the axes then keep the order that the product gives them.
        """
        letters = list(left)
        own_left = self._sum(left, [letter for letter in last if right[letter] == 1])
        own_right = self._sum(right, [letter for letter in last if left[letter] == 1])
        kept = [letter for letter in letters if letter not in last]
        both = [letter for letter in kept if left[letter] > 1 and right[letter] > 1]
        rows = [letter for letter in kept if left[letter] > 1 and right[letter] <= 1]
        columns = [letter for letter in kept if left[letter] <= 1]
        self._transpose(left, [*both, *rows, *last, *columns], own=own_left)
        self._transpose(right, [*both, *last, *columns, *rows], own=own_right)
        sizes = {letter: max(left[letter], right[letter]) for letter in letters}
        self.products.append(
            Contraction(*(math.prod(sizes[letter] for letter in part) for part in (both, rows, columns, last)))
        )
        made = {letter: 1 if letter in last else sizes[letter] for letter in (*both, *rows, *last, *columns)}
        return made if final else self._transpose(made, letters, own=True)
