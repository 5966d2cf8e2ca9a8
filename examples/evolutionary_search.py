"""Searches the best network under a latency limit with a genetic algorithm.

    python examples/evolutionary_search.py --system NAME --limit-ms 4

Optuna draws one generation at a time, and costmodel prices it in one call: no candidate is built, exported or run.
Finally the winner is built, predicted as a whole model, and measured on this host.
"""

import argparse
import math
import time
import warnings

import numpy as np
import optuna
from mobile_space import BLOCKS, CHOICES, SKIP, fixed_layers, print_found, space
from optuna.samplers import NSGAIISampler

from costmodel import CostModel


def capacity(names: list[str]) -> float:
    """A stand-in for accuracy with diminishing returns of size; replace it by your own objective."""
    choices = {str(choice): choice for choice in CHOICES}
    found = 0.0
    for block, name in zip(BLOCKS, names, strict=True):
        if name != SKIP:
            choice = choices[name]
            found += math.log1p(block.outputs * choice.expansion * math.sqrt(choice.kernel))
    return found


def main() -> None:
    """Searches, then compares the prediction and the measurement of the resulting network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default=None, help="a trained system; by default this host, with one thread")
    parser.add_argument("--limit-ms", type=float, default=1.5)
    parser.add_argument("--generations", type=int, default=40)
    parser.add_argument("--population", type=int, default=50)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

    cost_model = CostModel.load(given.system)
    blocks = space()
    # Parts that networks are composed of: stem, head, and each choice of each block.
    parts = [*fixed_layers(), *([] if of is None else of for choices in blocks.values() for of in choices.values())]
    position = {
        (block, choice): len(fixed_layers()) + place
        for place, (block, choice) in enumerate((block, choice) for block in blocks for choice in blocks[block])
    }
    start = time.perf_counter()
    cost_model.predict_networks(parts, [[0, 1]])  # lowers each part once; later calls find it in the cache
    print(f"{len(parts)} parts lowered in {time.perf_counter() - start:.1f} s")

    def latencies_us(drawn: list[list[str]]) -> np.ndarray:
        networks = [[0, *(position[pair] for pair in zip(blocks, names, strict=True)), 1] for names in drawn]
        return cost_model.predict_networks(parts, networks).latency_us

    study = optuna.create_study(
        direction="maximize",
        sampler=NSGAIISampler(
            population_size=given.population, seed=0, constraints_func=lambda trial: [trial.user_attrs["over_us"]]
        ),
    )
    spent = 0.0
    for _ in range(given.generations):
        trials = [study.ask() for _ in range(given.population)]
        drawn = [
            [trial.suggest_categorical(block, list(choices)) for block, choices in blocks.items()] for trial in trials
        ]
        start = time.perf_counter()
        found_us = latencies_us(drawn)
        spent += time.perf_counter() - start
        for trial, names, us in zip(trials, drawn, found_us, strict=True):
            trial.set_user_attr("over_us", float(us) - 1e3 * given.limit_ms)
            study.tell(trial, capacity(names))
    priced = given.generations * given.population
    print(f"{priced} networks priced in {spent:.2f} s")

    allowed = [trial for trial in study.trials if trial.user_attrs["over_us"] <= 0]
    if not allowed:
        fastest = min(study.trials, key=lambda trial: trial.user_attrs["over_us"])
        over_us = fastest.user_attrs["over_us"]
        raise SystemExit(f"no network is within {given.limit_ms} ms: the fastest takes {over_us / 1e3:.2f} ms more")
    best = max(allowed, key=lambda trial: trial.value or 0.0)
    names = [best.params[block] for block in blocks]
    print(f"limit {given.limit_ms:.2f} ms, found {' '.join(names)}")
    print_found(cost_model, names, latencies_us([names])[0], "its parts")


if __name__ == "__main__":
    main()
