"""Lineages: families of models that are made of the same kinds of layers, joined in the same way.

An evaluation that holds out one family while a near twin is trained on (ResNet and a search space around it, BERT and
its distilled copies) makes the unseen look easy. Families are therefore grouped by what their models share, not by
their names, and held out by lineage (docs/adr/0018).
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import FEATURE_GROUPS, SCHEMA
from costmodel.training.dataset import Dataset
from costmodel.training.evaluation.splits import LEAST_FAMILIES

try:
    from scipy.cluster.hierarchy import fcluster, linkage
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["by_lineage", "lineages_of"]

# Distance (1 - cosine similarity) up to which families are of one lineage.
_SAME = 0.35
_FIRST_OPERATOR = SCHEMA.names.index(FEATURE_GROUPS["operator"][0])
# What makes a kind of layer besides its operator; sizes do not count.
_KIND = [
    SCHEMA.names.index(name)
    for name in ("log_kernel_area", "stride", "depthwise", "pointwise", "activation", "transpose_path", "rank")
]


def lineages_of(dataset: Dataset) -> Mapping[str, str]:
    """Returns the lineage of each family that has a whole model: the name of its family with the most models.

    Models are compared by how often each kind of layer feeds each other kind, and families by the means of their
    models; average linkage joins families to lineages.
    """
    models = dataset.models + dataset.borrowed_models
    pairs = [_pairs(dataset, model.row) for model in models]
    column = {pair: position for position, pair in enumerate(sorted({pair for of_model in pairs for pair in of_model}))}
    families = Counter(model.family for model in models if model.family)
    if len(families) < 2 or not column:
        return {family: family for family in families}
    vectors = dict.fromkeys(sorted(families), np.zeros(len(column)))
    for model, of_model in zip(models, pairs, strict=True):
        if model.family:
            vector = np.zeros(len(column))
            vector[[column[pair] for pair in of_model]] = np.sqrt(list(of_model.values()))
            vectors[model.family] = vectors[model.family] + vector / max(1.0, float(np.linalg.norm(vector)))
    matrix = np.array([vector / max(1e-9, float(np.linalg.norm(vector))) for vector in vectors.values()])
    distances = np.clip(1 - matrix @ matrix.T, 0, None)[np.triu_indices(len(matrix), 1)]
    labels = fcluster(linkage(distances, "average"), _SAME, "distance").tolist()
    groups: dict[int, list[str]] = {}
    for family, label in zip(vectors, labels, strict=True):
        groups.setdefault(label, []).append(family)
    return {
        family: min(group, key=lambda name: (-families[name], name)) for group in groups.values() for family in group
    }


def by_lineage(dataset: Dataset) -> Dataset:
    """Returns a data set whose families are lineages; families without a whole model stay as they are.

    A data set with too few lineages to hold any out is returned as it is.
    """
    made = dataset.renamed(lineages_of(dataset))
    return made if len(made.all_families) >= LEAST_FAMILIES else dataset


def _pairs(dataset: Dataset, row: int) -> Counter[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Returns how often each kind of layer feeds each kind of layer in a row of the data set."""
    encoded = dataset.encoded
    first, end = encoded.starts[row], encoded.starts[row + 1]
    features = encoded.features[first:end]
    operators = features[:, _FIRST_OPERATOR:].argmax(axis=1)
    kinds = [
        (float(operator), *numbers)
        for operator, numbers in zip(operators.tolist(), np.round(features[:, _KIND], 2).tolist(), strict=True)
    ]
    inside = (encoded.edges[0] >= first) & (encoded.edges[0] < end)
    return Counter((kinds[a - first], kinds[b - first]) for a, b in encoded.edges[:, inside].T.tolist()) + Counter(
        (kind, kind) for kind in kinds
    )
