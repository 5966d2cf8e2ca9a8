"""A process that serves a release of the fake runtime in simulated time.

python -m tests.release_program VERSION [--die]           with --die, it ends when it is to measure
"""

import sys

from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.jobs.runtime_comparison.release_process import serve
from tests.fakes import FakeRuntime, fake_sessions


def main(version: str, *options: str) -> None:
    """Serves the release until standard input is closed."""
    runtime = FakeRuntime(version=version)

    def dying(*_: object, **__: object) -> BenchmarkSession:
        sys.exit("the machine is on fire")

    serve(runtime, dying if options else fake_sessions(runtime))


if __name__ == "__main__":
    main(*sys.argv[1:])
