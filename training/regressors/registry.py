"""The registry of regressors by name: learners, which can become champions, and baselines, which cannot."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from costmodel.training.regressors.baselines import (
    FlopsRegressor,
    ForestPerOperatorRegressor,
    NearestRegressor,
    OperatorCountRegressor,
    RooflineRegressor,
)
from costmodel.training.regressors.ensemble import EnsembleRegressor
from costmodel.training.regressors.learner import Learner, Regressor
from costmodel.training.regressors.lightgbm_regressor import LightGBMRegressor
from costmodel.training.regressors.log_linear import LogLinearRegressor
from costmodel.training.regressors.operator_scale import OperatorScaleRegressor
from costmodel.training.regressors.thread_scaling import ThreadScalingRegressor

__all__ = ["BASELINES", "DETERMINISTIC", "GNN_INSTALLED", "LEARNERS", "REGRESSORS", "model_us"]


def model_us(regressor: Regressor) -> float:
    """Returns the time, in microseconds, that a trained regressor predicts for each model besides its layers."""
    return float(getattr(regressor, "model_us_", 0.0))


# Makers of baselines by name, each from a seed. A baseline is never a champion.
BASELINES: Mapping[str, Callable[[int], Regressor]] = {
    "forest_per_operator": lambda seed: ForestPerOperatorRegressor(seed),
    "nearest": lambda seed: NearestRegressor(),
    "roofline": lambda seed: RooflineRegressor(),
    "flops": lambda seed: FlopsRegressor(),
    "operator_count": lambda seed: OperatorCountRegressor(),
}


def _graph_regressor(seed: int) -> Learner:
    from costmodel.training.regressors.gnn import GraphRegressor  # torch takes seconds to import

    return GraphRegressor(seed)


def _ensemble(seed: int) -> Learner:
    from costmodel.training.regressors.perceptron import PerceptronRegressor

    # Trees find by themselves what an operator's layers have in common, a network does not (docs/adr/0019).
    members: dict[str, Learner] = {
        "lightgbm": LightGBMRegressor(seed),
        "perceptron": OperatorScaleRegressor(PerceptronRegressor(seed)),
    }
    return ThreadScalingRegressor(EnsembleRegressor(members), seed)


# Whether the packages of neural networks are installed.
GNN_INSTALLED = all(find_spec(package) is not None for package in ("torch", "torch_geometric", "onnxscript"))

# Makers of the regressors that can become a champion by name, each from a seed.
LEARNERS: Mapping[str, Callable[[int], Learner]] = {
    "lightgbm": lambda seed: ThreadScalingRegressor(LightGBMRegressor(seed), seed),
    "log_linear": lambda seed: LogLinearRegressor(),
    **({"ensemble": _ensemble, "gnn": _graph_regressor} if GNN_INSTALLED else {}),
}

# Makers of all regressors by name, each from a seed.
REGRESSORS: Mapping[str, Callable[[int], Regressor]] = {**LEARNERS, **BASELINES}

# Names of the regressors that use no random numbers, for which one seed is enough.
DETERMINISTIC = frozenset({"log_linear", "linear_correction", "nearest", "roofline", "flops", "operator_count"})
