"""Predicts models that other packages define, of lineages that no corpus has, with nothing of them measured.

    pip install --no-deps --target PACKAGES monai vit-pytorch pytorchcv x-transformers conformer \
        einops einx frozendict hyper-connections loguru torch-einops-utils PoPE-pytorch
    PYTHONPATH=PACKAGES python benchmarks/others.py export FOLDER
    costmodel bench FOLDER --threads 1
    python benchmarks/others.py judge SYSTEM FOLDER

`judge` trains on everything else that is measured on the system, and prints each model's latency with its layers
measured and predicted, over the latency of the model, then the operators in the order of their share of the error. It
is a set to develop on.
"""

import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from costmodel.onnx_io.torch_export import example_inputs, write_module
from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import Split, inner_splits
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor

_TOKENS = 8000
_INNER_FOLDS = 6
_OPERATORS_SHOWN = 12


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


def _image(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


def _ids(length: int) -> torch.Tensor:
    return torch.randint(0, _TOKENS, (1, length))


def _monai(name: str, image: Sequence[int], **options: Any) -> Source:
    return Source(
        lambda: getattr(import_module("monai.networks.nets"), name)(in_channels=1, out_channels=2, **options),
        _image(1, 1, *image),
    )


def _vit(path: str, size: int, **options: Any) -> Source:
    module, _, name = path.rpartition(".")
    return Source(
        lambda: getattr(import_module(f"vit_pytorch.{module}"), name)(num_classes=100, **options),
        _image(1, 3, size, size),
        without_vision=True,
    )


def _pytorchcv(name: str, size: int) -> Source:
    return Source(
        lambda: import_module("pytorchcv.model_provider").get_model(name, pretrained=False),
        _image(1, 3, size, size),
        without_vision=True,
    )


def _x_transformer(kind: str, length: int, **options: Any) -> Source:
    def make() -> Any:
        package = import_module("x_transformers")
        layers = getattr(package, kind)(dim=256, depth=4, heads=4, **options)
        return package.TransformerWrapper(num_tokens=_TOKENS, max_seq_len=256, attn_layers=layers)

    return Source(make, _ids(length))


def _transformers(name: str, example: torch.Tensor, **options: Any) -> Source:
    def make() -> Any:
        package = import_module("transformers")
        config = getattr(package, f"{name}Config")(**options)
        config._attn_implementation = "eager"
        model = getattr(package, f"{name}Model")(config)
        model.config.use_cache = model.config.return_dict = False
        return model

    return Source(make, example)


_PATCHES = {"image_size": 160, "patch_size": 16, "dim": 192, "depth": 6, "cls_depth": 2, "heads": 4, "mlp_dim": 768}
_SMALL = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
SOURCES = {
    "monai_unet2d": _monai(
        "UNet", (192, 192), spatial_dims=2, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2
    ),
    "monai_unet3d": _monai(
        "UNet", (64, 64, 64), spatial_dims=3, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2
    ),
    "monai_segresnet2d": _monai("SegResNet", (160, 160), spatial_dims=2, init_filters=16),
    "monai_segresnet3d": _monai("SegResNet", (48, 48, 48), spatial_dims=3, init_filters=8),
    "monai_vnet": _monai("VNet", (32, 32, 32), spatial_dims=3),
    "monai_unetr": _monai(
        "UNETR", (48, 48, 48), img_size=48, feature_size=8, hidden_size=192, mlp_dim=768, num_heads=4, spatial_dims=3
    ),
    "vit_cait": _vit("cait.CaiT", 160, **_PATCHES),
    "vit_xcit": _vit("xcit.XCiT", 160, **_PATCHES),
    "vit_pit": _vit("pit.PiT", 160, image_size=160, patch_size=10, dim=96, depth=(2, 3, 2), heads=4, mlp_dim=384),
    "vit_crossformer": _vit("crossformer.CrossFormer", 224, dim=(32, 64, 128, 256), depth=(1, 1, 4, 1)),
    "vit_maxvit": _vit(
        "max_vit.MaxViT", 224, dim_conv_stem=32, dim=48, dim_head=16, depth=(1, 1, 2, 1), window_size=7, dropout=0.0
    ),
    "vit_twins": _vit("twins_svt.TwinsSVT", 224, s1_emb_dim=32, s2_emb_dim=64, s3_emb_dim=128, s4_emb_dim=192),
    "xt_decoder": _x_transformer("Decoder", 96, rotary_pos_emb=True, ff_glu=True),
    "xt_encoder": _x_transformer("Encoder", 128, alibi_pos_bias=True),
    "cv_mixnet_s": _pytorchcv("mixnet_s", 224),
    "cv_peleenet": _pytorchcv("peleenet", 224),
    "cv_icnet": _pytorchcv("icnet_resnetd50b_cityscapes", 480),
    "hf_sew": _transformers("SEW", _image(1, 16000), **_SMALL),
    "hf_olmo": _transformers("Olmo", _ids(96), vocab_size=_TOKENS, **{**_SMALL, "hidden_size": 256}),
    "lucid_conformer": Source(
        lambda: import_module("conformer").Conformer(dim=144, depth=4, dim_head=36, heads=4), _image(1, 160, 144)
    ),
}


@contextmanager
def _vision_absent_but_importable() -> Iterator[None]:
    """Puts empty modules in the place of torchvision for the time of an import."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

    names = [f"torchvision{part}" for part in ("", ".transforms", ".transforms.functional", ".models", ".ops")]
    for name in names:
        module = types.ModuleType(name)
        module.__dict__.update(__path__=[], __getattr__=missing)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def export(folder: Path) -> None:
    """Writes all models to a folder as ONNX files; those that exist are left as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        torch.manual_seed(0)
        if source.without_vision:
            with _vision_absent_but_importable():
                module = source.make().eval()
        else:
            module = source.make().eval()
        write_module(module, example_inputs(module, source.example), path)
        print(name, flush=True)


def judge(system: str, folder: Path) -> None:
    """Prints how well the models of a folder are predicted on a system."""
    names = {path.stem for path in folder.glob("*.onnx")}
    store = Store(find_home().store_url, create=False)
    dataset, split = _held_out(load_dataset(store, system), names)
    run = predict_held_out(
        dataset, [split], LightGBMRegressor, 0, besides=inner_splits(dataset, split, _INNER_FOLDS, 0), jobs=2
    )
    measured = np.array([dataset.models[i].latency_us for i in run.judged_models])
    sums = np.array([run.known_us[i].sum() for i in run.judged_models]) / measured
    predictions = run.unseen_us[run.judged_models] / measured
    print(f"{system}, {len(measured)} models of other packages, {int(split.train_rows.sum())} sequences learnt from")
    for label, ratios in (("layers measured", sums), ("layers predicted", predictions)):
        errors = np.abs(ratios - 1)
        print(
            f"{label:18}{errors.mean():6.1%} error {(errors <= 0.1).mean():4.0%} within 10%"
            f"{np.exp(np.log(ratios).mean()):7.3f} {ratios.min():.2f} to {ratios.max():.2f}"
        )
    for number, one, other in zip(run.judged_models, sums, predictions, strict=True):
        print(f"  {dataset.models[number].name:22}{one:6.2f}{other:6.2f}")
    of_operators: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in run.judged_models:
        costs_us = dataset.latencies_us[dataset.models[number].rows]
        for row, cost, predicted in zip(dataset.models[number].rows, costs_us, run.models_us[number], strict=True):
            of_operators[dataset.kinds[row]].append(((predicted - cost) / costs_us.sum(), cost / costs_us.sum()))
    totals = {kind: np.array(pairs) for kind, pairs in of_operators.items()}
    for kind in sorted(totals, key=lambda kind: -np.abs(totals[kind][:, 0]).sum())[:_OPERATORS_SHOWN]:
        off, share = totals[kind].T / len(measured)
        print(f"  {kind:22}{share.sum():6.1%} of the time {np.abs(off).sum():6.2%} off, {off.sum():+6.2%} together")


def _held_out(dataset: Dataset, names: set[str]) -> tuple[Dataset, Split]:
    """Returns the data set with each of these models as a family of its own, and the split that holds them all out."""
    held = {i for i, model in enumerate(dataset.models) if model.name in names}
    models = tuple(replace(m, family=m.name) if i in held else m for i, m in enumerate(dataset.models))
    touched = np.zeros(len(dataset), dtype=bool)
    for i in held:
        touched[[models[i].row, *models[i].rows]] = True
    families = tuple(
        frozenset({*of_row, "others"}) if is_touched else of_row
        for of_row, is_touched in zip(dataset.families, touched, strict=True)
    )
    split = Split(
        families=frozenset(models[i].name for i in held),
        train_rows=~touched,
        test_rows=touched & ~dataset.sampled & ~dataset.whole,
        models=tuple(sorted(held)),
    )
    return replace(dataset, models=models, families=families), split


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["export", folder]:
            export(Path(folder))
        case ["judge", system, folder]:
            judge(system, Path(folder))
        case _:
            sys.exit(__doc__)
