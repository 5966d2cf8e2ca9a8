"""Brings a quantised model into the element types in which OpenVINO executes it, which its executed graph tells.

- In an ONNX model, a quantised tensor is dequantised before it is pooled, transposed or concatenated. OpenVINO does
  these on the bytes, and dequantises what comes out, mostly inside the layer that computes with it.
- Likewise, a tensor that is transposed and then quantised may be quantised first, by the layer that makes it.
- A tensor that several operators read has one dequantisation in the model, but each of these operators reads the bytes.
- The second factor of a product must be signed: unsigned bytes around 128 become signed ones around zero.
- Where OpenVINO computes in floats after all, quantisation and dequantisation together are one primitive that rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.ir.graph import Layer, LayerGraph, TensorType
from costmodel.runtimes.openvino.executed import Primitive

__all__ = ["in_executed_types", "rounding_quantisations"]

_BYTES = ("i8", "u8")
# Operators that only move elements, of whatever type, or choose among them.
_MOVING = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip


def in_executed_types(graph: LayerGraph, primitives: Sequence[Primitive]) -> LayerGraph:
    """Returns a model in which operators read bytes wherever OpenVINO executes them on bytes.

    Args:
        graph: The model that was compiled, with the names of its nodes as names of layers.
        primitives: The executed graph.
    """
    if not any(layer.op_type == "DequantizeLinear" for layer in graph.layers):
        return graph
    return _Rewriting(graph, primitives).result()


def rounding_quantisations(graph: LayerGraph, primitives: Sequence[Primitive]) -> set[str]:
    """Returns the names of the quantisations whose results OpenVINO keeps as floats.

    Args:
        graph: The model that was compiled, with the names of its nodes as names of layers.
        primitives: The executed graph.
    """
    to_bytes = {
        source for one in primitives if one.kind == "Reorder" and one.dtype in _BYTES for source, _ in one.inputs
    }
    operators = {
        name
        for position, one in enumerate(primitives)
        if one.dtype == "f32" and position not in to_bytes
        for name in one.operators
    }
    return {layer.name for layer in graph.layers if layer.op_type == "QuantizeLinear" and layer.name in operators}


class _Rewriting:
    """The rewriting of one model.

    Attributes:
        _pending: For each value that is dequantised only where it is read, its dequantisation.
    """

    def __init__(self, graph: LayerGraph, primitives: Sequence[Primitive]) -> None:
        self._graph = graph
        self._primitive = {name: one for one in primitives if one.kind != "Reorder" for name in one.operators}
        self._readers: dict[str, list[Layer]] = {}
        for layer in graph.layers:
            for name in layer.inputs:
                self._readers.setdefault(name, []).append(layer)
        self._types = dict(graph.types)
        self._constants = dict(graph.constants)
        rounding = rounding_quantisations(graph, primitives)
        self._rounded = {layer.outputs[0] for layer in graph.layers if layer.name in rounding}
        self._layers: list[Layer] = []
        self._names: set[str] = set()
        self._dequantised: set[str] = set()
        self._pending: dict[str, Layer] = {}
        self._on_bytes = self._candidates()

    def result(self) -> LayerGraph:
        """Returns the rewritten model."""
        merged = set[str]()
        for layer in self._with_early_quantisations():
            if layer.name in merged:
                continue
            if self._is_of_an_activation(layer):
                self._pending[layer.outputs[0]] = self._signed(layer, layer.inputs[0])
            elif layer.op_type == "QuantizeLinear" and self._is_made_signed(layer):
                self._types[layer.outputs[0]] = replace(self._types[layer.outputs[0]], dtype="int8")
                self._add(self._signed(layer, layer.outputs[0]))
            elif layer.name in self._on_bytes and self._reads_bytes_of_one_type(layer):
                self._add_on_bytes(layer, merged)
            else:
                self._add(layer)
        for name in self._graph.outputs:
            if name in self._pending:
                self._dequantise(name, name)
        return replace(self._graph, layers=tuple(self._layers), types=self._types, constants=self._constants)

    def _reads_bytes_of_one_type(self, layer: Layer) -> bool:
        """Returns whether all elements that an operator moves are dequantised bytes, either signed or unsigned."""
        data = _data_inputs(layer)
        return all(name in self._pending for name in data) and len(set(map(self._quantised_dtype, data))) == 1

    def _quantised_dtype(self, name: str) -> str:
        return self._types[self._pending[name].inputs[0]].dtype

    def _with_early_quantisations(self) -> list[Layer]:
        """Returns the layers, with quantisations before the operators that already move their bytes."""
        layers = {layer.name: layer for layer in self._graph.layers}
        producer = {name: layer.name for layer in self._graph.layers for name in layer.outputs if name}
        before: dict[str, Layer] = {}  # a new layer by the name of the one that it precedes
        for quantising in self._graph.layers:
            chain = self._moving_bytes_before(quantising, layers, producer)
            view = chain[0] if chain and chain[0] not in self._primitive else None
            if view is not None:
                readers = self._readers.get(quantising.outputs[0], [])
                if len(readers) != 1 or readers[0].op_type != "DequantizeLinear":
                    continue
                self._put_behind(view, readers[0], quantising.outputs[0], layers, before)
                del chain[0]
            if not chain:
                continue
            first = layers[chain[-1]]
            source, dtype = first.inputs[0], self._types[quantising.outputs[0]].dtype
            result = f"{source}/{quantising.name}"
            self._types[result] = TensorType(dtype, self._types[source].shape)
            for name in chain:
                self._types[layers[name].outputs[0]] = replace(self._types[layers[name].outputs[0]], dtype=dtype)
            before[first.name] = replace(quantising, inputs=(source, *quantising.inputs[1:]), outputs=(result,))
            layers[first.name] = replace(first, inputs=(result, *first.inputs[1:]))
            layers[chain[0]] = replace(layers[chain[0]], outputs=quantising.outputs)
            del layers[quantising.name]
        return [one for name, layer in layers.items() for one in (before.get(name), layer) if one is not None]

    def _put_behind(
        self, view: str, dequantising: Layer, quantised: str, layers: dict[str, Layer], before: dict[str, Layer]
    ) -> None:
        """Puts a transposition that OpenVINO does not execute behind the dequantisation of what it reads."""
        layer = layers.pop(view)
        shape = self._types[layer.inputs[0]].shape
        self._types[quantised] = replace(self._types[quantised], shape=shape)
        between = f"{dequantising.outputs[0]}/{view}"
        self._types[between] = replace(self._types[dequantising.outputs[0]], shape=shape)
        before[dequantising.name] = replace(layers[dequantising.name], outputs=(between,))
        layers[dequantising.name] = replace(layer, inputs=(between,), outputs=dequantising.outputs)

    def _moving_bytes_before(
        self, quantising: Layer, layers: Mapping[str, Layer], producer: Mapping[str, str]
    ) -> list[str]:
        """Returns the names of the operators that move bytes before the model quantises them, the last one first.

        Args:
            quantising: A layer.
            layers: The layers by name.
            producer: The name of the layer that produces each value.
        """
        if quantising.op_type != "QuantizeLinear" or quantising.name in self._primitive:
            return []
        chain = list[str]()
        name = quantising.inputs[0]
        while (before := layers.get(producer.get(name, ""))) is not None:
            primitive = self._primitive.get(before.name)
            if (
                before.op_type not in ("Reshape", "Transpose")
                or len(self._readers[name]) != 1
                or name in self._graph.outputs
                or (primitive is not None and primitive.dtype not in _BYTES)
            ):
                break
            chain.append(before.name)
            name = before.inputs[0]
        return chain if any(one in self._primitive for one in chain) else []

    def _is_made_signed(self, layer: Layer) -> bool:
        """Returns whether OpenVINO quantises to signed bytes what the model quantises to unsigned ones."""
        primitive = self._primitive.get(layer.name)
        unsigned = self._types[layer.outputs[0]].dtype == "uint8"
        return unsigned and len(layer.inputs) > 2 and primitive is not None and primitive.dtype == "i8"

    def _signed(self, layer: Layer, quantised: str) -> Layer:
        """Returns a quantisation or dequantisation with a zero as its zero point if the quantised value is signed."""
        if len(layer.inputs) < 3 or self._types[quantised].dtype == self._types[layer.inputs[2]].dtype:
            return layer
        zero = f"{layer.inputs[2]}/signed"
        self._types[zero] = replace(self._types[layer.inputs[2]], dtype=self._types[quantised].dtype)
        self._constants[zero] = (0,)
        return replace(layer, inputs=(*layer.inputs[:2], zero))

    def _candidates(self) -> set[str]:
        """Returns the names of the operators that run on bytes if what they read is quantised."""
        found = set[str]()
        for layer in reversed(self._graph.layers):
            if layer.op_type not in _MOVING or not self._types[layer.outputs[0]].dtype.startswith("float"):
                continue
            primitive = self._primitive.get(layer.name)
            readers = self._readers.get(layer.outputs[0], [])
            if primitive is None:  # OpenVINO made one primitive of it and what reads its result, or found it a view
                on_bytes = len(readers) == 1 and readers[0].name in found
            else:
                on_bytes = primitive.dtype in _BYTES
            if on_bytes:
                found.add(layer.name)
        return found

    def _is_of_an_activation(self, layer: Layer) -> bool:
        """Returns whether a layer dequantises, by a single scale, a tensor that is not a weight."""
        return (
            layer.op_type == "DequantizeLinear"
            and layer.inputs[0] not in self._graph.constants
            and self._types[layer.inputs[1]].elements == 1
        )

    def _add(self, layer: Layer) -> None:
        """Adds a layer that reads its inputs as the model says, with dequantisations of its own.

        Dequantisations that are primitives of their own, or belong to the one that rounds, are shared.
        """
        inputs = list(layer.inputs)
        for name in dict.fromkeys(n for n in layer.inputs if n in self._pending):
            pending = self._pending[name]
            own = pending.name in self._primitive or pending.inputs[0] in self._rounded
            shared = own or len(self._readers.get(name, ())) <= 1
            read = self._dequantise(name, name if shared else f"{name}/{layer.name}")
            inputs = [read if n == name else n for n in inputs]
        self._layers.append(replace(layer, inputs=tuple(inputs)))

    def _dequantise(self, name: str, result: str) -> str:
        """Adds the dequantisation of a value under another name if it is not there yet, and returns that name."""
        if result in self._dequantised:
            return result
        self._dequantised.add(result)
        pending = self._pending[name]
        own = pending.name if pending.name not in self._names else f"{pending.name}/{result}"
        self._names.add(own)
        self._types[result] = self._types[name]
        self._layers.append(replace(pending, name=own, outputs=(result,)))
        return result

    def _add_on_bytes(self, layer: Layer, merged: set[str]) -> None:
        """Adds a layer that reads and writes bytes, and leaves the dequantisation to those who read its results.

        Args:
            layer: The layer.
            merged: Names of layers that are no layers of their own, to which the quantisation of its result is added
                if OpenVINO executes both as one.
        """
        data = _data_inputs(layer)
        before = {name: self._pending[name] for name in data}
        first = before[data[0]]
        dtype = self._quantised_dtype(data[0])
        inputs = tuple(before[n].inputs[0] if n in before else n for n in layer.inputs)
        quantising = self._quantisation_of(layer)
        if quantising is not None and self._types[quantising.outputs[0]].dtype == dtype:
            merged.add(quantising.name)
            sources = tuple(dict.fromkeys((*layer.sources, *quantising.sources)))
            self._layers.append(replace(layer, inputs=inputs, outputs=quantising.outputs, sources=sources))
            return
        outputs = []
        for name in layer.outputs:
            if name:
                kind = self._types[name]
                self._types[f"{name}/quantised"] = TensorType(dtype, kind.shape)
                self._pending[name] = replace(
                    first, name=f"{name}/dequantised", inputs=(f"{name}/quantised", *first.inputs[1:]), outputs=(name,)
                )
            outputs.append(name and f"{name}/quantised")
        self._layers.append(replace(layer, inputs=inputs, outputs=tuple(outputs)))

    def _quantisation_of(self, layer: Layer) -> Layer | None:
        """Returns the quantisation of the result of a layer, if OpenVINO executes both as one primitive."""
        readers = self._readers.get(layer.outputs[0], [])
        if len(readers) != 1 or readers[0].op_type != "QuantizeLinear" or layer.outputs[0] in self._graph.outputs:
            return None
        its = self._primitive.get(readers[0].name)
        return readers[0] if its is None or its is self._primitive.get(layer.name) else None


def _data_inputs(layer: Layer) -> Sequence[str]:
    """Returns the inputs whose elements an operator moves."""
    return layer.inputs if layer.op_type == "Concat" else layer.inputs[:1]
