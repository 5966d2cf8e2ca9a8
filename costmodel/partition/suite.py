"""Benchmark suites: portable folders of runnable networks that do not reveal the models they are from.

`manifest.json` lists the networks in the order of their signatures. A file beside the folder (see `private_file`),
which the author of the suite keeps, records the models that the networks are from, and where and how often each network
occurs in them. The folder is complete without that file.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import NodeProto, TensorProto, helper, numpy_helper

from costmodel.atomic_write import atomic_folder
from costmodel.errors import SuiteError
from costmodel.ir.nchwc import is_blocked, portable
from costmodel.ir.operators import opset_for
from costmodel.ir.sequence import LayerSequence, weight_indices
from costmodel.partition.decomposition import Decomposition
from costmodel.synthetic.network import build_network, value_name
from costmodel.synthetic.values import synthetic_value

__all__ = ["MANIFEST", "is_suite", "private_file", "read_suite", "suite_network", "write_suite"]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_SEQUENCE_KEY = "costmodel.ir.sequence"
_MAX_STORED_BYTES = 1024  # larger weights are filled with one value
_CONSTANT_OF_SHAPE_OPSET = 9


def suite_network(sequence: LayerSequence) -> onnx.ModelProto:
    """Builds the network of a benchmark suite: portable ONNX, with the canonical sequence in its metadata.

    Blocked layers are written in plain layout, so that the network runs on any host; to measure it, costmodel instead
    pads the canonical sequence for the block size of the measuring host. Large weights repeat one value, so the file is
    small.
    """
    plain = portable(sequence)
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in plain.layers])
    network = build_network(plain, weights=list(_weights(plain, opset)))
    helper.set_model_props(network, {_SEQUENCE_KEY: sequence.text})
    return network


def _weights(sequence: LayerSequence, opset: int) -> Iterable[TensorProto | NodeProto]:
    """Yields the initialisers and nodes that produce the weights of a sequence.

    Small weights are stored, because they can be shapes or indices; for a large one, a node repeats its first value.
    """
    for index in weight_indices(sequence):
        kind, values = sequence.values[index].type, synthetic_value(sequence, index)
        if kind.nbytes <= _MAX_STORED_BYTES:
            yield numpy_helper.from_array(values, value_name(index))
            continue
        shape = helper.make_tensor(f"shape{index}", TensorProto.INT64, [len(kind.shape)], list(kind.shape))
        fill = numpy_helper.from_array(values.flat[:1].reshape([1] * len(kind.shape)), f"fill{index}")
        yield shape
        if opset >= _CONSTANT_OF_SHAPE_OPSET:
            fill.dims[:] = [1]
            yield helper.make_node("ConstantOfShape", [shape.name], [value_name(index)], value=fill)
        else:
            yield fill
            yield helper.make_node("Tile", [fill.name, shape.name], [value_name(index)])


def write_suite(
    folder: Path,
    decompositions: Sequence[Decomposition],
    decoys: Iterable[LayerSequence] = (),
) -> int:
    """Writes the unique runnable networks of some models as a benchmark suite; returns the number of networks.

    The suite is written as a whole or not at all.

    Args:
        folder: Folder of the suite; created if necessary, and must be empty.
        decompositions: Decompositions of the models, all at the same granularity.
        decoys: Sequences that occur in no model, added to hide the real ones.

    Raises:
        SuiteError: The folder is not empty or cannot be written.
    """
    decoys = list(decoys)
    sequences = {s: q for d in decompositions for s, q in d.unique.items()}
    sequences.update((decoy.signature, decoy) for decoy in decoys)
    manifest = {
        "format": FORMAT_VERSION,
        "granularity": decompositions[0].granularity,
        "bricks": [
            {"signature": signature, "file": f"{signature}.onnx", "kind": sequences[signature].kind,
             "blocked": is_blocked(sequences[signature])}
            for signature in sorted(sequences)
        ],
    }  # fmt: skip
    private = {
        "format": FORMAT_VERSION,
        "models": {
            d.model: [
                {"signature": p.sequence.signature, "layers": list(p.layers), "needs": list(p.predecessors)}
                for p in d.segments
            ]
            for d in decompositions
        },
        "counts": Counter(p.sequence.signature for d in decompositions for p in d.segments),
        "decoys": [decoy.signature for decoy in decoys],
    }
    folder = folder.resolve()
    try:
        if folder.exists() and any(folder.iterdir()):
            raise SuiteError(f"{folder} is not empty: give a new folder with --out")
        with atomic_folder(folder) as partial:
            for signature in sorted(sequences):  # sorted, so that file times do not reveal the order of the layers
                (partial / f"{signature}.onnx").write_bytes(suite_network(sequences[signature]).SerializeToString())
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
            private_file(folder).write_text(json.dumps(private, indent=1))
    except OSError as error:
        raise SuiteError(f"{folder} cannot be written ({error.strerror}): check its parent folder") from error
    return len(sequences)


def private_file(folder: Path) -> Path:
    """Returns the path, beside `folder`, of the file that says which models the suite in `folder` was made from."""
    return folder.with_name(f"{folder.name}.private.json")


def is_suite(path: Path) -> bool:
    """Returns whether `path` is a folder with the manifest of a benchmark suite."""
    return (path / MANIFEST).is_file()


def read_suite(folder: Path) -> list[LayerSequence]:
    """Returns the sequences of a benchmark suite, in the order of its manifest.

    Raises:
        SuiteError: The manifest is damaged or of a newer format, or a network is missing, damaged or does not have the
            signature that the manifest gives.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        if manifest["format"] > FORMAT_VERSION:
            raise SuiteError(
                f"{path} has format {manifest['format']} and this costmodel knows {FORMAT_VERSION}: upgrade costmodel"
            )
        return [_read_network(folder / Path(entry["file"]).name, entry["signature"]) for entry in manifest["bricks"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SuiteError(f"{path} is damaged ({error}): copy the folder again") from error


def _read_network(path: Path, signature: str) -> LayerSequence:
    """Returns the sequence in the metadata of one network file; raises SuiteError if it has another signature."""
    try:
        network = onnx.load(str(path), load_external_data=False)
        text = next(p.value for p in network.metadata_props if p.key == _SEQUENCE_KEY)
        sequence = LayerSequence.from_text(text)
    except FileNotFoundError as error:
        raise SuiteError(f"the brick {path} is missing: copy the folder again") from error
    except (DecodeError, StopIteration, ValueError) as error:
        raise SuiteError(f"{path} is not a brick: copy the folder again") from error
    if sequence.signature != signature:
        raise SuiteError(f"{path} is not the brick that the manifest names: copy the folder again")
    return sequence
