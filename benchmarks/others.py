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
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
from other_packages import TOKENS, Source, export, ids, image, monai, pytorchcv, transformers, vit, x_transformer

from costmodel.paths import find_home
from costmodel.store.store import Store
from costmodel.training.dataset import Dataset, load_dataset
from costmodel.training.evaluation.held_out import predict_held_out
from costmodel.training.evaluation.splits import Split, inner_splits
from costmodel.training.regressors.registry import LEARNERS

_INNER_FOLDS = 6
_OPERATORS_SHOWN = 12

_PATCHES = {"image_size": 160, "patch_size": 16, "dim": 192, "depth": 6, "cls_depth": 2, "heads": 4, "mlp_dim": 768}
_SMALL = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
SOURCES = {
    "monai_unet2d": monai(
        "UNet", (192, 192), spatial_dims=2, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2
    ),
    "monai_unet3d": monai(
        "UNet", (64, 64, 64), spatial_dims=3, channels=(16, 32, 64, 128), strides=(2, 2, 2), num_res_units=2
    ),
    "monai_segresnet2d": monai("SegResNet", (160, 160), spatial_dims=2, init_filters=16),
    "monai_segresnet3d": monai("SegResNet", (48, 48, 48), spatial_dims=3, init_filters=8),
    "monai_vnet": monai("VNet", (32, 32, 32), spatial_dims=3),
    "monai_unetr": monai(
        "UNETR", (48, 48, 48), img_size=48, feature_size=8, hidden_size=192, mlp_dim=768, num_heads=4, spatial_dims=3
    ),
    "vit_cait": vit("cait.CaiT", 160, **_PATCHES),
    "vit_xcit": vit("xcit.XCiT", 160, **_PATCHES),
    "vit_pit": vit("pit.PiT", 160, image_size=160, patch_size=10, dim=96, depth=(2, 3, 2), heads=4, mlp_dim=384),
    "vit_crossformer": vit("crossformer.CrossFormer", 224, dim=(32, 64, 128, 256), depth=(1, 1, 4, 1)),
    "vit_maxvit": vit(
        "max_vit.MaxViT", 224, dim_conv_stem=32, dim=48, dim_head=16, depth=(1, 1, 2, 1), window_size=7, dropout=0.0
    ),
    "vit_twins": vit("twins_svt.TwinsSVT", 224, s1_emb_dim=32, s2_emb_dim=64, s3_emb_dim=128, s4_emb_dim=192),
    "xt_decoder": x_transformer("Decoder", 96, rotary_pos_emb=True, ff_glu=True),
    "xt_encoder": x_transformer("Encoder", 128, alibi_pos_bias=True),
    "cv_mixnet_s": pytorchcv("mixnet_s", 224),
    "cv_peleenet": pytorchcv("peleenet", 224),
    "cv_icnet": pytorchcv("icnet_resnetd50b_cityscapes", 480),
    "hf_sew": transformers("SEW", image(1, 16000), **_SMALL),
    "hf_olmo": transformers("Olmo", ids(96), vocab_size=TOKENS, **{**_SMALL, "hidden_size": 256}),
    "lucid_conformer": Source(
        lambda: import_module("conformer").Conformer(dim=144, depth=4, dim_head=36, heads=4), image(1, 160, 144)
    ),
}


def by_lineage() -> dict[str, dict[str, Source]]:
    """Returns the models by lineage: a network for images and the same one for volumes are of one lineage."""
    found: dict[str, dict[str, Source]] = defaultdict(dict)
    for name, source in SOURCES.items():
        found[name.removesuffix("2d").removesuffix("3d")][name] = source
    return found


@dataclass(frozen=True)
class Judged:
    """How well models are predicted of which nothing was measured.

    Attributes:
        names: Name of each model.
        sums: Sum of the measured costs of its layers over its latency, shape [num_models].
        predictions: Sum of the predicted costs of its layers over its latency, shape [num_models].
        learnt_from: Number of sequences that the regressor was trained on.
        operators: For each operator, a row for each of its layers: the error of its predicted cost, and its cost, both
            as shares of its model's sum of layers.
    """

    names: tuple[str, ...]
    sums: np.ndarray
    predictions: np.ndarray
    learnt_from: int
    operators: dict[str, np.ndarray]


def judged(system: str, names: Set[str]) -> Judged:
    """Trains an ensemble on everything that is measured on a system but these models, and predicts these models."""
    store = Store(find_home().store_url, create=False)
    dataset, split = _held_out(load_dataset(store, system), names)
    if not split.models:
        sys.exit(f"none of these models is measured on {system}: run `costmodel bench` on their folder first")
    run = predict_held_out(
        dataset, [split], LEARNERS["ensemble"], 0, besides=inner_splits(dataset, split, _INNER_FOLDS, 0), jobs=2
    )
    models = run.judged_models.tolist()
    measured = np.array([dataset.models[i].latency_us for i in models])
    of_operators: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in models:
        costs_us = dataset.latencies_us[dataset.models[number].rows]
        for row, cost, predicted in zip(dataset.models[number].rows, costs_us, run.models_us[number], strict=True):
            of_operators[dataset.kinds[row]].append(((predicted - cost) / costs_us.sum(), cost / costs_us.sum()))
    return Judged(
        tuple(dataset.models[i].name for i in models),
        np.array([run.known_us[i].sum() for i in models]) / measured,
        run.unseen_us[models] / measured,
        int(split.train_rows.sum()),
        {kind: np.array(pairs) for kind, pairs in of_operators.items()},
    )


def judge(system: str, folder: Path) -> None:
    """Prints how well the models of a folder are predicted on a system."""
    found = judged(system, {path.stem for path in folder.rglob("*.onnx")})
    print(f"{system}, {len(found.names)} models of other packages, {found.learnt_from} sequences learnt from")
    for label, ratios in (("layers measured", found.sums), ("layers predicted", found.predictions)):
        errors = np.abs(ratios - 1)
        print(
            f"{label:18}{errors.mean():6.1%} error {(errors <= 0.1).mean():4.0%} within 10%"
            f"{np.exp(np.log(ratios).mean()):7.3f} {ratios.min():.2f} to {ratios.max():.2f}"
        )
    for name, one, other in zip(found.names, found.sums, found.predictions, strict=True):
        print(f"  {name:22}{one:6.2f}{other:6.2f}")
    totals = found.operators
    for kind in sorted(totals, key=lambda kind: -np.abs(totals[kind][:, 0]).sum())[:_OPERATORS_SHOWN]:
        off, share = totals[kind].T / len(found.names)
        print(f"  {kind:22}{share.sum():6.1%} of the time {np.abs(off).sum():6.2%} off, {off.sum():+6.2%} together")


def _held_out(dataset: Dataset, names: Set[str]) -> tuple[Dataset, Split]:
    """Returns the data set with each of these models as a family of its own, and the split that holds them all out."""
    # A model that was measured from a subfolder is named after it as well.
    own_names = [model.name.rpartition("/")[2] for model in dataset.models]
    held = {i for i, name in enumerate(own_names) if name in names}
    models = tuple(
        replace(m, name=own_names[i], family=own_names[i]) if i in held else m for i, m in enumerate(dataset.models)
    )
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
            export(by_lineage(), Path(folder))
        case ["judge", system, folder]:
            judge(system, Path(folder))
        case _:
            sys.exit(__doc__)
