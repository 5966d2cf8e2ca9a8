"""What benchmarks of single sessions share: a process for each model, a file of rows, and splits of the families."""

import csv
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from costmodel.atomic_write import atomic_file

__all__ = ["PREPARED", "halves", "read_rows", "run_alone", "write_rows"]

# Beginning of a process that is measured, which imports nothing of costmodel: session options for one thread, and
# inputs of zeros for a session.
PREPARED = """
import sys
import numpy as np
import onnxruntime as ort

ort.set_default_logger_severity(4)
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1


def zeros_for(session):
    types = {"float": "float32", "double": "float64", "bool": "bool_"}
    return {
        one.name: np.zeros(
            [dim if isinstance(dim, int) and dim > 0 else 1 for dim in one.shape],
            types.get(one.type[7:-1], one.type[7:-1]),
        )
        for one in session.get_inputs()
    }
"""


def run_alone(script: str, model: Path, *arguments: str) -> str | None:
    """Runs a script with the path of a model in a process of its own; returns what it prints, or None if it fails."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMP"))}
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), *arguments], capture_output=True, text=True, env=alone, check=False
    )
    if done.returncode:
        print(f"{model.name}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return done.stdout


def read_rows(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[dict[str, str]]) -> None:
    """Writes a CSV file anew; the old one stays if that fails."""
    with atomic_file(path) as partial, partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)


def halves(families: Sequence[str], seed: int) -> np.ndarray:
    """Returns for each model on which side of a random split of the families it is, shape [num_models]."""
    order = sorted(set(families))
    random.Random(seed).shuffle(order)
    side = {family: place % 2 == 1 for place, family in enumerate(order)}
    return np.array([side[family] for family in families])
