"""Checks that a model without names and weights is lowered to the same layers as the original.

    python benchmarks/anonymise.py light modern ...

For each model of the corpora, or of folders with ONNX files, compares the signatures of the layers of the original and
of the anonymised model. Prints the models whose signatures differ, and for each corpus their number and the bytes that
are sent. Exits with 1 if a model differs.
"""

import argparse
import sys
from collections import Counter

from onnx import ModelProto

from costmodel.errors import CostModelError
from costmodel.onnx_io.anonymisation import anonymise
from costmodel.onnx_io.model import read_model, read_without_weights
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.base import Runtime, get_runtime
from costmodel.training.corpus import corpus_models


def _signatures(runtime: Runtime, proto: ModelProto) -> Counter[str]:
    graph = runtime.lower(read_model(proto), "all")
    return Counter(segment.sequence.signature for segment in decompose("model", graph, 1).segments)


def main() -> None:
    """Compares, prints, and exits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="corpus or folder")
    runtime = get_runtime()
    differing = 0
    for corpus in parser.parse_args().corpora:
        models = corpus_models(corpus)
        found, sent_bytes = 0, 0
        for model in models:
            proto = ModelProto.FromString(read_without_weights(model.path))
            sent = anonymise(proto).content
            sent_bytes += len(sent)
            try:
                same = _signatures(runtime, ModelProto.FromString(sent)) == _signatures(runtime, proto)
            except CostModelError as error:
                same = False
                print(f"{model.name}: {error}")
            if not same:
                found += 1
                print(f"{model.name}: other layers")
        print(
            f"{corpus}: {found} of {len(models)} models differ, {sent_bytes / len(models) / 1e3:.0f} kB sent for each"
        )
        differing += found
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
