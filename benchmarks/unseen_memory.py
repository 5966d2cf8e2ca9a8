"""Judges predicted peak memory and load time on models of pytorchcv that were used for nothing else (ADR 23, ADR 26).

    pip install --no-deps --target PACKAGES pytorchcv
    PYTHONPATH=PACKAGES python benchmarks/unseen_memory.py export FOLDER
    python benchmarks/unseen_memory.py judge FOLDER [--rounds 3]

No lineage of the lockbox is among them. `judge` measures each model in processes of its own and prints how far the
predictions with the shipped coefficients are off. The time of the first run needs latencies of the system and is not
judged here.
"""

import argparse
from pathlib import Path

import numpy as np
from other_packages import export, pytorchcv
from peak_memory import measured_peak
from start_time import measured_times

from costmodel.errors import CostModelError
from costmodel.estimate.peak_memory import predict_peak_memory
from costmodel.estimate.start_time import predict_start_time
from costmodel.measure.capability import measure_capabilities
from costmodel.memory.session import memory_demand
from costmodel.onnx_io.model import read_model
from costmodel.runtimes.base import RuntimeSettings
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.systems.system import System

LINEAGES = {
    "alexnet": {"alexnet": 224, "zfnet": 224},
    "vgg": {"bn_vgg11b": 224, "vgg13": 224},
    "resnet_variants": {
        "preresnet18": 224, "seresnet18": 224, "sepreresnet10": 224,
        "diaresnet10": 224, "ibnb_resnet50": 224, "scnet50": 224,
        "resneta18": 224, "bagnet9": 224, "drnc26": 224, "wrn50_2": 224,
    },
    "dpn": {"dpn68": 224},
    "squeeze": {"squeezenet_v1_1": 224, "squeezeresnet_v1_1": 224, "sqnxt23_w1": 224},
    "shuffle": {"shufflenet_g1_w1": 224, "menet228_12x1_g3": 224},
    "mobile": {
        "fdmobilenet_w1": 224, "mobilenetv3_large_w1": 224, "proxylessnas_mobile": 224, "fbnet_cb": 224,
        "spnasnet": 224,
    },
    "cell": {"nasnet_4a1056": 224, "darts": 224},
    "inception": {"inceptionv3": 299, "inceptionv4": 299},
    "segmentation": {
        "espnetv2_wd2": 224, "cgnet_cityscapes": 256, "dabnet_cityscapes": 256, "erfnet_cityscapes": 256,
        "linknet_cityscapes": 256, "unet_cityscapes": 256,
    },
}  # fmt: skip


def main() -> None:
    """Parses the command line and runs one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export").add_argument("folder", type=Path)
    judging = commands.add_parser("judge")
    judging.add_argument("folder", type=Path)
    judging.add_argument("--rounds", type=int, default=3)
    judging.add_argument("--memory-only", action="store_true", help="for a machine that is not quiet")
    options = parser.parse_args()
    if options.command == "export":
        for lineage, models in LINEAGES.items():
            for name, size in models.items():
                try:
                    export({lineage: {f"cv_{name}": pytorchcv(name, size)}}, options.folder)
                except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
                    print(f"{name}: {str(error).splitlines()[:1]}", flush=True)
    else:
        judge(options.folder, options.rounds, timed=not options.memory_only)


def judge(folder: Path, rounds: int, *, timed: bool) -> None:
    """Prints the errors of the predictions for each model, and in all."""
    runtime, settings = OnnxRuntime(), RuntimeSettings()
    rates = measure_capabilities(runtime, settings)
    system = System("here", None, runtime.name, runtime.version, settings, rates)
    peaks, loads, inside = [], [], []
    for path in sorted(folder.rglob("*.onnx")):
        try:
            demand = memory_demand(runtime.lower(read_model(path), "all"))
        except CostModelError as error:
            print(f"{path.stem}: {error}")
            continue
        peak, start = predict_peak_memory(demand, system), predict_start_time(demand, system, 0.0, (0.0, 0.0))
        assert peak is not None
        assert start is not None
        found = [one for number in range(rounds) if (one := measured_peak(path, 16 * number)) is not None]
        if not found:
            continue
        peaks.append(peak.peak_memory_bytes / np.median(found))
        times = [one[0] for _ in range(rounds if timed else 0) if (one := measured_times(path)) is not None]
        loads += [start.load_time_us / np.median(times)] if times else []
        low, high = peak.interval_bytes
        inside.append([low <= one <= high for one in found])
        load = f", load {loads[-1]:.2f}" if times else ""
        print(f"{path.stem}: peak {peaks[-1]:.3f} of {[round(one / 1e6) for one in found]} MB{load}")
    for name, ratios in (("peak memory", peaks), ("load time", loads)):
        if not ratios:
            continue
        error = np.abs(np.array(ratios) - 1)
        print(
            f"{name}: {len(ratios)} models, mean error {error.mean():.1%}, {np.mean(error < 0.1):.1%} within 10%, "
            f"{np.mean(error < 0.2):.1%} within 20%"
        )
    print(f"{np.mean(np.concatenate(inside)):.1%} of the measured peaks are inside of their intervals")


if __name__ == "__main__":
    main()
