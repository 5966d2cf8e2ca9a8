"""Makes the processor treat denormal numbers as zero in this thread.

With random weights the activations of a deep network decay until they are denormal, and some processors take tens of
times as long for an operation on denormal numbers. No trained model has such activations, so they must not be timed.
"""

import ctypes
import ctypes.util
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["denormals_flushed"]

# For each architecture with glibc: offset of the control register in the C type fenv_t, its format, and its bits that
# treat denormal inputs and results as zero (x86: two bits of MXCSR; ARM: one bit of FPCR).
_REGISTERS = {"x86_64": (28, "I", 0x8040), "aarch64": (0, "I", 1 << 24)}
_FENV_BYTES = 64


@contextmanager
def denormals_flushed() -> Iterator[bool]:
    """Treats denormal numbers as zero in this thread until the context ends; yields whether the platform supports it.

    Threads that exist already, such as those of a runtime's pool, are not affected.
    """
    register = _REGISTERS.get(platform.machine())
    name = ctypes.util.find_library("m") if register and platform.libc_ver()[0] == "glibc" else None
    if register is None or name is None:
        yield False
        return
    offset, code, bits = register
    libm = ctypes.CDLL(name)
    before = ctypes.create_string_buffer(_FENV_BYTES)
    libm.fegetenv(before)
    changed = ctypes.create_string_buffer(before.raw, _FENV_BYTES)
    struct.pack_into(code, changed, offset, struct.unpack_from(code, before, offset)[0] | bits)
    libm.fesetenv(changed)
    try:
        yield True
    finally:
        libm.fesetenv(before)
