"""Describes the small blocks that ONNX Runtime allocates beside the weights while it loads a model.

Whether a large block fits into the hole that another one left depends on the small blocks beside it, so the simulation
makes these as well. Their sizes and order were read off from processes of ONNX Runtime 1.31 in which a library logged
every call of malloc and free (docs/adr/0023, "Small blocks").
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from costmodel.memory.heap import Block, Heap

__all__ = ["NORMALISATION", "PACKING", "REORDERING", "Tensor", "allocate_dimensions", "play"]

# A script: numbers of bytes to allocate, with an "e" for a block that belongs to the entry of the weight in the graph;
# "-3" frees what the script allocated fourth; "A" allocates the weight aligned, "W" unaligned.
_REORDERING = """
A 160 8 -2 32 W 513 31 -5 48 17 32 32 W 32 64 -12 A 8 -15 32 17 32 64 -18 33 152 29 40 32 33 32 32 40 32 32 40 32 32
-22 -21 -20 33 -34 160 8 -36 32 256e 40e 32e 40e 32e 32e 33e 40e 32e 32e 40e 32e 32e 32e 17e 56e 17e 33 -55 136 32 32 33
33 -57 -59 -58 32 32 -61 -62 32 32 -63 -64 -60 -56 72e 17e 40 48 48 32 48 48 64 -70 48 56 17 160 32 17 48 40 48 40 48 48
48 48 -69 -71 -72 -74 -73 -68 -67 -17 -16 -24 -25 -26 -23 -29 -30 -28 -32 -33 -31 -27 -19 -6 -9 -11 -10 -13 -4 -0 -1 -3
48 20 56 -90 56 66 -92 -91 56 71 -94 -93 56 -95 672 24 8 31 12e 56 304 32 32 304 32 32 304 32 32 304 32 32 304 40 32 304
32 32 304 32 -89 21 31 -122 56 -124 513 31 -125 48 17 56 17 160 32 17 88e -126 66e 33 -136
"""
_NORMALISATION = """
A 160 8 -2 32 33 -4 A 160 8 -7 32 33 -9 A 160 8 -12 32 33 -14 A 160 8 -17 32 W 513 31 -20 48 19 32 32 W 32 64 -27 A 8
-30 32 19 32 64 -33 33 152 29 40 32 33 32 32 40 32 32 40 32 32 -37 -36 -35 33 -49 160 8 -51 32 256e 40e 32e 40e 32e
32e 33e 40e 32e 32e 40e 32e 32e 32e 19e 56e 19e 33 -70 136 32 32 33 33 -72 -74 -73 32 32 -76 -77 32 32 -78 -79 -75 -71
72e 19e 40 48 48 32 48 48 64 -85 48 56 19 160 32 19 48 40 48 40 48 48 48 48 -84 -86 -87 -89 -88 -83 -82 -32 -31 -39
-40 -41 -38 -44 -45 -43 -47 -48 -46 -42 -34 48 32 32 W A 8 -108 32 33 152 29 40 32 33 32 32 40 32 32 40 32 32 -112
-111 -110 33 -124 160 8 -126 32 256e 32e 40e 32e 32e 33e 40e 32e 32e 40e 32e 32e 32e 56e 33 -142 136 32 32 33 33 -144
-146 -145 32 32 -148 -149 32 32 -150 -151 -147 -143 72e 40 48 48 56 160 32 48 40 48 48 -155 -154 -153 -109 -114 -115
-116 -113 -119 -120 -118 -122 -123 -121 -117 31 20 20 -165 48 20 -163 20 56 18 -170 -169 56 19 -172 -171 56 -173 56
-174 672 31 31 24 8 31 12 -168 21 31 -182 32 304 104 56 112 -187 -188 513 31 -189 48 18 56 18 160 32 18 88 -190 -164
-104 -106 -105 -21 -24 -26 -25 -28 -19 -15 -16 -18 -10 -11 -13 -5 -6 -8 -0 -1 -3 31 33 -200
"""
_PACKING = "A 24 16 31 513 -3 31 -4 160 26 24 8 16 -9 -8 -5"


@dataclass
class Tensor:
    """A weight in memory, with the small blocks that belong to it.

    Attributes:
        block: The weight.
        entry: Starts of the blocks that describe it in the graph; they are freed before weights are packed.
        owners: Starts of the blocks that own it, in the order in which they are freed behind it.
    """

    block: Block
    entry: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)

    def free_entry(self, heap: Heap) -> None:
        """Frees what describes the weight in the graph."""
        for start in self.entry:
            heap.release(start)
        self.entry.clear()

    def free(self, heap: Heap) -> None:
        """Frees the weight and everything that belongs to it."""
        self.free_entry(heap)
        heap.free(self.block)
        for start in self.owners:
            heap.release(start)


class _Step(NamedTuple):
    """A call of a script.

    Attributes:
        kind: "small" for a small block, "aligned" or "plain" for the weight, "free" for a block of the script.
        number: Size in bytes of a small block; place of the block that is freed.
        of_entry: Whether the block belongs to the entry of the weight in the graph.
    """

    kind: Literal["small", "aligned", "plain", "free"]
    number: int = 0
    of_entry: bool = False


def _steps(script: str) -> list[_Step]:
    steps = []
    for word in script.split():
        if word in ("A", "W"):
            steps.append(_Step("aligned" if word == "A" else "plain"))
        elif word[0] == "-":
            steps.append(_Step("free", int(word[1:])))
        else:
            steps.append(_Step("small", int(word.rstrip("e")), word[-1] == "e"))
    return steps


# Of a weight that is reordered for blocked convolutions, of both parameters of a normalisation that is made a blocked
# convolution, and of a weight that is packed for products.
REORDERING, NORMALISATION, PACKING = _steps(_REORDERING), _steps(_NORMALISATION), _steps(_PACKING)


def play(script: list[_Step], heap: Heap, nbytes: int) -> list[Tensor]:
    """Plays a script with a weight of `nbytes`; returns the copies of the weight that are left.

    All blocks of entries go to the first one.
    """
    made: list[int] = []
    copies: dict[int, Block] = {}
    entry = []
    for kind, number, of_entry in script:
        if kind == "small":
            start = heap.unaligned(number)
            made.append(start)
            if of_entry:
                entry.append(start)
        elif kind == "free":
            copy = copies.pop(made[number], None)
            if copy is None:
                heap.release(made[number])
            else:
                heap.free(copy)
        else:
            block = heap.allocate(nbytes, aligned=kind == "aligned")
            made.append(block.start)
            copies[block.start] = block
    tensors = [Tensor(block) for block in copies.values()]
    if tensors:
        tensors[0].entry = entry
    return tensors


def allocate_dimensions(heap: Heap, rank: int) -> int:
    """Allocates the dimensions of a tensor as they are read one by one; one dimension needs no block of its own."""
    short = heap.unaligned(32)
    if rank <= 3:
        return short
    long = heap.unaligned(64)
    heap.release(short)
    return long
