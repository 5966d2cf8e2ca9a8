"""Writes a small store with the code of an older commit; README.md beside this file says how it was used.

Run from the root of a checkout of that commit: python path/to/write.py URL
"""

import sys
from pathlib import Path

import onnx.parser

sys.path.insert(0, str(Path.cwd()))  # the older commit's tests, whose fake runtime measures

from costmodel.measure.groups import grouped
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose, whole_model
from costmodel.serving.observations.drift import Observation
from costmodel.serving.observations.observations import Observations
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_bench, fake_system

MODEL = """<ir_version: 9, opset_import: ["" : 17]>
tiny (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Relu(a) y = Add(b, x) }"""


def main(url: str) -> None:
    """Bench a few sequences and a model in simulated time, and report latencies where this code can store them."""
    store, runtime = Store(url), FakeRuntime(noise=lambda run: 1 + run % 3 / 100)
    graph = FakeRuntime().lower(read_model(onnx.parser.parse_model(MODEL)), "all")
    for granularity in (1, 2):
        cut = decompose("tiny", graph, granularity)
        store.put_model(cut, whole_model(graph), digest="d" * 64, family="small", lowering="fake-1.0-all-imagined")
    store.put_samples({elementwise(1, 4).signature: (elementwise(1, 4), elementwise(1, 3))})
    sequences = [elementwise(1, size) for size in (3, 4, 5)]
    with fake_bench(store, runtime, fake_system()) as bench:
        bench.run(grouped(sequences))
    seen = [
        Observation(
            "fake-1", "tiny", f"sha256:{model}", 100.0 + model, 7 if model else None, 100.0, (90.0, 112.0), "v1",
            f"2026-11-21T12:00:0{model}+00:00",
        )
        for model in range(3)
    ]  # fmt: skip
    Observations(url).put(seen)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
