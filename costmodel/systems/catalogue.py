"""The catalogue of machine types of cloud providers, which can be named before anybody has measured them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from costmodel.systems.host import Host

__all__ = ["MachineType", "catalogue", "listed_price"]

# Accepted ratios of a host's values to those in the catalogue. Kernel and firmware reserve some memory; the next
# instance size differs by a factor of two.
_MEMORY_RATIO = (0.8, 1.05)
_CLOCK_RATIO = (0.95, 1.05)


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type of a cloud provider, as the catalogue lists it.

    Attributes:
        name: The provider's name of the machine type.
        vcpus: Number of hardware threads.
        vendor: CPUID vendor of the processor.
        processor: Name of the processor for display.
        processor_pattern: Regular expression that matches a part of the processor's brand string.
        memory_gib: Advertised memory in GiB.
        usd_per_hour: On-demand price in US dollars per hour.
        microarchitecture: Slug of the processor's microarchitecture, as in `Host`.
        isa: Instruction set extensions of the processor, as in `Host`.
        threads_per_core: Number of vCPUs that share a core.
        l1d_kib: Size of the level 1 data cache of one core in KiB.
        l2_kib: Size of the level 2 cache of one core in KiB.
        l3_kib: Size in KiB of the level 3 cache that a core can use.
        clock_ghz: Nominal clock in GHz, by which the machine is recognised; None if it is not known.
        l3_kib_per_core: Size in KiB of the level 3 cache that a machine has for each core, up to `l3_kib`; None if even
            the smallest has all of it.
    """

    name: str
    vcpus: int
    vendor: str
    processor: str
    processor_pattern: str
    memory_gib: float
    usd_per_hour: float
    microarchitecture: str
    isa: tuple[str, ...]
    threads_per_core: int
    l1d_kib: int
    l2_kib: int
    l3_kib: int
    clock_ghz: float | None = None
    l3_kib_per_core: int | None = None

    @property
    def host(self) -> Host:
        """What is known of the hardware of a machine of this type, without having seen one."""
        cores = max(1, self.vcpus // self.threads_per_core)
        l3_kib, shared = self.l3_kib, self.vcpus
        if self.l3_kib_per_core is not None:
            l3_kib = min(l3_kib, cores * self.l3_kib_per_core)
            shared = l3_kib // self.l3_kib_per_core * self.threads_per_core
        return Host(
            vendor=self.vendor,
            model_name=self.processor,
            microarchitecture=self.microarchitecture,
            architecture="x86_64",
            physical_cores=cores,
            logical_cpus=self.vcpus,
            logical_cpus_total=self.vcpus,
            threads_per_core=self.threads_per_core,
            l1d_bytes=self.l1d_kib << 10,
            l2_bytes=self.l2_kib << 10,
            l3_bytes=l3_kib << 10,
            l3_shared_cpus=shared,
            isa=self.isa,
            memory_bytes=int(self.memory_gib * 2**30),
            base_clock_mhz=None if self.clock_ghz is None else 1000 * self.clock_ghz,
        )

    def differences(self, host: Host) -> list[str]:
        """Returns the differences of `host` from this machine type, one phrase for each; an empty list if it matches.

        A memory size or clock that cannot be read counts as equal.
        """
        differences = []
        if host.logical_cpus_total != self.vcpus:
            differences.append(f"{self.vcpus} vCPUs expected, {host.logical_cpus_total} here")
        elif host.cpu_quota is not None and host.cpu_quota < self.vcpus:
            differences.append(f"{self.vcpus} vCPUs expected, this container may use {host.cpu_quota:g} of them")
        if host.vendor != self.vendor or not re.search(self.processor_pattern, host.model_name):
            here = host.model_name or host.vendor or "an unknown one"
            differences.append(f"processor {self.processor} expected, {here} here")
        if host.memory_bytes and not _within(gib := host.memory_bytes / 2**30, self.memory_gib, _MEMORY_RATIO):
            differences.append(f"{self.memory_gib:g} GiB of memory expected, {gib:.1f} here")
        ghz = (host.base_clock_mhz or 0) / 1000
        if ghz and self.clock_ghz is not None and not _within(ghz, self.clock_ghz, _CLOCK_RATIO):
            differences.append(f"{self.clock_ghz:g} GHz expected, {ghz:.2g} here")
        return differences


@cache
def catalogue() -> Mapping[str, MachineType]:
    """Returns the machine types in `catalogue.toml` by name."""
    text = (files("costmodel.systems") / "catalogue.toml").read_text(encoding="utf-8")
    return {
        name: MachineType(name=name, processor=processor, **of_processor, **size)
        for processor, entry in tomllib.loads(text).items()
        for facts in [{fact: value for fact, value in entry.items() if fact != "types"}]
        for of_processor in [{**facts, "isa": tuple(sorted(facts["isa"]))}]
        for name, size in entry["types"].items()
    }


def listed_price(system: str | None, host: Host | None) -> float | None:
    """Returns the price in US dollars per hour of a machine type, or of the one that a host is; None if unknown.

    Args:
        system: Name of a system, which may be that of a machine type.
        host: Host that may be of a machine type; None if it is not known.
    """
    types = catalogue()
    if system is not None and system in types:
        return types[system].usd_per_hour
    if host is None:
        return None
    return next((one.usd_per_hour for one in types.values() if not one.differences(host)), None)


def _within(value: float, expected: float, ratio: tuple[float, float]) -> bool:
    low, high = ratio
    return low * expected <= value <= high * expected
