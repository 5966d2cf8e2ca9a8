"""What costmodel knows of the kernels of runtimes, which may not be installed here."""

__all__ = ["has_channels_last", "has_thread_rules"]

_WITH_THREAD_RULES = frozenset({"onnxruntime"})
_CHANNELS_LAST = frozenset({"openvino"})


def has_channels_last(runtime: str) -> bool:
    """Returns whether a runtime keeps images with the channels last, where others have blocks of channels.

    Such a runtime computes with kernels that `costmodel.features.channels_last_convolution` and
    `costmodel.features.row_copies` describe.
    """
    return runtime in _CHANNELS_LAST


def has_thread_rules(runtime: str) -> bool:
    """Returns whether it is known how the kernels of a runtime divide their work among threads."""
    return runtime in _WITH_THREAD_RULES
