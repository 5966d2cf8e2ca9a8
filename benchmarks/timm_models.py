"""Writes models of timm as ONNX files: two or one of each of its modules, chosen by their sizes alone.

    pip install --no-deps --target PACKAGES timm huggingface_hub safetensors
    PYTHONPATH=PACKAGES python benchmarks/timm_models.py FOLDER [--choice two|middle|quarter]

From each module come the model with the fewest parameters, but at least a million, and the one that is nearest to three
times as large, if one is at least twice as large; none has more than 90 million, and those that timm has for its own
tests are left out. The choice `middle` is instead the one in the middle of all others by size, and `quarter` the one
after the smallest quarter of what is left then. Weights are random, images have the model's default size, and each
module is a folder, which `costmodel bench` takes as the family.
`unseen_memory.py` judges the product by these models, `costmodel bench` and `others.py` by their latencies. A model
that cannot be exported is named.
"""

import argparse
from collections.abc import Iterator
from math import log
from pathlib import Path
from typing import Any

import torch
from other_packages import Source, export, image, vision_absent_but_importable

_FEWEST_PARAMETERS, _MOST_PARAMETERS = 1e6, 90e6


def main() -> None:
    """Writes the models that can be exported, and says why the others cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--choice", choices=("two", "middle", "quarter"), default="two")
    options = parser.parse_args()
    with vision_absent_but_importable():
        import timm
    for module in timm.list_modules():
        for name, size in _chosen(timm, module, options.choice):
            source = Source(lambda name=name: timm.create_model(name), image(1, 3, size, size), without_vision=True)
            try:
                export({module: {f"timm_{name}": source}}, options.folder)
            except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError) as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)


def _chosen(timm: Any, module: str, choice: str) -> Iterator[tuple[str, int]]:
    """Yields the names of the models of a module, and the sides of their images."""
    sizes: dict[str, tuple[int, int]] = {}
    for name in timm.list_models(module=module, exclude_filters="test_*"):
        try:
            with torch.device("meta"):
                model = timm.create_model(name)
        except (NotImplementedError, RuntimeError, TypeError):  # it cannot be made without memory for its weights
            continue
        parameters = sum(weight.numel() for weight in model.parameters())
        if _FEWEST_PARAMETERS <= parameters <= _MOST_PARAMETERS:
            sizes[name] = parameters, model.pretrained_cfg["input_size"][-1]
    if not sizes:
        return
    smallest = min(sizes, key=lambda name: sizes[name])
    chosen = [smallest]
    larger = [name for name in sizes if sizes[name][0] >= 2 * sizes[smallest][0]]
    if larger:
        chosen.append(min(larger, key=lambda name: (abs(log(sizes[name][0] / sizes[smallest][0] / 3)), sizes[name])))
    if choice != "two":
        others = sorted(sizes.keys() - set(chosen), key=lambda name: (sizes[name], name))
        chosen = others[len(others) // 2 :][:1]
        if choice == "quarter":
            others = [name for name in others if name not in chosen]
            chosen = others[len(others) // 4 :][:1]
    for name in chosen:
        yield name, sizes[name][1]


if __name__ == "__main__":
    main()
