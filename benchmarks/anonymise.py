"""Does a service see the same layers when a model is sent without names and weights?

    python benchmarks/anonymise.py light modern ...

For each model of the corpora, or of folders with ONNX files: the signatures of its layers, lowered as it is and
anonymised. Prints the models whose signatures differ, and for each corpus how many do and how much is sent. Exits with
1 where one differs.
"""

import argparse
import sys
from collections import Counter

from onnx import ModelProto

from costmodel.anonymise import anonymise
from costmodel.decomposition import decompose
from costmodel.errors import CostModelError
from costmodel.model import read_model, without_weights
from costmodel.runtimes import Runtime, get_runtime
from costmodel.training.corpus import corpus_models


def _signatures(runtime: Runtime, proto: ModelProto) -> Counter[str]:
    graph = runtime.lower(read_model(proto), "all")
    return Counter(piece.sequence.signature for piece in decompose("model", graph, 1).pieces)


def main() -> None:
    """Compare, print, and exit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="corpus or folder")
    runtime = get_runtime()
    differing = 0
    for corpus in parser.parse_args().corpora:
        models = corpus_models(corpus)
        found, sent_bytes = 0, 0
        for model in models:
            proto = ModelProto.FromString(without_weights(model.path))
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
