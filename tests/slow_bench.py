"""Programs that tests start and kill: a benchmark and a writer on a real store, in simulated time.

python -m tests.slow_bench bench URL COUNT     measure COUNT sequences, printing each signature once it is stored
python -m tests.slow_bench write URL NAME      add 100 measurements in 50 signatures, two of each
"""

import sys
from collections.abc import Iterable, Sequence

from costmodel.ir.sequence import LayerSequence
from costmodel.measure.groups import grouped
from costmodel.measure.measurement import Measurement
from costmodel.store.store import Store
from tests.fakes import FakeRuntime, elementwise, fake_bench, fake_system, measured

__all__ = ["TOGETHER", "sequences"]

# Number of sequences that are measured, and stored, together.
TOGETHER = 3


def sequences(count: int) -> list[LayerSequence]:
    """Returns `count` different sequences."""
    return [elementwise(1, size) for size in range(1, count + 1)]


class _TellingStore(Store):
    def put_measurements(self, system: str, measurements: Iterable[Measurement]) -> None:
        added = list(measurements)
        super().put_measurements(system, added)
        sys.stdout.write("".join(f"{measurement.signature}\n" for measurement in added))
        sys.stdout.flush()


def _bench(url: str, count: int) -> None:
    with fake_bench(_TellingStore(url), FakeRuntime()) as bench:
        bench.run(grouped(sequences(count), most_loaded=TOGETHER))


def _write(url: str, name: str) -> None:
    store = Store(url)
    store.put_system(fake_system())
    for sequence in sequences(50) * 2:
        store.put_measurement("fake-1", measured(sequence, [float(len(name))]), sequence)


def main(arguments: Sequence[str]) -> None:
    """Print that everything is loaded, wait for a line of input, then do what the arguments say."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    what, url, last = arguments
    if what == "bench":
        _bench(url, int(last))
    else:
        _write(url, last)


if __name__ == "__main__":
    main(sys.argv[1:])
