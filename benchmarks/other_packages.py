"""Models that other packages define, written as ONNX files: for the sets of `others.py` and `lockbox.py`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from costmodel.onnx_io.torch_export import example_inputs, write_module

TOKENS = 8000


@dataclass(frozen=True)
class Source:
    """Where a model comes from, and an example of its input.

    Attributes:
        make: Makes the torch module.
        example: Example of its input.
        without_vision: Whether importing its package needs torchvision, which does not exist for CPUs here; nothing of
            torchvision is used.
    """

    make: Callable[[], Any]
    example: torch.Tensor
    without_vision: bool = False

    def write(self, path: Path) -> None:
        """Writes the model, with random weights, as an ONNX file."""
        torch.manual_seed(0)
        with vision_absent_but_importable() if self.without_vision else nullcontext():
            module = self.make().eval()
        write_module(module, example_inputs(module, self.example), path)


@dataclass(frozen=True)
class Estimator:
    """A model of scikit-learn, fitted to random numbers, and how many rows it predicts at once.

    Attributes:
        make: Makes the estimator.
        rows: Number of rows of the input.
        columns: Number of columns of the input.
    """

    make: Callable[[], Any]
    rows: int
    columns: int

    def write(self, path: Path) -> None:
        """Writes the model as an ONNX file."""
        draw = np.random.default_rng(0)
        table = draw.normal(size=(2000, self.columns)).astype(np.float32)
        fitted = self.make().fit(table, (table[:, 0] * table[:, 1] > 0).astype(np.int64))
        types, convert = import_module("skl2onnx.common.data_types"), import_module("skl2onnx").convert_sklearn
        inputs = [("x", types.FloatTensorType([self.rows, self.columns]))]
        options = {id(fitted): {"zipmap": False}}  # the probabilities as a tensor, not as a map
        model = convert(fitted, initial_types=inputs, options=options, target_opset=15)
        path.write_bytes(model.SerializeToString())


def image(*shape: int) -> torch.Tensor:
    """Returns a random image batch of this shape, as an example of an input."""
    return torch.rand(*shape)


def ids(length: int) -> torch.Tensor:
    """Returns random token ids, shape [1, length], as an example of an input."""
    return torch.randint(0, TOKENS, (1, length))


def monai(name: str, size: Sequence[int], **options: Any) -> Source:
    """Returns a network of MONAI for one-channel images of this size."""
    return Source(
        lambda: getattr(import_module("monai.networks.nets"), name)(in_channels=1, out_channels=2, **options),
        image(1, 1, *size),
    )


def vit(path: str, size: int, **options: Any) -> Source:
    """Returns a network of vit-pytorch, named as module and class, for square images."""
    module, _, name = path.rpartition(".")
    return Source(
        lambda: getattr(import_module(f"vit_pytorch.{module}"), name)(num_classes=100, **options),
        image(1, 3, size, size),
        without_vision=True,
    )


def pytorchcv(name: str, size: int) -> Source:
    """Returns a network of pytorchcv for square images."""
    return Source(
        lambda: import_module("pytorchcv.model_provider").get_model(name, pretrained=False),
        image(1, 3, size, size),
        without_vision=True,
    )


def x_transformer(kind: str, length: int, **options: Any) -> Source:
    """Returns an encoder or a decoder of x-transformers."""

    def make() -> Any:
        package = import_module("x_transformers")
        layers = getattr(package, kind)(dim=256, depth=4, heads=4, **options)
        return package.TransformerWrapper(num_tokens=TOKENS, max_seq_len=256, attn_layers=layers)

    return Source(make, ids(length))


def transformers(name: str, example: torch.Tensor, **options: Any) -> Source:
    """Returns a model of Transformers, named without "Model"."""

    def make() -> Any:
        package = import_module("transformers")
        config = getattr(package, f"{name}Config")(**options)
        config._attn_implementation = "eager"
        model = getattr(package, f"{name}Model")(config)
        model.config.use_cache = model.config.return_dict = False
        return model

    return Source(make, example)


class _Empty(type):
    """Makes classes each attribute of which is another such class."""

    def __getattr__(cls, name: str) -> "_Empty":
        """Returns a class of this name, unless Python itself looks for the attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (), {})


class _EmptyVision(MetaPathFinder, Loader):
    """Finds an empty module for torchvision and everything below it; what is imported from one is an empty class."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns how to load the module; None if it does not belong to torchvision."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "torchvision" else None

    def exec_module(self, module: ModuleType) -> None:
        """Lets the module have every attribute."""
        module.__dict__["__getattr__"] = partial(getattr, _Empty("torchvision", (), {}))


@contextmanager
def vision_absent_but_importable() -> Iterator[None]:
    """Puts empty modules in the place of torchvision for the time of an import."""
    finder = _EmptyVision()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


def export(lineages: Mapping[str, Mapping[str, Source | Estimator]], folder: Path) -> None:
    """Writes models as ONNX files, each to a subfolder of its lineage; those that exist are left as they are.

    Args:
        lineages: Models by name, by lineage.
        folder: Folder for the subfolders, whose names `costmodel bench` takes as families.
    """
    for lineage, sources in lineages.items():
        (folder / lineage).mkdir(parents=True, exist_ok=True)
        for name, source in sources.items():
            path = folder / lineage / f"{name}.onnx"
            if not path.exists():
                source.write(path)
                print(name, flush=True)
