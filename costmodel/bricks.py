"""A benchmark suite that travels: a folder of runnable networks that says nothing about the models they are from.

`manifest.json` lists the bricks in the order of their signatures. Which model a brick came from, how often and
where stays in a file beside the folder (`private_file`), which the owner keeps: the folder is complete without it.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import NodeProto, TensorProto, helper, numpy_helper

from costmodel.blocked import is_blocked, portable
from costmodel.decomposition import Decomposition
from costmodel.errors import BrickError
from costmodel.network import build_network, value_name, weight_indices
from costmodel.operators import opset_for
from costmodel.sequence import LayerSequence
from costmodel.synthesis import synthetic

__all__ = ["MANIFEST", "brick_network", "is_brick_folder", "private_file", "read_bricks", "write_bricks"]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_SEQUENCE_KEY = "costmodel.sequence"
_WRITTEN_BYTES = 1024
_CONSTANT_OF_SHAPE_OPSET = 9


def brick_network(sequence: LayerSequence) -> onnx.ModelProto:
    """The network of a brick: plain ONNX that runs anywhere, with the canonical sequence in its metadata.

    A layer that ran in a blocked layout is written in plain layout; who benchmarks it materialises the canonical
    sequence for the block size of the machine at hand. Weights are fills, so a brick is small.
    """
    plain = portable(sequence)
    opset = opset_for([(layer.op_type, layer.domain, layer.since) for layer in plain.layers])
    network = build_network(plain, weights=list(_weights(plain, opset)))
    helper.set_model_props(network, {_SEQUENCE_KEY: sequence.text})
    return network


def _weights(sequence: LayerSequence, opset: int) -> Iterable[TensorProto | NodeProto]:
    """Small weights as they are, for they may say a shape or an index; larger ones filled with their first value."""
    for index in weight_indices(sequence):
        kind, values = sequence.values[index].type, synthetic(sequence, index)
        if kind.nbytes <= _WRITTEN_BYTES:
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


def write_bricks(
    folder: Path,
    decompositions: Sequence[Decomposition],
    decoys: Iterable[LayerSequence] = (),
) -> int:
    """Write each unique runnable network of some models, all or nothing; gives the number of bricks.

    Args:
        folder: Made if need be; must not hold another suite.
        decompositions: Models, all at the same granularity.
        decoys: Sequences of no model, mixed in.

    Raises:
        BrickError: The folder holds files already, or cannot be written.
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
                {"signature": p.sequence.signature, "layers": list(p.layers), "needs": list(p.needs)} for p in d.pieces
            ]
            for d in decompositions
        },
        "counts": _counts(decompositions),
        "decoys": [decoy.signature for decoy in decoys],
    }
    folder = folder.resolve()
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BrickError(f"{folder} is not empty: give a new folder with --out")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for signature in sorted(sequences):  # the times of the files would tell the order of the layers, too
            (partial / f"{signature}.onnx").write_bytes(brick_network(sequences[signature]).SerializeToString())
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
        private_file(folder).write_text(json.dumps(private, indent=1))
        os.replace(partial, folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise BrickError(f"{folder} cannot be written ({error.strerror}): check its parent folder") from error
    return len(sequences)


def private_file(folder: Path) -> Path:
    """Where the owner's side of the suite in `folder` is kept: beside it, so that the folder travels as it is."""
    return folder.with_name(f"{folder.name}.private.json")


def _counts(decompositions: Iterable[Decomposition]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for decomposition in decompositions:
        for signature, count in decomposition.counts.items():
            counts[signature] = counts.get(signature, 0) + count
    return counts


def is_brick_folder(path: Path) -> bool:
    """Whether `path` is a folder that `write_bricks` wrote."""
    return (path / MANIFEST).is_file()


def read_bricks(folder: Path) -> list[LayerSequence]:
    """The sequences of a brick folder, in the order of its manifest.

    Raises:
        BrickError: The manifest is damaged or of a newer format, or a brick is missing or is not what it says.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        if manifest["format"] > FORMAT_VERSION:
            raise BrickError(
                f"{path} has format {manifest['format']} and this costmodel knows {FORMAT_VERSION}: upgrade costmodel"
            )
        return [_read_brick(folder / Path(entry["file"]).name, entry["signature"]) for entry in manifest["bricks"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrickError(f"{path} is damaged ({error}): copy the folder again") from error


def _read_brick(path: Path, signature: str) -> LayerSequence:
    try:
        network = onnx.load(str(path), load_external_data=False)
        text = next(p.value for p in network.metadata_props if p.key == _SEQUENCE_KEY)
        sequence = LayerSequence.from_text(text)
    except FileNotFoundError as error:
        raise BrickError(f"the brick {path} is missing: copy the folder again") from error
    except (DecodeError, StopIteration, ValueError) as error:
        raise BrickError(f"{path} is not a brick: copy the folder again") from error
    if sequence.signature != signature:
        raise BrickError(f"{path} is not the brick that the manifest names: copy the folder again")
    return sequence
