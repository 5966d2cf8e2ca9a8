"""The lockbox: models of lineages on which nothing was developed, judged once per release.

    pip install --no-deps --target PACKAGES monai vit-pytorch pytorchcv x-transformers conformer \
        einops einx frozendict hyper-connections loguru torch-einops-utils PoPE-pytorch skl2onnx
    PYTHONPATH=PACKAGES python benchmarks/lockbox.py export FOLDER
    costmodel bench FOLDER --threads 1
    python benchmarks/lockbox.py open SYSTEM FOLDER

`open` trains on everything else that is measured on the system, predicts the models with nothing of them measured, and
appends date, version, commit and figures to docs/lockbox.md. It does so once for each version and system, from
committed files only. What it shows of a model must not guide development: a lineage that has been looked at moves to
`others.py`, and another one takes its place.
"""

import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
from other_packages import TOKENS, Estimator, Source, export, ids, image, monai, pytorchcv, transformers, vit
from other_packages import x_transformer as transformer
from others import judged

_ROOT = Path(__file__).parents[1]
_LOG = _ROOT / "docs/lockbox.md"
_IMAGE = {"image_size": 160, "patch_size": 16, "dim": 192, "depth": 6, "heads": 4, "mlp_dim": 768}
_DECODER = {"vocab_size": TOKENS, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
_STAGES = {"dim": (32, 64, 128, 256), "depth": (1, 1, 3, 1), "window_size": 7}
_FILTERS = {"kernel_size": [3] * 4, "strides": [1, 2, 2, 2], "upsample_kernel_size": [2] * 3}


def _estimator(path: str, rows: int, columns: int, **options: object) -> Estimator:
    module, _, name = path.rpartition(".")
    return Estimator(lambda: getattr(import_module(module), name)(**options), rows, columns)


# By lineage, then by name of the model.
LINEAGES: dict[str, dict[str, Source | Estimator]] = {
    "attention_unet": {
        "monai_attentionunet": monai(
            "AttentionUnet", (160, 160), spatial_dims=2, channels=(16, 32, 64, 128), strides=(2, 2, 2)
        ),
        "monai_attentionunet3d": monai(
            "AttentionUnet", (48, 48, 48), spatial_dims=3, channels=(8, 16, 32), strides=(2, 2)
        ),
    },
    "unetpp": {
        "monai_basicunetpp": monai("BasicUNetPlusPlus", (128, 128), spatial_dims=2, features=(16, 16, 32, 64, 128, 16)),
    },
    "highresnet": {"monai_highresnet": monai("HighResNet", (24, 24, 24), spatial_dims=3)},
    "dynunet": {
        "monai_dynunet2d": monai("DynUNet", (192, 192), spatial_dims=2, filters=[16, 32, 64, 128], **_FILTERS),
        "monai_dynunet3d": monai("DynUNet", (48, 48, 48), spatial_dims=3, filters=[8, 16, 32, 64], **_FILTERS),
    },
    "densenet3d": {"monai_densenet3d": monai("DenseNet121", (32, 64, 64), spatial_dims=3)},
    "nest": {
        "vit_nest": vit(
            "nest.NesT", 224, image_size=224, patch_size=4, dim=64, heads=2, num_hierarchies=3, block_repeats=(1, 1, 3)
        ),
    },
    "regionvit": {"vit_regionvit": vit("regionvit.RegionViT", 224, **_STAGES)},
    "sepvit": {"vit_sepvit": vit("sep_vit.SepViT", 224, **{**_STAGES, "dim": 32}, dim_head=32, heads=(1, 2, 4, 8))},
    "scalablevit": {
        "vit_scalable": vit(
            "scalable_vit.ScalableViT",
            224,
            dim=32,
            heads=(2, 4, 8, 16),
            depth=(1, 1, 3, 1),
            ssa_dim_key=(20, 20, 20, 20),
            reduction_factor=(8, 4, 2, 1),
            window_size=(28, 14, None, None),
        ),
    },
    "crossvit": {
        "vit_crossvit": vit(
            "cross_vit.CrossViT",
            192,
            image_size=192,
            depth=2,
            sm_dim=96,
            sm_patch_size=12,
            sm_enc_depth=1,
            sm_enc_heads=4,
            sm_enc_mlp_dim=384,
            lg_dim=192,
            lg_patch_size=16,
            lg_enc_depth=2,
            lg_enc_heads=4,
            lg_enc_mlp_dim=768,
            cross_attn_depth=1,
            cross_attn_heads=4,
        ),
    },
    "cct": {
        "vit_cct": vit(
            "cct.CCT",
            128,
            img_size=(128, 128),
            embedding_dim=192,
            n_conv_layers=2,
            kernel_size=7,
            stride=2,
            padding=3,
            pooling_kernel_size=3,
            pooling_stride=2,
            pooling_padding=1,
            num_layers=6,
            num_heads=4,
            mlp_ratio=2.0,
            positional_embedding="learnable",
        ),
    },
    "t2t": {
        "vit_t2t": vit(
            "t2t.T2TViT",
            128,
            image_size=128,
            dim=192,
            depth=4,
            heads=4,
            mlp_dim=384,
            t2t_layers=((7, 4), (3, 2), (3, 2)),
        ),
    },
    "deepvit": {"vit_deepvit": vit("deepvit.DeepViT", 160, **_IMAGE)},
    "gqa": {
        "xt_gqa": transformer("Decoder", 128, attn_kv_heads=2, use_rmsnorm=True, ff_swish=True, ff_glu=True),
        "hf_gemma": transformers(
            "Gemma", ids(96), **_DECODER, num_attention_heads=4, num_key_value_heads=1, head_dim=64
        ),
    },
    "macaron": {"xt_macaron": transformer("Encoder", 96, macaron=True, use_scalenorm=True)},
    "selecsls": {"cv_selecsls42": pytorchcv("selecsls42b", 224)},
    "hardnet": {"cv_hardnet39": pytorchcv("hardnet39ds", 224)},
    "vovnet": {"cv_vovnet27": pytorchcv("vovnet27s", 224), "cv_vovnet39": pytorchcv("vovnet39", 224)},
    "resnest": {"cv_resnestabc14": pytorchcv("resnestabc14", 224), "cv_resnesta18": pytorchcv("resnesta18", 224)},
    "igcv3": {"cv_igcv3": pytorchcv("igcv3_w1", 224)},
    "darknet": {"cv_darknet53": pytorchcv("darknet53", 224), "cv_darknet_ref": pytorchcv("darknet_ref", 224)},
    "bninception": {"cv_bninception": pytorchcv("bninception", 224)},
    "diracnet": {"cv_diracnet18": pytorchcv("diracnet18v2", 224), "cv_diracnet34": pytorchcv("diracnet34v2", 224)},
    "condensenet": {"cv_condensenet": pytorchcv("condensenet74_c4_g4", 224)},
    "sinet": {"cv_sinet": pytorchcv("sinet_cityscapes", 256)},
    "lednet": {"cv_lednet": pytorchcv("lednet_cityscapes", 256)},
    "openpose": {"cv_lwopenpose": pytorchcv("lwopenpose2d_mobilenet_cmupan_coco", 256)},
    "fishnet": {"cv_fishnet99": pytorchcv("fishnet99", 224)},
    "dla": {"cv_dla34": pytorchcv("dla34", 224), "cv_dla46c": pytorchcv("dla46c", 224)},
    "wavlm": {
        "hf_wavlm": transformers(
            "WavLM", image(1, 16000), hidden_size=192, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768
        ),
    },
    "cohere": {"hf_cohere": transformers("Cohere", ids(96), **_DECODER, num_attention_heads=4)},
    "mpt": {
        "hf_mpt": transformers("Mpt", ids(96), vocab_size=TOKENS, d_model=256, n_heads=4, n_layers=4, max_seq_len=128)
    },
    "forest": {
        "sk_forest": _estimator("sklearn.ensemble.RandomForestClassifier", 2000, 30, n_estimators=200, random_state=0),
    },
    "kernel_machine": {
        "sk_svc": _estimator("sklearn.svm.SVC", 500, 40),
        "sk_neighbours": _estimator("sklearn.neighbors.KNeighborsClassifier", 100, 20),
    },
    "perceptron": {
        "sk_mlp": _estimator(
            "sklearn.neural_network.MLPClassifier", 500, 60, hidden_layer_sizes=(512, 512, 256), max_iter=5
        ),
    },
}


def open_lockbox(system: str, folder: Path) -> None:
    """Judges the models and appends the figures to the log.

    Raises:
        SystemExit: There are uncommitted changes, or this version has opened the lockbox on the system before.
    """
    number = version("costmodel")
    if _git("status", "--porcelain"):
        sys.exit("there are uncommitted changes: the log names the commit that was judged, so commit them first")
    if any(row.startswith("|") and f"| {number} |" in row and f"| {system} |" in row for row in _LOG.open()):
        sys.exit(f"version {number} has opened the lockbox on {system}: docs/lockbox.md has its figures")
    lineage_of = {name: lineage for lineage, models in LINEAGES.items() for name in models}
    found = judged(system, lineage_of.keys() & {path.stem for path in folder.rglob("*.onnx")})
    lineages = [lineage_of[name] for name in found.names]
    cells = [datetime.now(UTC).strftime("%Y-%m-%d"), number, _git("rev-parse", "--short", "HEAD"), system]
    cells += [f"{len(found.names)}, {len(set(lineages))}"]
    cells += [figure for ratios in (found.predictions, found.sums) for figure in _figures(ratios, lineages)]
    row = f"| {' | '.join(cells)} |"
    with _LOG.open("a") as file:
        file.write(row + "\n")
    print(row)


def _figures(ratios: np.ndarray, lineages: list[str]) -> list[str]:
    """Returns the mean error, its mean over lineages, its 95th percentile, and the share of models within 10%."""
    errors, of = np.abs(ratios - 1), np.array(lineages)
    macro = np.mean([errors[of == lineage].mean() for lineage in sorted(set(lineages))])
    return [f"{errors.mean():.1%}", f"{macro:.1%}", f"{np.quantile(errors, 0.95):.1%}", f"{(errors <= 0.1).mean():.0%}"]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["export", folder]:
            export(LINEAGES, Path(folder))
        case ["open", system, folder]:
            open_lockbox(system, Path(folder))
        case _:
            sys.exit(__doc__)
