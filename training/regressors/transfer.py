"""Transfers costs from one system to another with a Gaussian process, which learns from a few dozen measured layers.

What the process predicts is log(cost on the new system / anchor), where the anchor of a layer is usually its cost on
the base system. Layers that need similar resources have similar ratios, and layers of one operator and of similar
shapes even more so; far from all measured layers, the prediction falls back to the median ratio. Trees need hundreds
of layers for the same accuracy (docs/adr/0010).

Where other systems have measured the layers as well, log(cost on another system / anchor) is an input of which the
prediction is a linear function with learnt slopes: a slope of 1 means that the new system is like that other one.
"""

from collections.abc import Sequence

import numpy as np

from costmodel.errors import MissingExtraError
from costmodel.features.schema import OPERATORS, SCHEMA
from costmodel.features.tabular import Encoded

try:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

__all__ = ["UNKNOWN_SPREAD", "CostTransfer"]

# Features that tell which resource limits a layer, and those of its shape. Features of the system are left out, because
# they are the same for all layers.
_SIZE = (
    "log_bound_us", "log_multiply_flops", "log_other_flops", "log_moved_bytes", "log_weight_bytes", "log_intensity",
    "memory_share", "log_scalar_calls",
)  # fmt: skip
_SHAPE = (
    "log_rows", "log_columns", "log_depth", "log_in_positions", "log_out_positions", "log_inner_axis", "log_inner_run",
    "log_axis_size", "last_axis_kept", "log_kernel_area", "stride", "log_group", "depthwise", "pointwise",
    "log_other_operand", "blocked_input", "item_bytes", "log_scaled", "rank",
)  # fmt: skip
_FIRST_OPERATOR = SCHEMA.names.index(f"op_{OPERATORS[0]}")

# Standard deviations and lengths of the kernel, rounded from the values of highest marginal likelihood over pairs of
# three microarchitectures; values that were fitted without the judged one give the same errors (docs/adr/0010).
_COMMON, _OF_SIZE, _OF_OPERATOR, _OF_OPERATOR_AND_SIZE, _OF_SHAPE = 0.25, 0.45, 0.1, 0.15, 0.18
_SIZE_LENGTH, _OPERATOR_SIZE_LENGTH, _SHAPE_SIZE_LENGTH, _SHAPE_LENGTH = 2.4, 2.0, 1.4, 2.2
_DIFFERENT_OPERATOR = 1e-2  # two operators, whose numbers differ by at least 1, are unrelated
# Standard deviation of the slope that belongs to each other measured system: being like it is as likely as not.
_SLOPE = 0.5
# Noise of a measured ratio: a share of the cost, and a part of fixed length, which matters for short layers.
_NOISE, _NOISE_US = 0.05, 1.5
# With more observations, fitting takes minutes; the errors hardly fall from a few hundred on.
_MOST_OBSERVED = 1_500
_CHUNK = 4_000
# Standard deviation of log(cost / anchor) of layers that nothing was predicted for.
UNKNOWN_SPREAD = 0.5


class CostTransfer:
    """A Gaussian process of log(cost / anchor) over the layers of a data set.

    Args:
        anchored: Layers, with their anchors in place of analytical bounds (`costmodel.training.regressors.anchors`).
        ratios: log(cost / anchor) of each sequence on other systems, shape [num_sequences, num_others]; None if there
            are no others.
    """

    def __init__(self, anchored: Encoded, ratios: np.ndarray | None = None) -> None:
        columns = [SCHEMA.names.index(name) for name in (*_SIZE, *_SHAPE)]
        values = anchored.features[:, columns].astype(np.float64)
        operator = anchored.features[:, _FIRST_OPERATOR:].argmax(axis=1)
        deviations = values.std(axis=0)
        scaled = (values - values.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
        others = np.zeros((len(anchored), 0)) if ratios is None else ratios - np.median(ratios, axis=0)
        self._inputs = np.column_stack([scaled, operator, np.repeat(others, anchored.lengths, axis=0)])
        self._kernel = _kernel(others.shape[1])
        self._anchored = anchored

    def predict(
        self, measured: np.ndarray, costs_us: np.ndarray, wanted: np.ndarray, importance: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predicts log(cost / anchor) of layers from the measured costs of others.

        Args:
            measured: Rows of the layers that are measured, at least one; shape [num_measured].
            costs_us: Measured cost of each of them in microseconds, shape [num_measured].
            wanted: Rows of the layers to predict, shape [num_wanted].
            importance: How much each measured layer matters; of more than 1,500 measured layers only the most important
                are used. By default their order. Shape [num_measured].

        Returns:
            Mean and standard deviation of the prediction for each wanted layer, shape [num_wanted] each.
        """
        if len(measured) > _MOST_OBSERVED:
            order = np.arange(len(measured)) if importance is None else np.argsort(-importance, kind="stable")
            measured, costs_us = measured[order[:_MOST_OBSERVED]], costs_us[order[:_MOST_OBSERVED]]
        anchors_us = self._anchored.bounds_us[measured]
        ratios = np.log(costs_us / anchors_us)
        typical = float(np.median(ratios))
        noise = _NOISE**2 + (_NOISE_US / anchors_us) ** 2
        process = GaussianProcessRegressor(self._kernel, alpha=noise, optimizer=None)
        process.fit(self._inputs[measured], ratios - typical)
        parts = [
            process.predict(self._inputs[wanted[start : start + _CHUNK]], return_std=True)
            for start in range(0, len(wanted), _CHUNK)
        ]
        if not parts:
            return np.empty(0), np.empty(0)
        means, deviations = (np.concatenate(of) for of in zip(*parts, strict=True))
        return typical + means, deviations

    def predict_costs(
        self, costs_us: np.ndarray, known: np.ndarray, wanted: np.ndarray, importance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predicts costs of sequences from the measured costs of single layers.

        Args:
            costs_us: Measured costs in microseconds, shape [num_sequences]; only those of `known` are used.
            known: Mask of the single layers to learn from, at least one; shape [num_sequences].
            wanted: Mask of the sequences to predict; the others get the median ratio to their anchors. Shape
                [num_sequences].
            importance: How much each sequence matters, as in `predict`; shape [num_sequences].

        Returns:
            Cost of each sequence in microseconds and standard deviation of its logarithm, shape [num_sequences] each.
        """
        layers = self._anchored
        of_row = np.repeat(np.arange(len(layers)), layers.lengths)
        places = np.flatnonzero(wanted[of_row])
        first = layers.starts[:-1][known]
        logs = np.full(len(of_row), np.log(np.median(costs_us[known] / layers.bounds_us[first])))
        deviations = np.full(len(of_row), UNKNOWN_SPREAD)
        logs[places], deviations[places] = self.predict(first, costs_us[known], places, importance[known])
        costs = layers.bounds_us * np.exp(logs)
        totals = layers.totals(costs)
        return totals, layers.totals(costs * deviations) / totals


class _Slopes(Kernel):  # type: ignore[misc]
    """The covariance of linear functions of the last inputs, whose slopes are normally distributed around 0.

    Args:
        inputs: Number of the last columns of the inputs that the function depends on.
        deviation: Standard deviation of each slope.
    """

    def __init__(self, inputs: int, deviation: float) -> None:
        self.inputs = inputs
        self.deviation = deviation

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None, eval_gradient: bool = False) -> np.ndarray:  # noqa: N803 - the names that scikit-learn passes
        """Returns the covariances of the rows of X and Y (by default X); gradients are never needed."""
        assert not eval_gradient
        left = X[:, X.shape[1] - self.inputs :]
        right = left if Y is None else Y[:, Y.shape[1] - self.inputs :]
        return np.asarray(self.deviation**2 * left @ right.T)

    def diag(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        """Returns the variances at the rows of X."""
        return np.asarray(self.deviation**2 * (X[:, X.shape[1] - self.inputs :] ** 2).sum(axis=1))

    def is_stationary(self) -> bool:
        """Returns False, because the variance grows with the inputs."""
        return False


def _kernel(others: int) -> Kernel:
    """Returns the covariance of log(cost / anchor) between two layers: the sum of what they may have in common.

    Args:
        others: Number of other systems whose ratios are the last inputs.
    """
    anywhere_in_shape, anywhere_in_size = np.full(len(_SHAPE), np.inf), np.full(len(_SIZE), np.inf)

    def near(size: Sequence[float] | np.ndarray, shape: Sequence[float] | np.ndarray, operator: float) -> Kernel:
        return RBF(np.concatenate([size, shape, [operator], np.full(others, np.inf)]), "fixed")

    def variance(deviation: float) -> Kernel:
        return ConstantKernel(deviation**2, "fixed")

    def size(length: float) -> np.ndarray:
        return np.full(len(_SIZE), length)

    same = _DIFFERENT_OPERATOR
    return (
        variance(_COMMON)
        + variance(_OF_SIZE) * near(size(_SIZE_LENGTH), anywhere_in_shape, np.inf)
        + variance(_OF_OPERATOR) * near(anywhere_in_size, anywhere_in_shape, same)
        + variance(_OF_OPERATOR_AND_SIZE) * near(size(_OPERATOR_SIZE_LENGTH), anywhere_in_shape, same)
        + variance(_OF_SHAPE) * near(size(_SHAPE_SIZE_LENGTH), np.full(len(_SHAPE), _SHAPE_LENGTH), same)
        + _Slopes(others, _SLOPE)
    )
