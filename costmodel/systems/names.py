"""Names of systems: those that may be given, those that `costmodel` gives itself, and what the latter tell."""

import re

from costmodel.errors import SystemNameError
from costmodel.runtimes.base import DEFAULT_RUNTIME, RuntimeSettings
from costmodel.systems.host import Host

__all__ = ["default_name", "is_default_name", "major_minor", "measuring_command", "validate_name"]

_MOST_CHARACTERS = 64

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_MOST_CHARACTERS - 1}}}")
# Windows treats these names as devices, with any extension.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)

_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "hygon"}
_RUNTIMES = {"onnxruntime": "ort", "openvino": "ov"}
# Parts of a brand string that carry no information or repeat the name of the vendor.
_NOISE = re.compile(
    r"\([^)]*\)|@.*|\bwith .*|\b\d+th gen\b|\b\S+-core\b|\b(amd|intel|arm|cpu|processor|virtual)\b",
    re.IGNORECASE,
)

# The part of every default name that follows the hardware: runtime, version, threads, and settings that are not the
# usual ones.
_DEFAULT_NAME = re.compile(
    r"-(?P<runtime>ort|ov)\d+\.\d+-(?P<threads>\d+)t(-(?P<inter>\d+)inter)?(-(?P<level>none|basic|extended))?(-|$)"
)


def validate_name(name: str) -> str:
    """Returns `name` if it is a valid system name, which can be used in command lines, URLs and file names.

    Raises:
        SystemNameError: The name has characters other than ASCII letters, digits, '.', '_' and '-', does not start
            with a letter or digit, ends with '.', is longer than 64 characters, or is a device name on Windows.
    """
    if _NAME.fullmatch(name) and not name.endswith(".") and not _DEVICES.fullmatch(name):
        return name
    shown = ascii(name if len(name) <= _MOST_CHARACTERS else name[:_MOST_CHARACTERS] + "...")
    raise SystemNameError(
        f"{shown} cannot name a system: use at most {_MOST_CHARACTERS} letters, digits, '.', '_' and '-', "
        "starting with a letter or digit, not ending with '.', and no device name such as 'con'"
    )


def measuring_command(name: str) -> str:
    """Returns the command that measures a system, on its host, such as "costmodel bench --threads 2"."""
    found = _DEFAULT_NAME.search(name)
    if found is None:
        return f"costmodel bench --system {name}"
    (runtime,) = (runtime for runtime, short in _RUNTIMES.items() if short == found["runtime"])
    options = {
        "--runtime": runtime if runtime != DEFAULT_RUNTIME else None,
        "--threads": found["threads"] if found["threads"] != "1" else None,
        "--inter-threads": found["inter"],
        "--level": found["level"],
    }
    return " ".join(
        ["costmodel bench", *(f"{option} {value}" for option, value in options.items() if value is not None)]
    )


def default_name(host: Host, runtime: str, version: str, settings: RuntimeSettings, *, patch: bool = False) -> str:
    """Returns the default name of a system, such as "amd-epyc-zen5-2c-ort1.31-1t".

    The name consists of processor, microarchitecture, number of usable CPUs, runtime and threads, and of those other
    settings that are not at their defaults. The same arguments always give the same name.

    Args:
        host: Hardware of the system.
        runtime: Name of the runtime.
        version: Full version of the runtime.
        settings: Settings of the runtime.
        patch: Whether the name has the full version, which distinguishes two patches of a release.
    """
    vendor = _slug(_VENDORS.get(host.vendor, host.vendor)) or _slug(host.architecture) or "host"
    design = host.microarchitecture or (f"f{host.family}m{host.model}" if host.family else "")
    engine = _slug(_RUNTIMES.get(runtime, runtime))[:12] + (_slug(version) if patch else major_minor(version))
    parts = [_slug(design), f"{host.effective_cpus}c", engine, f"{settings.threads}t"]
    if settings.inter_threads > 1:
        parts.append(f"{settings.inter_threads}inter")
    if settings.level != "all":
        parts.append(_slug(settings.level))
    if not settings.spinning:
        parts.append("nospin")
    # A name that is too long loses the end of the brand, because the other parts distinguish the systems of one host.
    end = "-".join(["", *filter(None, parts)])[8 - _MOST_CHARACTERS :].lstrip(".")
    brand = _slug(f"{vendor}-{_slug(_NOISE.sub(' ', host.model_name))}")
    return validate_name(brand[: _MOST_CHARACTERS - len(end)].rstrip(".-_") + end)


def is_default_name(name: str) -> bool:
    """Returns whether a name has the form of a default name."""
    return _DEFAULT_NAME.search(name) is not None


def major_minor(version: str) -> str:
    """Returns the first two numbers of a version, as text."""
    match = re.match(r"[0-9]+(\.[0-9]+)?", version)
    return match[0] if match else _slug(version)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
