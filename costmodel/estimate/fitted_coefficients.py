"""Reads coefficients that were fitted to processes of a runtime, from the files beside this module."""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from costmodel.memory.session import MemoryDemand
from costmodel.systems.system import System

__all__ = ["demand_on", "fitted_coefficients"]

# Level of optimisation at which the processes ran.
_LEVEL = "all"


def fitted_coefficients(file: str, system: System) -> dict[str, Any] | None:
    """Returns the coefficients for the runtime of a system.

    Args:
        file: Name of the file, such as "peak_memory.json".
        system: System with the runtime and its settings.

    Returns:
        The coefficients; None if no processes were measured with the runtime's version (major and minor) and level of
        optimisation.
    """
    version = re.match(r"\d+\.\d+", system.runtime_version)
    if version is None or system.settings.level != _LEVEL:
        return None
    return _content(file).get(f"{system.runtime} {version[0]}")


def demand_on(system: System, demand: MemoryDemand) -> MemoryDemand:
    """Returns the memory that a session allocates on the processor of a system, which decides the size of blocks.

    An x86 processor that is known to lack AVX-512 has blocks of 8 channels; all others are taken to have blocks of 16.

    Args:
        system: System with the host.
        demand: Memory that a session allocates in blocks of 16 channels.
    """
    host = system.host
    narrow = host is not None and host.architecture == "x86_64" and bool(host.isa) and "avx512f" not in host.isa
    return (demand.in_narrow_blocks or demand) if narrow else demand


@cache
def _content(file: str) -> dict[str, dict[str, Any]]:
    """Returns the coefficients in a file by runtime and version, such as "onnxruntime 1.31"."""
    content: dict[str, dict[str, Any]] = json.loads(files("costmodel.estimate").joinpath(file).read_text())
    return content
