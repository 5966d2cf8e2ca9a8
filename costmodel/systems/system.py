"""Systems: host, runtime and settings under one name, and the checks of whether a name may be used."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from typing_extensions import TypedDict

from costmodel.errors import SystemMismatchError
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.systems.catalogue import catalogue
from costmodel.systems.host import Host, probe_host
from costmodel.systems.names import default_name, is_default_name, major_minor, validate_name
from costmodel.unknown_fields import known_fields, unknown_fields

__all__ = [
    "QUIET_PROBE", "System", "SystemDocument", "check_same_system", "differ_in_threads_alone", "same_hardware",
    "this_system",
]  # fmt: skip

# How the names of those capabilities begin that are times of probes of the machine's state on the quiet machine. Each
# session may find shorter ones; no estimate depends on them.
QUIET_PROBE = "quiet_"


class SystemDocument(TypedDict):
    """A system, as JSON-serialisable data.

    Attributes:
        name: Name of the system.
        host: Hardware of the system; None if it is unknown.
        runtime: Name of the runtime.
        runtime_version: Full version of the runtime.
        settings: Settings of the runtime.
        capabilities: Capabilities of the host, measured unless the system is extrapolated; their names end in the unit.
        asserted: Whether the user vouched for the name, so that it was not checked against the host.
        extrapolated: Whether nothing is measured on the system, and its capabilities are guessed.
    """

    name: str
    host: dict[str, Any] | None
    runtime: str
    runtime_version: str
    settings: dict[str, Any]
    capabilities: dict[str, float]
    asserted: bool
    extrapolated: bool


@dataclass(frozen=True, slots=True)
class System:
    """A system on which layers are measured: host, runtime and settings under one name.

    Attributes:
        name: Name of the system, valid as `validate_name` checks it.
        host: Hardware of the system; None if it is unknown.
        runtime: Name of the runtime.
        runtime_version: Full version of the runtime.
        settings: Settings of the runtime.
        capabilities: Capabilities of the host by name, with the unit in the name: measured, or guessed if the system is
            extrapolated; otherwise empty until measured. See `costmodel.measure.capability` for their meanings.
        asserted: Whether the user vouched for the name with `--assert-system`, so that it was not checked against the
            host.
        extrapolated: Whether nothing is measured on the system: its host is what the catalogue says of it, and its
            capabilities are guessed from those of other systems.
        unknown: Entries of the record that only a newer costmodel knows, those of the settings under "settings" and
            those of the host under "host"; they are written back unchanged.
    """

    name: str
    host: Host | None
    runtime: str
    runtime_version: str
    settings: RuntimeSettings
    capabilities: Mapping[str, float] = field(default_factory=dict)
    asserted: bool = False
    extrapolated: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> SystemDocument:
        """Returns the system as JSON-serialisable data.

        Entries that only a newer costmodel knows are left out, except those in the settings and the host.
        """
        return {
            "name": self.name,
            "host": None if self.host is None else {**self.unknown.get("host", {}), **self.host.facts()},
            "runtime": self.runtime,
            "runtime_version": self.runtime_version,
            "settings": {**self.unknown.get("settings", {}), **asdict(self.settings)},
            "capabilities": dict(self.capabilities),
            "asserted": self.asserted,
            "extrapolated": self.extrapolated,
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the complete record of the system as JSON-serialisable data, which `from_dict` reads."""
        return {**self.unknown, **self.document()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "System":
        """Returns the system from the output of `to_dict` of this or a newer costmodel."""
        host, settings = data["host"], data["settings"]
        unknown = {name: value for name, value in data.items() if name not in SystemDocument.__annotations__}
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
            extrapolated=data.get("extrapolated", False),
            unknown=unknown,
        )


def this_system(
    runtime: Runtime,
    settings: RuntimeSettings,
    name: str | None = None,
    host: Host | None = None,
    asserted: bool = False,
) -> System:
    """Returns the system that consists of this host, `runtime` and `settings`.

    Args:
        runtime: Runtime of the system.
        settings: Settings of the runtime.
        name: Name of the system; by default `default_name`. Any valid name may be chosen that is neither in the
            catalogue nor the default name of another system.
        host: The host, if it was probed already.
        asserted: Whether the user vouches for the name: it is then not checked against the host, and the system is
            marked as asserted.

    Raises:
        SystemNameError: `name` is not valid.
        SystemMismatchError: `asserted` is false and `name` is a catalogue entry that this host does not match, or has
            the form of a default name but is not the default name of this system.
    """
    host = probe_host() if host is None else host
    if name is None:
        name = default_name(host, runtime.name, runtime.version, settings)
    elif (
        not asserted
        and is_default_name(name)
        and name != (own := default_name(host, runtime.name, runtime.version, settings))
    ):
        raise SystemMismatchError(
            f"{name} is what a host of other hardware or settings is called, and this one is {own}: leave out --system "
            "and set --runtime, --threads, --inter-threads and --level instead"
        )
    entry = catalogue().get(validate_name(name))
    if entry is not None and not asserted and (differences := entry.differences(host)):
        raise SystemMismatchError(
            f"this host is not a {name}: {'; '.join(differences)}; leave out --system, choose another name, or "
            "pass --assert-system, which overrules this and marks the records"
        )
    return System(name, host, runtime.name, runtime.version, settings, asserted=asserted)


def check_same_system(stored: System, here: System) -> None:
    """Checks that `here` is the same system as `stored`, so that its measurements may be added to those of `stored`.

    Facts that vary on one machine, such as clock, memory and governor, are not compared. Host and runtime are not
    compared if the user vouches for `here` or if `stored` has no host, because it was never measured. Settings are
    always compared, including those that only a newer costmodel knows. Nothing is compared if `stored` is extrapolated:
    what is measured takes its place.

    Raises:
        SystemMismatchError: The host, the runtime, its major.minor version or its settings differ.
    """
    if stored.extrapolated:
        return
    theirs, ours = stored.unknown.get("settings", {}), here.unknown.get("settings", {})
    if theirs != ours:
        raise SystemMismatchError(
            f"the records of {stored.name} have settings that this costmodel does not know "
            f"({', '.join(sorted({*theirs, *ours}))}), so measurements cannot be added: upgrade costmodel, or choose "
            "another --system name"
        )
    differences = []
    if not here.asserted and stored.host is not None and here.host is not None:
        differences += _differences(_identity(stored, stored.host), _identity(here, here.host))
        if gone := sorted(set(stored.host.isa) - set(here.host.isa)):
            differences.append(f"without {', '.join(gone)} here")
        if more := sorted(set(here.host.isa) - set(stored.host.isa)):
            differences.append(f"with {', '.join(more)} only here")
    settings = _differences(_settings(stored.settings), _settings(here.settings))
    if differences or settings:
        vouched = " (under --assert-system)" if stored.asserted else ""
        advice = (
            "set them alike, or choose another --system name"
            if settings
            else ("choose another --system name, or pass --assert-system, which overrules it and marks the records")
        )
        raise SystemMismatchError(
            f"the records of {stored.name} were measured{vouched} on another system: "
            f"{'; '.join([*differences, *settings])}; {advice}"
        )


def _differences(there: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    return [f"{what} {there[what]} there, {here[what]} here" for what in there if there[what] != here[what]]


def _settings(settings: RuntimeSettings) -> dict[str, object]:
    """Returns the runtime settings under the names that error messages use."""
    return {
        "threads": settings.threads,
        "threads between layers": settings.inter_threads,
        "optimisation level": settings.level,
        "spinning": "on" if settings.spinning else "off",
    }


def same_hardware(one: Host, other: Host) -> bool:
    """Returns whether two hosts are of the same kind, so that what is measured on one holds for the other."""
    return one.isa == other.isa and _hardware(one) == _hardware(other)


def differ_in_threads_alone(one: System, other: System) -> bool:
    """Returns whether two systems are of one kind of host, one runtime and the same settings except for the threads.

    Releases of a runtime that differ in the last number count as one. A single thread has no others that could spin.
    """
    settings = replace(one.settings, threads=other.settings.threads)
    if 1 in (one.settings.threads, other.settings.threads):
        settings = replace(settings, spinning=other.settings.spinning)
    return (
        one.settings.threads != other.settings.threads
        and (settings, one.runtime) == (other.settings, other.runtime)
        and major_minor(one.runtime_version) == major_minor(other.runtime_version)
        and bool(one.host and other.host and same_hardware(one.host, other.host))
    )


def _identity(system: System, host: Host) -> dict[str, object]:
    """Returns the facts that identify a system besides its settings, under the names that error messages use."""
    return {
        **_hardware(host),
        "runtime": system.runtime,
        "runtime version": major_minor(system.runtime_version),
    }


def _hardware(host: Host) -> dict[str, object]:
    """Returns the facts that identify a host, under the names that error messages use."""
    return {
        "vendor": host.vendor or "unknown",
        "processor": host.model_name or "unknown",
        "family": host.family,
        "model": host.model,
        "cores": host.physical_cores,
        "logical CPUs": host.logical_cpus_total,
        "usable CPUs": host.effective_cpus,
        "L3 KiB": host.l3_bytes // 1024,
    }
