"""Systems: a host, a runtime and its settings, under a name; and what must hold before a name may be used."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

from costmodel.errors import SystemMismatchError, SystemNameError
from costmodel.host import Host, probe_host
from costmodel.runtimes import Runtime, RuntimeSettings
from costmodel.tolerance import known_fields, unknown_fields

__all__ = [
    "CatalogueEntry",
    "System",
    "catalogue",
    "check_same",
    "default_name",
    "this_system",
    "validate_name",
]

MAX_NAME_CHARACTERS = 64

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_CHARACTERS - 1}}}")
# Windows opens these as devices, whatever extension follows.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)

_RECORD = frozenset(("name", "host", "runtime", "runtime_version", "settings", "capabilities", "asserted"))

_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "hygon"}
_RUNTIMES = {"onnxruntime": "ort"}
# Words of a brand string that say nothing, or that the vendor's name already says.
_NOISE = re.compile(
    r"\([^)]*\)|@.*|\bwith .*|\b\d+th gen\b|\b\S+-core\b|\b(amd|intel|arm|cpu|processor|virtual)\b",
    re.IGNORECASE,
)

# The end of every default name: runtime, version, threads.
_DEFAULT_NAME = re.compile(r"-ort\d+\.\d+-\d+t(-|$)")

# A kernel keeps some memory for itself, and firmware more; another instance size is a factor of two away.
_MEMORY_SHARE = (0.8, 1.05)
_CLOCK_SHARE = (0.95, 1.05)


@dataclass(frozen=True, slots=True)
class System:
    """A target that layers are measured on.

    Attributes:
        name: What the user calls it; a valid name.
        host: The hardware; None when it is only catalogued and was never measured.
        runtime: Name of the runtime.
        runtime_version: Its version in full.
        settings: How it is set up.
        capabilities: What was measured of the host, the unit in each name: "gemm_gflops", "memory_gbps",
            "layer_us", "reference_us", with several threads "handover_us". Empty until measured.
        asserted: Whether the user vouched for the name with `--assert-system`, so that nothing checked it.
        unknown: Entries that a newer costmodel wrote into the record and this one does not know, those of its settings
            under "settings" and those of its host under "host"; they are written back as they were.
    """

    name: str
    host: Host | None
    runtime: str
    runtime_version: str
    settings: RuntimeSettings
    capabilities: Mapping[str, float] = field(default_factory=dict)
    asserted: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form, read back by `from_dict`."""
        return {
            **self.unknown,
            "name": self.name,
            "host": None if self.host is None else {**self.unknown.get("host", {}), **self.host.facts()},
            "runtime": self.runtime,
            "runtime_version": self.runtime_version,
            "settings": {**self.unknown.get("settings", {}), **asdict(self.settings)},
            "capabilities": dict(self.capabilities),
            "asserted": self.asserted,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "System":
        """The system that `to_dict` wrote down, here or in a newer costmodel."""
        host, settings = data["host"], data["settings"]
        unknown = {name: value for name, value in data.items() if name not in _RECORD}
        if more := unknown_fields(RuntimeSettings, settings):
            unknown["settings"] = more
        if host is not None and (more := unknown_fields(Host, host)):
            unknown["host"] = more
        return cls(
            name=data["name"],
            host=None if host is None else Host.from_facts(host),
            runtime=data["runtime"],
            runtime_version=data["runtime_version"],
            settings=RuntimeSettings(**known_fields(RuntimeSettings, settings)),
            capabilities=dict(data["capabilities"]),
            asserted=data["asserted"],
            unknown=unknown,
        )


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A system that is known by name.

    Attributes:
        name: The provider's name for it.
        provider: Who rents it out.
        vcpus: Hardware threads.
        vendor: Processor vendor as in CPUID.
        processor: The processor, for people.
        processor_pattern: Regular expression that the processor's brand string contains.
        clock_ghz: Nominal clock.
        memory_gib: Memory as advertised.
        usd_per_hour: Price on demand.
    """

    name: str
    provider: str
    vcpus: int
    vendor: str
    processor: str
    processor_pattern: str
    clock_ghz: float
    memory_gib: float
    usd_per_hour: float

    def differences(self, host: Host) -> list[str]:
        """How `host` differs from this entry, in plain words; empty when it is one. Unreadable facts pass."""
        found = []
        if host.logical_cpus_total != self.vcpus:
            found.append(f"{self.vcpus} vCPUs expected, {host.logical_cpus_total} here")
        elif host.cpu_quota is not None and host.cpu_quota < self.vcpus:
            found.append(f"{self.vcpus} vCPUs expected, this container may use {host.cpu_quota:g} of them")
        if host.vendor != self.vendor or not re.search(self.processor_pattern, host.model_name):
            here = host.model_name or host.vendor or "an unknown one"
            found.append(f"processor {self.processor} expected, {here} here")
        if host.memory_bytes and not _near(gib := host.memory_bytes / 2**30, self.memory_gib, _MEMORY_SHARE):
            found.append(f"{self.memory_gib:g} GiB of memory expected, {gib:.1f} here")
        if host.base_clock_mhz and not _near(ghz := host.base_clock_mhz / 1000, self.clock_ghz, _CLOCK_SHARE):
            found.append(f"{self.clock_ghz:g} GHz expected, {ghz:.2g} here")
        return found


def catalogue() -> dict[str, CatalogueEntry]:
    """The systems of `catalogue.toml` by name."""
    text = (files("costmodel") / "catalogue.toml").read_text(encoding="utf-8")
    return {name: CatalogueEntry(name=name, **entry) for name, entry in tomllib.loads(text).items()}


def validate_name(name: str) -> str:
    """`name` itself: fit for a command line, a URL and a file name.

    Raises:
        SystemNameError: It has other characters than ASCII letters, digits, '.', '_' and '-', does not start
            with a letter or digit, ends with '.', is over 64 characters long, or names a device on Windows.
    """
    if _NAME.fullmatch(name) and not name.endswith(".") and not _DEVICES.fullmatch(name):
        return name
    shown = ascii(name if len(name) <= MAX_NAME_CHARACTERS else name[:MAX_NAME_CHARACTERS] + "...")
    raise SystemNameError(
        f"{shown} cannot name a system: use at most {MAX_NAME_CHARACTERS} letters, digits, '.', '_' and '-', "
        "starting with a letter or digit, not ending with '.', and no device name such as 'con'"
    )


def default_name(host: Host, runtime: str, version: str, settings: RuntimeSettings) -> str:
    """The name of a system that nobody named: stable, readable, such as "amd-epyc-zen5-2c-ort1.31-1t".

    Processor, microarchitecture, CPUs that the process can use, runtime, threads; the other settings only
    where they are not the usual ones.
    """
    vendor = _slug(_VENDORS.get(host.vendor, host.vendor)) or _slug(host.architecture) or "host"
    design = host.microarchitecture or (f"f{host.family}m{host.model}" if host.family else "")
    engine = _slug(_RUNTIMES.get(runtime, runtime))[:12] + _major_minor(version)
    parts = [_slug(design), f"{host.effective_cpus}c", engine, f"{settings.threads}t"]
    if settings.inter_threads > 1:
        parts.append(f"{settings.inter_threads}inter")
    if settings.level != "all":
        parts.append(_slug(settings.level))
    if not settings.spinning:
        parts.append("nospin")
    # When all is too long the brand gives way first: what follows it tells systems of one host apart.
    end = "-".join(["", *filter(None, parts)])[8 - MAX_NAME_CHARACTERS :].lstrip(".")
    brand = _slug(f"{vendor}-{_slug(_NOISE.sub(' ', host.model_name))}")
    return validate_name(brand[: MAX_NAME_CHARACTERS - len(end)].rstrip(".-_") + end)


def this_system(
    runtime: Runtime,
    settings: RuntimeSettings,
    name: str | None = None,
    host: Host | None = None,
    asserted: bool = False,
) -> System:
    """The system that this host is, with `runtime` set up as `settings`.

    Args:
        runtime: The runtime that will execute.
        settings: Its settings.
        name: What to call it; by default `default_name`. Any valid name that is not in the catalogue is free.
        host: The host, if it was probed already.
        asserted: The user vouches for the name: nothing is checked, and the system is marked.

    Raises:
        SystemNameError: `name` is not valid.
        SystemMismatchError: `name` is in the catalogue, this host is not one, and `asserted` is false.
    """
    host = probe_host() if host is None else host
    if name is None:
        name = default_name(host, runtime.name, runtime.version, settings)
    elif (
        not asserted
        and _DEFAULT_NAME.search(name)
        and name != (own := default_name(host, runtime.name, runtime.version, settings))
    ):
        raise SystemMismatchError(
            f"{name} is what a host of other hardware or settings is called, and this one is {own}: leave out --system "
            "and set --threads, --inter-threads and --level instead"
        )
    entry = catalogue().get(validate_name(name))
    if entry is not None and not asserted and (found := entry.differences(host)):
        raise SystemMismatchError(
            f"this host is not a {name}: {'; '.join(found)}; leave out --system, choose another name, or "
            "pass --assert-system, which overrules this and marks the records"
        )
    return System(name, host, runtime.name, runtime.version, settings, asserted=asserted)


def check_same(stored: System, here: System) -> None:
    """Let records of `here` join those of `stored` only if both are one system.

    Clock, memory, governor and other things that vary on one machine do not count. Host and runtime are not
    checked when the user vouches for `here`, or when `stored` was never measured; settings always are, those that only
    a newer costmodel knows too.

    Raises:
        SystemMismatchError: Host, runtime, its major.minor version or its settings differ.
    """
    theirs, ours = stored.unknown.get("settings", {}), here.unknown.get("settings", {})
    if theirs != ours:
        raise SystemMismatchError(
            f"the records of {stored.name} have settings that this costmodel does not know "
            f"({', '.join(sorted({*theirs, *ours}))}), so measurements cannot be added: upgrade costmodel, or choose "
            "another --system name"
        )
    found = []
    if not here.asserted and stored.host is not None and here.host is not None:
        found += _differences(_identity(stored, stored.host), _identity(here, here.host))
        if gone := sorted(set(stored.host.isa) - set(here.host.isa)):
            found.append(f"without {', '.join(gone)} here")
        if more := sorted(set(here.host.isa) - set(stored.host.isa)):
            found.append(f"with {', '.join(more)} only here")
    settings = _differences(_settings(stored.settings), _settings(here.settings))
    if found or settings:
        vouched = " (under --assert-system)" if stored.asserted else ""
        advice = (
            "set them alike, or choose another --system name"
            if settings
            else ("choose another --system name, or pass --assert-system, which overrules it and marks the records")
        )
        raise SystemMismatchError(
            f"the records of {stored.name} were measured{vouched} on another system: "
            f"{'; '.join([*found, *settings])}; {advice}"
        )


def _differences(there: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    return [f"{what} {there[what]} there, {here[what]} here" for what in there if there[what] != here[what]]


def _settings(settings: RuntimeSettings) -> dict[str, object]:
    """The settings by the words for them."""
    return {
        "threads": settings.threads,
        "threads between layers": settings.inter_threads,
        "optimisation level": settings.level,
        "spinning": "on" if settings.spinning else "off",
    }


def _identity(system: System, host: Host) -> dict[str, object]:
    """What makes `system` itself apart from its settings, by the words for it."""
    return {
        "vendor": host.vendor or "unknown",
        "processor": host.model_name or "unknown",
        "family": host.family,
        "model": host.model,
        "cores": host.physical_cores,
        "logical CPUs": host.logical_cpus_total,
        "usable CPUs": host.effective_cpus,
        "L3 KiB": host.l3_bytes // 1024,
        "runtime": system.runtime,
        "runtime version": _major_minor(system.runtime_version),
    }


def _major_minor(version: str) -> str:
    found = re.match(r"[0-9]+(\.[0-9]+)?", version)
    return found[0] if found else _slug(version)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def _near(value: float, expected: float, share: tuple[float, float]) -> bool:
    low, high = share
    return low * expected <= value <= high * expected
