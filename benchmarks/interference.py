"""Compares predicted with measured slowdowns of pairs of models that run side by side on two CPUs.

    costmodel interference
    python benchmarks/interference.py [--pairs N] [--rounds N] [--out FILE.json] MODEL.onnx|made:NAME ...

Every model has to have a cost on this host with one thread: `costmodel bench`, or import and train. `made:NAME` is a
model of `benchmarks/made_models.py` at batch 1. Pairs are drawn at random, each with an order: the first model is timed
alone and beside the second one, in two passes of several rounds each, while the CPUs share a last-level cache. Prints
the slowdowns, the errors, how far the two passes differ, and two baselines: no interference, and the constant that is
best for the other pairs.
"""

import argparse
import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from made_models import MODELS

from costmodel import CostModel
from costmodel.measure.affinity import cpus_beside, pinned
from costmodel.measure.denormals import denormals_flushed
from costmodel.measure.interference import measure_slowdowns
from costmodel.measure.neighbour import NeighbourProcess
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.base import Runner, RuntimeSettings, get_runtime

SLICE_US = 40_000.0
PATIENCE_S = 25.0


def read(name: str) -> Model:
    """Returns the model that an argument names."""
    if name.startswith("made:"):
        return read_model(MODELS[name.removeprefix("made:")](), batch=1, name=name.removeprefix("made:"))
    return read_model(Path(name))


def opened(names: Sequence[str]) -> list[Runner]:
    """Opens models to be run on one thread."""
    runtime = get_runtime()
    return [runtime.open_model(read(name), RuntimeSettings()) for name in names]


def measure(names: Sequence[str], pairs: Sequence[tuple[int, int]], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the slowdown of each pair in two passes, shape [2, num_pairs], and the latency of each model alone."""
    cpus = cpus_beside(1)
    if cpus is None:
        raise SystemExit("two CPUs are needed")
    with pinned(1), NeighbourProcess(partial(opened, names), cpus) as neighbour, denormals_flushed():
        runners = opened(names)
        passes = [
            measure_slowdowns(runners, neighbour, pairs, rounds=rounds, slice_us=SLICE_US, patience_s=PATIENCE_S)
            for _ in range(2)
        ]
    for one in passes:
        print(f"near at {one.near_share:.0%} of the checks, {'near' if one.near else 'apart'} pairs count")
    ratios = np.array([[one.ratios[pair] for pair in pairs] for one in passes])
    return ratios, np.mean([one.alone_us for one in passes], axis=0)


def report(what: str, predicted: np.ndarray, measured: np.ndarray) -> None:
    """Prints the errors of predicted slowdowns."""
    errors = predicted / measured - 1
    print(
        f"{what:34} mean error {np.abs(errors).mean():.1%}, within 5% {np.mean(np.abs(errors) <= 0.05):.0%}, "
        f"within 10% {np.mean(np.abs(errors) <= 0.1):.0%}, largest {np.abs(errors).max():.0%}"
    )


def compare(measured: np.ndarray, predicted: np.ndarray, bounds: np.ndarray, passes: np.ndarray) -> None:
    """Prints the errors of the law and of the baselines, on all pairs and on those that disturb each other."""
    logs = np.log(measured)
    constants = np.exp((logs.sum() - logs) / (len(logs) - 1))
    for what, chosen in (("all", measured > 0), ("slowdown of 1.05 and more", measured >= 1.05)):
        if not chosen.any():
            continue
        print(f"\n{what}: {chosen.sum()} pairs")
        report("predicted", predicted[chosen], measured[chosen])
        report("no interference", np.ones(chosen.sum()), measured[chosen])
        report("one constant", constants[chosen], measured[chosen])
        report("second pass for the first", passes[1][chosen], passes[0][chosen])
        least = np.maximum(measured, 1.0)  # a speed-up is an error of the measurement
        inside = (bounds[:, 0] <= least) & (least <= bounds[:, 1])
        print(f"in the interval: {inside[chosen].mean():.0%}")


def main(names: Sequence[str], num_pairs: int, rounds: int, out: Path | None) -> None:
    """Measures, predicts and prints."""
    cost_model = CostModel.load()
    models = [read(name) for name in names]
    drawn = [(one, other) for one in range(len(names)) for other in range(len(names))]
    random.Random(0).shuffle(drawn)
    pairs = sorted(drawn[:num_pairs])
    estimates = [cost_model.predict(models[one], beside=[models[other]]) for one, other in pairs]
    passes, alone_us = measure(names, pairs, rounds)
    measured = np.exp(np.log(passes).mean(axis=0))
    predicted = np.array([estimate.slowdown for estimate in estimates])
    bounds = np.array([estimate.slowdown_interval for estimate in estimates])
    print(f"\n{'model':26}{'beside':26}{'alone':>10}{'measured':>10}{'predicted':>11}")
    for (one, other), found, estimate in zip(pairs, measured, estimates, strict=True):
        print(
            f"{models[one].name[:25]:26}{models[other].name[:25]:26}{alone_us[one] / 1e3:7.2f} ms{found:10.2f}"
            f"{estimate.slowdown:11.2f}"
        )
    compare(measured, predicted, bounds, passes)
    if out is not None:
        found = [
            {"model": models[one].name, "beside": models[other].name, "alone_us": alone_us[one], "slowdowns": of_pair}
            for (one, other), of_pair in zip(pairs, passes.T.tolist(), strict=True)
        ]
        out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx|made:NAME")
    options = parser.parse_args()
    main(options.models, options.pairs, options.rounds, options.out)
