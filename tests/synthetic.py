"""A store of synthetic measurements of real models' layers, whose costs are derived from their analytical bounds.

A synthetic cost is the analytical bound of a sequence, times a factor of its kind, times a little noise that depends on
its signature alone: a regressor can learn the factors, and every test run has the same data.
"""

import hashlib
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from costmodel.features.analytical_bound import bound_us
from costmodel.ir.sequence import LayerSequence
from costmodel.jobs.decomposed_models import DecomposedModel, decompose_models
from costmodel.measure.measurement import Kind, Measurement
from costmodel.measure.protocol import Protocol
from costmodel.paths import Home
from costmodel.runtimes.base import RuntimeSettings, get_runtime, lowering_key
from costmodel.store.store import Store
from costmodel.synthetic.sampling import sample_around
from costmodel.systems.host import Host
from costmodel.systems.system import System
from costmodel.training.corpus import corpus_models
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.train import train_system
from tests.fakes import results

# SQLAlchemy 2.1's warning about MLflow 3.17's own queries; for tests that record runs.
MLFLOW_DEPRECATION = "The ``noload`` loader strategy"

__all__ = [
    "FAMILIES",
    "HELD_BACK",
    "MEASURED",
    "MLFLOW_DEPRECATION",
    "QUICK",
    "SYSTEM",
    "copied",
    "corpus",
    "fill",
    "made_up_measurement",
    "made_up_us",
    "put_tracking_store",
    "trained_home",
]

SYSTEM = System(
    name="made.up",
    host=Host(
        vendor="GenuineIntel", model_name="Made Up 1", physical_cores=2, logical_cpus=2, logical_cpus_total=2,
        l1d_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, isa=("avx", "avx2", "fma"),
    ),
    runtime="onnxruntime",
    runtime_version="1.31.1",
    settings=RuntimeSettings(),
    capabilities={
        "gemm_gflops": 80.0, "memory_gbps": 10.0, "scalar_ns": 8.0, "layer_us": 0.5, "reference_us": 420.0,
    },
)  # fmt: skip

# Six models of five families are measured; the three others are only predicted.
MEASURED = (
    "light_bvlc_alexnet",
    "light_inception_v1",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)
HELD_BACK = ("light_resnet50", "light_inception_v2")
FAMILIES = ("alexnet", "inception", "shufflenet", "squeezenet", "vgg")
# SqueezeNet's layers are joined like those of Inception.
LINEAGES = ("alexnet", "inception", "shufflenet", "vgg")
# Fast regressors, for tests that do not depend on the regressor.
QUICK = MappingProxyType({"lightgbm": LightGBMRegressor})
SAMPLES = 40
REPEATED = 30


def _chance(text: str) -> float:
    """Returns a pseudo-random number between 0 and 1 that depends on `text` alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def made_up_us(sequence: LayerSequence, system: System = SYSTEM) -> float:
    """Returns the synthetic cost of a sequence in microseconds."""
    factor = 1.2 + 2 * _chance(sequence.kind)
    noise = 0.98 + 0.04 * _chance(sequence.signature)
    return bound_us(sequence, system) * factor * noise


def made_up_measurement(signature: str, latency_us: float, kind: Kind = "layer") -> Measurement:
    """Returns a measurement with latency `latency_us`; the runs of a model vary, mostly upwards."""
    factors = (0.99, 1.0, 1.0, 1.05, 1.4) if kind == "model" else (1.0,) * 5
    return Measurement(
        signature=signature,
        kind=kind,
        pass_times_us=tuple(tuple(latency_us * factor for factor in factors) for _ in range(5)),
        reference_us=(420.0,) * 5,
        stable=True,
        environment={"protocol": Protocol().version},
        measured_at="2026-11-20T12:00:00+00:00",
    )


@cache
def corpus(folder: Path) -> dict[str, DecomposedModel]:
    """Returns the light models by name, lowered once a session with a cache in `folder`."""
    names = sorted((*MEASURED, *HELD_BACK))
    models = [model for name in names for model in corpus_models(name)]
    return {item.model.name: item for item in decompose_models(models, get_runtime(), "all", folder)}


def fill(
    store: Store,
    models: Iterable[DecomposedModel],
    *,
    system: System = SYSTEM,
    samples: int = SAMPLES,
    inside: float = 1.0,
) -> None:
    """Store synthetic measurements of models: sequences, whole models, samples, and some repeated measurements.

    Args:
        store: Where they are stored.
        models: The models.
        system: The system that the measurements are of.
        samples: Number of samples.
        inside: Factor from the sum of a model's layers to the latency of the whole model.
    """
    store.put_system(system)
    sequences: dict[str, LayerSequence] = {}
    lowering = lowering_key(get_runtime(), "all")
    for item in models:
        segments = item.decomposition
        store.put_model(segments, item.whole, digest=item.model.digest, family=item.family, lowering=lowering)
        sequences |= segments.unique
        total = sum(made_up_us(segment.sequence, system) for segment in segments.segments)
        whole_us = total * inside * (0.97 + 0.06 * _chance(item.model.name))
        store.put_measurement(system.name, made_up_measurement(item.whole.signature, whole_us, "model"), item.whole)
    around = sample_around(list(sequences.values()), samples)
    store.put_samples(around)
    sequences |= {signature: sample for signature, (sample, _) in around.items()}
    measured = [(s, made_up_measurement(s.signature, made_up_us(s, system))) for s in sequences.values()]
    measured += [
        (s, replace(made_up_measurement(s.signature, 1.02 * made_up_us(s, system)), measured_at="2026-11-21"))
        for s in list(sequences.values())[:REPEATED]
    ]
    store.put_results(results(system, measured))


@cache
def trained_home(root: Path) -> Home:
    """Returns a home with the measured models in its store and a champion; shared by a session, so read-only."""
    home = Home(root)
    home.data.mkdir(parents=True)
    models = corpus(home.cache)
    store = Store(home.store_url)
    fill(store, [models[name] for name in MEASURED])
    train_system(store, SYSTEM.name, home.bundles, tracking=None, seeds=(0,), learners=QUICK)
    return home


@cache
def _migrated(root: Path) -> Path:
    from mlflow import MlflowClient

    path = root / "migrated-mlflow.db"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", MLFLOW_DEPRECATION, DeprecationWarning)
        MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


def put_tracking_store(root: Path, folder: Path) -> Path:
    """Create `folder` with an empty tracking store, copied because migrating a new one takes seconds.

    Args:
        root: Folder of the store that is copied; the same for the whole session.
        folder: Folder to create, like a home's `tracking`.
    """
    folder.mkdir(parents=True)
    shutil.copy(_migrated(root), folder / "mlflow.db")
    return folder


def copied(home: Home, root: Path) -> Home:
    """Returns a copy of a home that a test may change."""
    shutil.copytree(home.root, root)
    return Home(root)
