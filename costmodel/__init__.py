"""Predicts the latency of neural networks on a machine without running them on that machine."""

import os

import lazy_loader

# ONNX Runtime 1.29 and later starts a telemetry thread at import: it sends data to the vendor and disturbs timings.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# `import costmodel` loads nothing heavy: a public name is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
