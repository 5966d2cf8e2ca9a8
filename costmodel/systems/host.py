"""Probes the hardware of this host and its current state from /proc and /sys; unreadable facts stay unknown.

Existing libraries are wrong about caches (py-cpuinfo) or do not detect VNNI (archspec), so the kernel's files are read
directly. The environment variable COSTMODEL_HOST_ROOT names another folder that holds `proc` and `sys`, as HWLOC_FSROOT
does for hwloc: for a container in which the files of the host are mounted, or to emulate a host from a copy of its
files.
"""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from costmodel.errors import CostModelError
from costmodel.systems.microarchitecture import microarchitecture
from costmodel.unknown_fields import known_fields

__all__ = ["Host", "probe_environment", "probe_host", "usable_cpus"]

_LIVE = Path("/")
_CPU = "sys/devices/system/cpu"

# The CPU flags by which runtimes choose between kernels. Hosts are compared by these flags: if one is added here, the
# stored record of every host with that flag no longer matches the host.
_ISA = frozenset((
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "avx_vnni", "avx_vnni_int8", "amx_tile", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme",
))  # fmt: skip
_ARM_IMPLEMENTERS = {0x41: "ARM", 0x48: "HiSilicon", 0x51: "Qualcomm", 0x61: "Apple", 0xC0: "Ampere"}
# The first match counts, because Nitro also offers kvm-clock.
_HYPERVISORS = {"amazon ec2": "nitro", "xen": "xen", "vmware": "vmware", "hyperv": "hyper-v", "kvm": "kvm"}


@dataclass(frozen=True, slots=True)
class Host:
    """The hardware that a process sees, and how much of it the process may use.

    Attributes:
        vendor: CPUID vendor, such as "GenuineIntel"; on ARM the implementer; "" when unknown.
        model_name: Brand string of the processor.
        family: CPUID family; on ARM the architecture version. 0 when unknown.
        model: CPUID model; on ARM the part number. 0 when unknown.
        stepping: CPUID stepping; on ARM the revision. 0 when unknown.
        microarchitecture: Slug such as "zen5" or "skylake-x"; "" when it is not in the table of this module.
        architecture: Instruction set family, such as "x86_64" or "aarch64".
        physical_cores: Number of physical cores of the host.
        logical_cpus: Number of hardware threads that this process may run on (its affinity).
        logical_cpus_total: Number of hardware threads of the host.
        threads_per_core: Number of hardware threads of one core.
        sockets: Number of processor packages.
        numa_nodes: Number of memory nodes.
        l1d_bytes: Size of the level 1 data cache of one core; 0 when unknown.
        l2_bytes: Size of the level 2 cache of one core; 0 when unknown.
        l3_bytes: Size of one level 3 cache, even if the host has several; 0 when there is none or it is unknown.
        l3_shared_cpus: Number of hardware threads that share one level 3 cache; 0 when there is none or it is unknown.
        isa: Instruction set extensions that matter for inference, sorted, by the kernel's names.
        memory_bytes: Size of main memory; 0 when unknown.
        base_clock_mhz: Nominal clock in MHz; None when unreadable.
        max_clock_mhz: Highest clock in MHz; None when unreadable, as in most virtual machines.
        hypervisor: "kvm", "nitro", "xen", ...; "unknown" for a hypervisor of another kind; "" on bare metal.
        cpu_quota: Number of CPUs whose time the container may use, possibly a fraction; None when unlimited.
        governor: Frequency governor of the kernel; None when there is none.
        smt_active: Whether simultaneous multithreading is on; None when the kernel does not say.
    """

    vendor: str = ""
    model_name: str = ""
    family: int = 0
    model: int = 0
    stepping: int = 0
    microarchitecture: str = ""
    architecture: str = ""
    physical_cores: int = 1
    logical_cpus: int = 1
    logical_cpus_total: int = 1
    threads_per_core: int = 1
    sockets: int = 1
    numa_nodes: int = 1
    l1d_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    l3_shared_cpus: int = 0
    isa: tuple[str, ...] = ()
    memory_bytes: int = 0
    base_clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    hypervisor: str = ""
    cpu_quota: float | None = None
    governor: str | None = None
    smt_active: bool | None = None

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector registers in bits; at least 128, which every 64-bit processor has."""
        if "avx512f" in self.isa:
            return 512
        return 256 if "avx" in self.isa else 128

    @property
    def effective_cpus(self) -> int:
        """Number of whole CPUs that this process can keep busy, by affinity and container quota; at least 1."""
        quota = self.logical_cpus if self.cpu_quota is None else int(self.cpu_quota)
        return max(1, min(self.logical_cpus, quota))

    def facts(self) -> dict[str, Any]:
        """Returns the host as JSON-serialisable data, which `from_facts` reads."""
        return {**asdict(self), "isa": list(self.isa)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Host":
        """Returns the host from the output of `facts`, perhaps of another version of costmodel.

        Facts that this version does not know are ignored; facts that are missing become unknown.
        """
        return cls(**{**known_fields(cls, facts), "isa": tuple(facts.get("isa", ()))})


def usable_cpus() -> int:
    """Returns the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def probe_host(root: Path | None = None, *, live: bool | None = None) -> Host:
    """Returns the hardware of the host.

    Call this before pinning threads, because the result includes the affinity of the calling thread.

    Args:
        root: Folder that holds the host's `proc` and `sys`; by default COSTMODEL_HOST_ROOT, or "/".
        live: Whether the folder describes the host that this process runs on, so that facts which its files lack may
            come from psutil and the scheduler; by default only if the folder is "/".

    Raises:
        CostModelError: COSTMODEL_HOST_ROOT is not a folder.
    """
    root = _default_root() if root is None else root
    live = root == _LIVE if live is None else live
    processors = {_int(p["processor"]): p for p in _cpuinfo(root)}
    online = _cpu_list(_read(root / _CPU / "online")) or set(processors)
    total = len(processors) or len(online) or (live and os.cpu_count()) or 1
    allowed = _cpu_list(_field(root / "proc/self/status", "Cpus_allowed_list"))
    if live and hasattr(os, "sched_getaffinity"):
        allowed = set(os.sched_getaffinity(0))
    usable = allowed or online or {0}
    # On a hybrid processor the facts are those of the first CPU that this process may use.
    cpu = processors.get(min(usable)) or next(iter(processors.values()), {})
    own = root / _CPU / f"cpu{min(usable)}"
    flags = frozenset((cpu.get("flags") or cpu.get("Features", "")).split())
    vendor = _known(cpu.get("vendor_id", "")) or _ARM_IMPLEMENTERS.get(_int(cpu.get("CPU implementer", "")), "")
    family = _int(cpu.get("cpu family") or cpu.get("CPU architecture", ""))
    model = _int(cpu.get("model") or cpu.get("CPU part", ""))
    stepping = _int(cpu.get("stepping") or cpu.get("CPU revision", ""))
    topology = [path / "topology" for path in (root / _CPU).glob("cpu[0-9]*")]
    cores_cpus = [_read(t / "core_cpus_list") or _read(t / "thread_siblings_list") for t in topology]
    siblings = {frozenset(_cpu_list(text)) for text in cores_cpus} - {frozenset()}
    numbered = {(p.get("physical id", "0"), p["core id"]) for p in processors.values() if "core id" in p}
    packages = {_read(t / "physical_package_id") for t in topology} - {""} or {p for p, _ in numbered}
    cores = len(siblings or numbered) or (live and psutil.cpu_count(logical=False)) or total
    l1d, l2, l3 = _caches(own)
    memory_kib = _int(_field(root / "proc/meminfo", "MemTotal"))
    return Host(
        vendor=vendor,
        model_name=_known(cpu.get("model name", "")) or (platform.processor() if live and not processors else ""),
        family=family,
        model=model,
        stepping=stepping,
        microarchitecture=microarchitecture(vendor, family, model, stepping),
        architecture=_architecture(root),
        physical_cores=cores,
        logical_cpus=len(usable) if processors or online else total,
        logical_cpus_total=total,
        threads_per_core=max(map(len, siblings), default=max(1, total // cores)),
        sockets=max(1, len(packages)),
        numa_nodes=max(1, len(list((root / "sys/devices/system/node").glob("node[0-9]*")))),
        l1d_bytes=l1d[0],
        l2_bytes=l2[0],
        l3_bytes=l3[0],
        l3_shared_cpus=l3[1],
        isa=tuple(sorted(_ISA & flags)),
        memory_bytes=memory_kib * 1024 or (psutil.virtual_memory().total if live else 0),
        base_clock_mhz=_base_clock_mhz(own, cpu),
        max_clock_mhz=_mhz(_read(own / "cpufreq/cpuinfo_max_freq"), 1e3),
        hypervisor=_hypervisor(root, cpu),
        cpu_quota=_cpu_quota(root),
        governor=_read(own / "cpufreq/scaling_governor") or None,
        smt_active={"0": False, "1": True}.get(_read(root / _CPU / "smt/active")),
    )


def probe_environment(root: Path | None = None) -> dict[str, Any]:
    """Returns the state of the host that varies while measuring; a value is None if the kernel does not report it.

    The keys are "governor", "load_1m", "steal_ticks", "cpu_ticks" and "clock_mhz". Between two calls, the increase of
    `steal_ticks` (time that the hypervisor gave to other guests) over that of `cpu_ticks` (all time) is the share of
    stolen time. `clock_mhz` is the clock of the fastest CPU, since idle CPUs may sleep.

    Args:
        root: Folder that holds the host's `proc` and `sys`; by default COSTMODEL_HOST_ROOT, or "/".

    Raises:
        CostModelError: COSTMODEL_HOST_ROOT is not a folder.
    """
    root = _default_root() if root is None else root
    load = re.match(r"[0-9]+\.[0-9]+", _read(root / "proc/loadavg"))
    line = _read(root / "proc/stat").partition("\n")[0].split()
    # Guest time is the 9th and 10th column and already counted in the first two.
    ticks = [_int(t) for t in line[1:9]] if line[:1] == ["cpu"] else []
    clocks = [_mhz(p.get("cpu MHz", "")) for p in _cpuinfo(root)]
    clocks += [_mhz(_read(f), 1e3) for f in (root / _CPU).glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    return {
        "governor": _read(root / _CPU / "cpu0/cpufreq/scaling_governor") or None,
        "load_1m": float(load[0]) if load else None,
        "steal_ticks": ticks[7] if len(ticks) == 8 else None,
        "cpu_ticks": sum(ticks) if ticks else None,
        "clock_mhz": max((mhz for mhz in clocks if mhz), default=None),
    }


def _default_root() -> Path:
    configured = os.environ.get("COSTMODEL_HOST_ROOT")
    if not configured:
        return _LIVE
    root = Path(configured)
    if not root.is_dir():  # otherwise every fact would be unknown, and records would be stored without a host
        raise CostModelError(
            f"COSTMODEL_HOST_ROOT is {configured}, which is not a folder: unset it, or set it to a folder that holds "
            "the host's proc and sys"
        )
    return root


def _architecture(root: Path) -> str:
    named = _read(root / "proc/sys/kernel/arch")  # there from Linux 6.1 on
    return named if re.fullmatch(r"[a-z0-9_]+", named) else platform.machine()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _int(text: str) -> int:
    """Returns the integer that `text` holds, in decimal or, as on ARM, in hexadecimal; 0 if it holds anything else."""
    return int(text, 0) if re.fullmatch(r"0x[0-9a-f]+|0|[1-9][0-9]*", text) else 0


def _known(text: str) -> str:
    """Returns `text`, but "" for "unknown", which the kernel of a sandbox writes to hide the processor."""
    return "" if text == "unknown" else text


def _mhz(text: str, hz: float = 1e6) -> float | None:
    """Returns in MHz a clock that `text` gives in units of `hz` hertz; None if it is no number or 0 (unknown)."""
    return (round(float(text) * hz / 1e6, 3) or None) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else None


def _field(path: Path, name: str) -> str:
    """Returns the first word after "`name`:" in a file with lines of the form "name: value"; "" if there is none."""
    match = re.search(rf"^{name}:\s*(\S+)", _read(path), re.MULTILINE)
    return match[1] if match else ""


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """Returns the fields of /proc/cpuinfo by name, in one mapping for each online processor."""
    blocks = re.split(r"\n\s*\n", _read(root / "proc/cpuinfo"))
    pairs = [[line.partition(":") for line in block.splitlines()] for block in blocks]
    parsed = [{key.strip(): value.strip() for key, _, value in block} for block in pairs]
    return [processor for processor in parsed if "processor" in processor]


def _cpu_list(text: str) -> set[int]:
    """Returns the CPU numbers in a list in the kernel's format, such as "0-3,8"."""
    bounds = [(first, last or first) for first, _, last in (part.partition("-") for part in text.split(","))]
    return {cpu for a, b in bounds if a.isdecimal() and b.isdecimal() for cpu in range(int(a), int(b) + 1)}


def _caches(cpu: Path) -> list[tuple[int, int]]:
    """Returns size and sharing of a CPU's data caches at levels 1, 2 and 3.

    Returns:
        For each level, the size in bytes and the number of CPUs that share the cache; (0, 0) if there is none.
    """
    caches = {}
    for index in cpu.glob("cache/index[0-9]*"):
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size"))
        if size and _read(index / "type") in ("Data", "Unified"):
            nbytes = int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2]]
            caches[_int(_read(index / "level"))] = nbytes, len(_cpu_list(_read(index / "shared_cpu_list")))
    return [caches.get(level, (0, 0)) for level in (1, 2, 3)]


def _base_clock_mhz(cpu: Path, info: Mapping[str, str]) -> float | None:
    base = _mhz(_read(cpu / "cpufreq/base_frequency"), 1e3) or _mhz(_read(cpu / "acpi_cppc/nominal_freq"))
    if not base and (named := re.search(r"@ ([0-9.]+)GHz", info.get("model name", ""))):
        base = _mhz(named[1], 1e9)
    # On x86 the kernel derives BogoMIPS from the time-stamp counter, which runs at the nominal clock: two per MHz.
    return base or (_mhz(info.get("bogomips", ""), 5e5) if "flags" in info else None)


def _hypervisor(root: Path, cpu: Mapping[str, str]) -> str:
    # Bare-metal machines of a cloud have the same vendor strings as its virtual machines. On x86, only a guest has the
    # "hypervisor" flag. Arm has no such flag, but the clouds have "metal" in the product names of bare-metal machines.
    x86 = "flags" in cpu
    if x86 and "hypervisor" not in cpu["flags"].split():
        return ""
    if not x86 and "metal" in _read(root / "sys/class/dmi/id/product_name").lower():
        return ""
    files = ("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name",
             "sys/devices/system/clocksource/clocksource0/available_clocksource")  # fmt: skip
    hints = " ".join(_read(root / name) for name in files).lower()
    return next((name for needle, name in _HYPERVISORS.items() if needle in hints), "unknown" if x86 else "")


def _cpu_quota(root: Path) -> float | None:
    """Returns the lowest CPU limit among this process's control groups and their ancestors; None if there is no limit.

    The limit is a number of CPUs, possibly a fraction. Control groups of versions 1 and 2 count.
    """
    pattern = r"^\d+:(?:(?:[^:]*,)?cpu(?:,[^:]*)?)?:/*(.*)$"
    groups = [Path(group) for group in re.findall(pattern, _read(root / "proc/self/cgroup"), re.MULTILINE)]
    # A container sees its own group as the root of the mount, whatever its path on the host is.
    folders = {Path(), *groups, *(above for group in groups for above in group.parents)}
    quotas = []
    for mount, folder in product(("", "unified", "cpu", "cpu,cpuacct"), folders):
        group = root / "sys/fs/cgroup" / mount / folder
        limit = _read(group / "cpu.max") or f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
        if match := re.fullmatch(r"(\d+) ([1-9]\d*)", limit):
            quotas.append(int(match[1]) / int(match[2]))
    return min(quotas, default=None)
