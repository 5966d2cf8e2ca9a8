"""The arguments of benchmarks that compare predictions on two systems, each in a store that may be its own."""

import argparse

from costmodel.paths import find_home
from costmodel.training.regressors.registry import LEARNERS


def parsed_arguments(description: str | None, *, learner: str) -> argparse.Namespace:
    """Returns the arguments: system, other, store, other_store, learner, folds and seed.

    Args:
        description: What the benchmark does, for its help.
        learner: Name of the default learner.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("other")
    parser.add_argument("--store", default=find_home().store_url)
    parser.add_argument("--other-store", help="by default that of --store")
    parser.add_argument("--learner", default=learner, choices=LEARNERS)
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.other_store = given.other_store or given.store
    return given
