"""Numbers that the DLBricks paper reports.

Its authors measured at batch size 1 with MXNet 1.5.1 and MKL 2019.3 on four EC2 systems; each latency is the 20%
trimmed mean of 100 runs.
"""

__all__ = [
    "GEOMETRIC_MEAN",
    "GRANULARITIES",
    "LAYERS",
    "RANGE",
    "SPEEDUP",
    "UNIQUE_LAYERS",
]

# Figure 3, c5.2xlarge: sum of layers divided by end-to-end latency, 50 models.
GEOMETRIC_MEAN = 0.918
# Figure 10, c5.2xlarge, G = 1: the worst and the best model.
RANGE = (0.829, 0.981)
# Figure 12, c5.xlarge, G = 1.
SPEEDUP = 4.4
# Section 4: number of layers in all models, and of unique layers among them.
LAYERS = 10_815
UNIQUE_LAYERS = 1_529
# Figures 11 and 12.
GRANULARITIES = tuple(range(1, 11))
