"""Evaluation of predictors on held-out lineages, that is, lineages that they were not trained on.

Contains splits by lineage, errors, intervals, comparisons, learning curves, and reports with their figures. Nothing in
this package influences how a regressor learns.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
