"""Chooses the settings under which a model should run, from predictions: runtime, threads, level, batch, precision.

In come the systems of one host and estimates of a model on them; out comes an answer that ranks settings. This package
measures nothing; `costmodel.jobs.tuning` measures the best settings and completes the answer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
