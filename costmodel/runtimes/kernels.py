"""What costmodel knows of the kernels of runtimes, which may not be installed here."""

__all__ = ["has_thread_rules"]

_WITH_THREAD_RULES = frozenset({"onnxruntime"})


def has_thread_rules(runtime: str) -> bool:
    """Returns whether it is known how the kernels of a runtime divide their work among threads."""
    return runtime in _WITH_THREAD_RULES
