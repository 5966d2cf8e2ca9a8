"""Collects the types, with logical shapes, of the values of a lowered graph from several sources."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from onnx import ModelProto, NodeProto

from costmodel.errors import LoweringError
from costmodel.ir.attributes import captured_names
from costmodel.ir.constants import dtype_name
from costmodel.ir.graph import ITEM_BYTES, TensorType
from costmodel.ir.nchwc import BLOCKED_DOMAIN, padded, reorder_axes
from costmodel.onnx_io.input_shapes import MAX_TENSOR_BYTES
from costmodel.onnx_io.shape_inference import infer_node
from costmodel.runtimes.ort.provenance import is_channels_last

__all__ = ["Shapes", "Types"]

_RUNTIME_DOMAIN = "com.microsoft"
# Fused activations that ONNX's shape inference does not know; they also occur between blocked layers.
_KEEPING_TYPE = frozenset({"QuickGelu", "Gelu", "FastGelu", "BiasGelu"})

Types = dict[str, TensorType]


class Shapes:
    """The types of all values of a lowered graph, which are filled in step by step.

    Attributes:
        types: Known types by the name of the value.
        order: Names of all values in order of first use.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        lowered: ModelProto,
        origins: Mapping[str, str],
        permuted: Mapping[str, str],
        block: int,
        opset: int,
    ) -> None:
        """Starts with the types of the constants.

        Args:
            nodes: Nodes of the lowered graph, in order.
            lowered: The lowered graph.
            origins: Names in the source model of the values that the runtime renamed, as `origins_of` returns them.
            permuted: Names of values of the source model that may have the same dimensions in another order, as
                `permuted_origins_of` returns them.
            block: Number of channels in a block of this host's NCHWc layout.
            opset: Version of ONNX's own operators.
        """
        self._nodes = nodes
        self._origins = origins
        self._permuted = permuted
        self._permuted_shapes: dict[str, tuple[int, ...]] = {}
        self._block = block
        self._opset = opset
        self._tensors = {t.name: t for t in lowered.graph.initializer}
        self.types: Types = {
            t.name: TensorType(dtype_name(t.data_type), tuple(t.dims)) for t in lowered.graph.initializer
        }
        self.order = list(
            dict.fromkeys(n for node in nodes for n in (*node.input, *node.output, *captured_names(node)) if n)
        )
        self._blocked = self._find_blocked()

    def _find_blocked(self) -> set[str]:
        blocked: set[str] = set()
        for node in self._nodes:
            if node.domain == BLOCKED_DOMAIN:
                if node.op_type != "ReorderOutput":
                    blocked |= set(node.output)
            elif any(n in blocked for n in node.input):
                blocked |= set(node.output)
        return blocked - {""}

    def missing(self) -> set[str]:
        """Returns the names of the values whose type is unknown."""
        return {n for n in self.order if n not in self.types}

    def source_names(self, made: set[str]) -> list[str]:
        """Returns the names in the source model of the values whose type is unknown, as far as they are in `made`.

        Args:
            made: Names of the values that nodes of the source model produce.
        """
        missing = [n for n in self.order if n not in self.types]
        names = (named.get(n, n) for n in missing for named in (self._origins, self._permuted))
        return [n for n in dict.fromkeys(names) if n in made]

    def learn(self, types: Types, *, observed: bool = False, by_filters: bool = True) -> None:
        """Adds types of values, then infers further types from them, layer by layer.

        Args:
            types: Types by name in the source model, or by name in the lowered graph if `observed`.
            observed: Whether the types come from running the lowered graph; then blocked values, which are padded in
                a run, are ignored.
            by_filters: Whether a blocked convolution may be taken to make as many channels as its filter has. The
                runtime pads filters to whole blocks, so that may be too many: this is for what nothing else tells.
        """
        if not observed:
            self._permuted_shapes |= {n: types[of].shape for n, of in self._permuted.items() if of in types}
        for n in self.order:
            if observed and n in self._blocked:
                continue  # a blocked value has its padded shape in a run
            kind = types.get(n if observed else self._origins.get(n, n))
            if n not in self.types and kind is not None:
                # Of a model in half precision, what the CPU computes in blocks is in single precision.
                halved = n in self._blocked and kind.dtype == "float16"
                self.types[n] = TensorType("float32" if halved else kind.dtype, kind.shape, n in self._blocked)
        for node in self._nodes:
            if any(n and n not in self.types for n in node.output) and (by_filters or not _has_padded_filter(node)):
                self._infer(node)
            if node.domain == BLOCKED_DOMAIN and node.op_type == "Conv":
                self._unpad_filter(node)

    def _infer(self, node: NodeProto) -> None:
        """Infers the types of a node's outputs from those of its inputs, if they and the operator are known."""
        if any(n and n not in self.types for n in node.input):
            return
        if node.domain == BLOCKED_DOMAIN and node.op_type.startswith("Reorder"):
            source = self.types[node.input[0]]
            axes = reorder_axes(node.op_type, len(source.shape), channels_last=is_channels_last(node))
            # A reorder into the plain layout says how many channels there are, whatever its blocks are padded to.
            channels = _integer(node, "channels") or source.shape[1]
            shape = tuple((source.shape[0], channels, *source.shape[2:])[axis] for axis in axes)
            self.types[node.output[0]] = TensorType(source.dtype, shape, node.op_type == "ReorderInput")
            return
        if node.domain == _RUNTIME_DOMAIN and node.op_type in _KEEPING_TYPE:
            kind = self.types[node.input[0]]
            self.types[node.output[0]] = TensorType(kind.dtype, kind.shape, node.output[0] in self._blocked)
            return
        for n, kind in infer_node(node, self.types, self._tensors, self._opset).items():
            if n not in self.types:
                shape = self._unpadded(n, kind.shape) if _has_padded_filter(node) else kind.shape
                self.types[n] = TensorType(kind.dtype, shape, n in self._blocked)

    def _unpadded(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of what a blocked convolution makes, with the channels that the source model gives it.

        The value has another name in the source model if the runtime moved a transposition over it, and its dimensions
        are in another order there: the number of channels is the one that is neither the batch nor of the image.

        Args:
            name: Name of the value.
            shape: Its shape with the channels of the padded filter.
        """
        batch, channels, *image = shape
        rest = list((Counter(self._permuted_shapes.get(name, ())) - Counter((batch, *image))).elements())
        is_known = len(rest) == 1 and padded(rest[0], self._block) == channels
        return (batch, rest[0], *image) if is_known else shape

    def _unpad_filter(self, node: NodeProto) -> None:
        """Sets the types of a blocked convolution's filter and bias to those that they had before they were padded."""
        data, output = self.types.get(node.input[0]), self.types.get(node.output[0])
        if data is None or output is None:
            return
        filter_type = self.types[node.input[1]]
        group = _integer(node, "group") or 1
        channels = output.shape[1]
        inner = 1 if group > 1 and filter_type.shape[1] == 1 else data.shape[1] // group
        if padded(channels, self._block) != padded(filter_type.shape[0], self._block):
            return
        self.types[node.input[1]] = TensorType(filter_type.dtype, (channels, inner, *filter_type.shape[2:]))
        if len(node.input) > 2 and node.input[2]:
            self.types[node.input[2]] = TensorType(filter_type.dtype, (channels,))

    def check(self, name: str, border: Collection[str]) -> None:
        """Checks that all values of the graph have types that costmodel can price.

        Args:
            name: Name of the model, for error messages.
            border: Names of the inputs and outputs of the model, which must not be strings or sequences.

        Raises:
            LoweringError: An element type is unknown, an input, an output or a constant is not a tensor of numbers, or
                a tensor is too large for any machine.
        """
        for value, kind in self.types.items():
            if kind.opaque and (value in border or value in self._tensors):
                remedy = "cut the model where its values are tensors of numbers"
                if kind.dtype in ("sequence", "map"):
                    remedy = "export it with tensors only, a scikit-learn classifier with options={'zipmap': False}"
                raise LoweringError(
                    f"{name}: {value} is a {kind.dtype}, which only layers in the middle of a model may exchange: "
                    f"{remedy}"
                )
            if kind.dtype not in ITEM_BYTES and not kind.opaque:
                raise LoweringError(f"{name}: {value} has elements of type {kind.dtype}: costmodel prices numbers only")
            if kind.nbytes > MAX_TENSOR_BYTES:
                raise LoweringError(
                    f"{name}: {value} would have the absurd shape {list(kind.shape)}: check the input shapes"
                )


def _has_padded_filter(node: NodeProto) -> bool:
    """Returns whether a node is a blocked convolution, whose filter the runtime may have padded."""
    return node.domain == BLOCKED_DOMAIN and node.op_type == "Conv"


def _integer(node: NodeProto, name: str) -> int:
    """Returns an integer attribute of a node, 0 if the node does not have it."""
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 0)
