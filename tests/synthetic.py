"""A store filled without timing anything: the layers of real models, with costs made up from their bounds.

A made-up cost is the analytical bound of a sequence, times a factor of its kind, times a little noise that depends on
its signature alone: there is something to learn, and every run of the tests learns the same.
"""

import hashlib
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from costmodel.features.bound import bound_us
from costmodel.home import Home
from costmodel.host import Host
from costmodel.jobs import Decomposed, decompose_models
from costmodel.measurement import Measurement, Protocol
from costmodel.runtimes import RuntimeSettings, get_runtime, lowering_key
from costmodel.sampling import sample_around
from costmodel.sequence import LayerSequence
from costmodel.store import Store
from costmodel.systems import System
from costmodel.training.boosted import LightGBMRegressor
from costmodel.training.corpus import corpus_models
from costmodel.training.train import train
from tests.fakes import results

# MLflow 3.17's own queries, as SQLAlchemy 2.1 sees them; for tests that record runs.
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

# Six models of five families are measured; the three others are there to be predicted.
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
# What is trained where it does not matter what is.
QUICK = MappingProxyType({"lightgbm": LightGBMRegressor})
SAMPLES = 40
REPEATED = 30


def _chance(text: str) -> float:
    """A number between 0 and 1 that depends on `text` alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def made_up_us(sequence: LayerSequence, system: System = SYSTEM) -> float:
    """What a sequence costs in the made-up world."""
    factor = 1.2 + 2 * _chance(sequence.kind)
    noise = 0.98 + 0.04 * _chance(sequence.signature)
    return bound_us(sequence, system) * factor * noise


def made_up_measurement(signature: str, latency_us: float) -> Measurement:
    """A measurement of which `latency_us` is the typical latency, and most of the noise lies above."""
    return Measurement(
        signature=signature,
        rounds_us=tuple(tuple(latency_us * factor for factor in (0.99, 1.0, 1.0, 1.05, 1.4)) for _ in range(5)),
        reference_us=(420.0,) * 5,
        stable=True,
        circumstances={"protocol": Protocol().version},
        measured_at="2026-11-20T12:00:00+00:00",
    )


@cache
def corpus(folder: Path) -> dict[str, Decomposed]:
    """The light models, lowered once a session with a cache in `folder`, by name."""
    names = sorted((*MEASURED, *HELD_BACK))
    models = [model for name in names for model in corpus_models(name)]
    return {item.model.name: item for item in decompose_models(models, get_runtime(), "all", folder)}


def fill(store: Store, models: Iterable[Decomposed], *, system: System = SYSTEM, samples: int = SAMPLES) -> None:
    """Measure models in the made-up world: their sequences, themselves, samples around them, some a second time."""
    store.put_system(system)
    sequences: dict[str, LayerSequence] = {}
    lowering = lowering_key(get_runtime(), "all")
    for item in models:
        pieces = item.decomposition
        store.put_model(pieces, item.whole, digest=item.model.digest, family=item.family, lowering=lowering)
        sequences |= pieces.unique
        total = sum(made_up_us(piece.sequence, system) for piece in pieces.pieces)
        whole_us = total * (0.97 + 0.06 * _chance(item.model.name))
        store.put_measurement(system.name, made_up_measurement(item.whole.signature, whole_us), item.whole)
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
    """A home with the measured models in its store and a champion; made once a session, and not to be changed."""
    home = Home(root)
    home.data.mkdir(parents=True)
    models = corpus(home.cache)
    store = Store(home.store_url)
    fill(store, [models[name] for name in MEASURED])
    train(store, SYSTEM.name, home.bundles, tracking=None, seeds=(0,), learners=QUICK)
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
    """Make `folder` with an empty tracking store in it: migrating one takes seconds, copying it does not.

    Args:
        root: Where the one that is copied lives; the same for the whole session.
        folder: As a home's `tracking`.
    """
    folder.mkdir(parents=True)
    shutil.copy(_migrated(root), folder / "mlflow.db")
    return folder


def copied(home: Home, root: Path) -> Home:
    """A copy of a home, to be changed at will."""
    shutil.copytree(home.root, root)
    return Home(root)
