"""Probing a host, on copies of the kernel's files and on the machine that runs the tests."""

import json
import os
from pathlib import Path

import pytest

import costmodel.host
from costmodel.host import Host, circumstances, microarchitecture, probe_host

CPU = "sys/devices/system/cpu"
SKYLAKE_FLAGS = "fpu sse sse2 fma sse4_1 sse4_2 avx f16c hypervisor avx2 avx512f avx512dq avx512bw avx512vl"


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """`files` under `root`, each ended as the kernel ends them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def processor(number: int, core: int) -> str:
    """One block of /proc/cpuinfo on a c5.xlarge."""
    return (
        f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        "model name\t: Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz\nstepping\t: 4\n"
        f"cpu MHz\t\t: {3000 + 100 * number}.123\ncache size\t: 25344 KB\nphysical id\t: 0\nsiblings\t: 4\n"
        f"core id\t\t: {core}\ncpu cores\t: 2\nflags\t\t: {SKYLAKE_FLAGS}\nbogomips\t: 5999.99\n"
    )


def caches(cpu: int, siblings: str) -> dict[str, str]:
    """The cache files of one CPU of a c5.xlarge."""
    rows = [
        (1, "Data", "32K", siblings),
        (1, "Instruction", "32K", siblings),
        (2, "Unified", "1024K", siblings),
        (3, "Unified", "25344K", "0-3"),
    ]
    return {
        f"{CPU}/cpu{cpu}/cache/index{index}/{name}": value
        for index, (level, kind, size, shared) in enumerate(rows)
        for name, value in {
            "level": str(level),
            "type": kind,
            "size": size,
            "shared_cpu_list": shared,
        }.items()
    }


@pytest.fixture
def c5_xlarge(tmp_path: Path) -> Path:
    """The files of a c5.xlarge: two cores with two threads each; no cpufreq, as in any guest."""
    siblings = ["0,2", "1,3", "0,2", "1,3"]
    files = {
        "proc/cpuinfo": "\n".join(processor(number, number % 2) for number in range(4)),
        "proc/meminfo": "MemTotal:        7834236 kB\nMemFree:         123456 kB",
        "proc/self/status": "Name:\tpython\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3",
        "proc/self/cgroup": "0::/",
        "proc/stat": "cpu  100 0 50 1000 5 0 1 44 7 0\ncpu0 25 0 12 250 1 0 0 11 1 0",
        "proc/loadavg": "0.52 0.40 0.31 1/83 3371",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": "c5.xlarge",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "kvm-clock tsc acpi_pm",
        "sys/devices/system/node/node0/cpulist": "0-3",
        f"{CPU}/online": "0-3",
        f"{CPU}/smt/active": "1",
    }
    for cpu, shared in enumerate(siblings):
        files |= caches(cpu, shared)
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = shared
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0"
    return write_tree(tmp_path, files)


def test_a_c5_xlarge_is_seen_as_it_is(c5_xlarge: Path) -> None:
    """Every fact comes out of the files; what a guest cannot know stays unknown."""
    assert probe_host(c5_xlarge) == Host(
        vendor="GenuineIntel",
        model_name="Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz",
        family=6,
        model=85,
        stepping=4,
        microarchitecture="skylake-x",
        architecture=os.uname().machine,
        physical_cores=2,
        logical_cpus=4,
        logical_cpus_total=4,
        threads_per_core=2,
        sockets=1,
        numa_nodes=1,
        l1d_bytes=32 * 1024,
        l2_bytes=1024 * 1024,
        l3_bytes=25344 * 1024,
        l3_shared_cpus=4,
        isa=("avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma", "sse4_2"),
        memory_bytes=7834236 * 1024,
        base_clock_mhz=3000.0,
        max_clock_mhz=None,
        hypervisor="nitro",
        cpu_quota=None,
        governor=None,
        smt_active=True,
    )


def test_a_bare_machine_without_governor_quota_smt_and_caches_is_tolerated(tmp_path: Path) -> None:
    """With /proc/cpuinfo alone, cores are counted from it and the rest is unknown."""
    root = write_tree(tmp_path, {"proc/cpuinfo": "\n".join(processor(n, n % 2) for n in range(4))})
    host = probe_host(root)
    assert (host.physical_cores, host.logical_cpus, host.threads_per_core, host.sockets) == (2, 4, 2, 1)
    assert (host.l1d_bytes, host.l2_bytes, host.l3_bytes, host.l3_shared_cpus) == (0, 0, 0, 0)
    assert (host.governor, host.cpu_quota, host.smt_active, host.max_clock_mhz) == (None, None, None, None)
    assert (host.hypervisor, host.memory_bytes) == ("unknown", 0)


def test_an_empty_tree_gives_an_unknown_host(tmp_path: Path) -> None:
    """Nothing readable is no reason to fail."""
    assert probe_host(tmp_path) == Host(architecture=os.uname().machine)
    assert set(circumstances(tmp_path).values()) == {None}


def test_files_full_of_nonsense_are_as_good_as_absent(c5_xlarge: Path) -> None:
    """A file that says something else than numbers does not end a run."""
    for path in c5_xlarge.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\xfe nonsense : : -1, 3-\n\n:\n")
    assert probe_host(c5_xlarge) == Host(architecture=os.uname().machine)
    assert set(circumstances(c5_xlarge).values()) == {None}


def test_affinity_is_told_apart_from_the_whole_host(c5_xlarge: Path) -> None:
    """A process that is confined sees how much it may use and how much there is."""
    write_tree(c5_xlarge, {"proc/self/status": "Cpus_allowed_list:\t1,3"})
    host = probe_host(c5_xlarge)
    assert (host.logical_cpus, host.logical_cpus_total, host.effective_cpus) == (2, 4, 2)


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"},
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/cpu.max": "150000 100000",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000",
        },
        # The path is the host's, the mount is the container's.
        {"proc/self/cgroup": "0::/docker/0123", "sys/fs/cgroup/cpu.max": "150000 100000"},
        {"proc/self/cgroup": "0::/../../x", "sys/fs/cgroup/cpu.max": "150000 100000"},
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:cpuacct,cpu:/box\n0::/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "75000",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "50000",
        },
    ],
    ids=["v2", "v2-ancestor", "v2-container", "v2-namespace", "v1"],
)
def test_the_tightest_quota_counts(c5_xlarge: Path, files: dict[str, str]) -> None:
    """A container's share of the CPUs is found in both versions of control groups, at any level."""
    host = probe_host(write_tree(c5_xlarge, files))
    assert host.cpu_quota == 1.5
    assert host.effective_cpus == 1


def test_no_quota_is_none(c5_xlarge: Path) -> None:
    """Both "max" and -1 mean unlimited, not zero."""
    write_tree(c5_xlarge, {"sys/fs/cgroup/cpu.max": "max 100000"})
    assert probe_host(c5_xlarge).cpu_quota is None


def test_clocks_and_governor_are_read_where_the_kernel_has_them(c5_xlarge: Path) -> None:
    """The kernel's kHz become MHz, and come before what the brand string says."""
    root = f"{CPU}/cpu0/cpufreq"
    write_tree(
        c5_xlarge,
        {
            f"{root}/base_frequency": "2500000",
            f"{root}/cpuinfo_max_freq": "3500000",
            f"{root}/scaling_governor": "performance",
        },
    )
    host = probe_host(c5_xlarge)
    assert (host.base_clock_mhz, host.max_clock_mhz, host.governor) == (2500.0, 3500.0, "performance")
    assert circumstances(c5_xlarge)["governor"] == "performance"


def test_a_brand_string_without_a_clock_leaves_the_time_stamp_counter(c5_xlarge: Path) -> None:
    """Cloud processors hide their clock; BogoMIPS is twice the nominal one."""
    cpuinfo = c5_xlarge / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace(" @ 3.00GHz", ""))
    assert probe_host(c5_xlarge).base_clock_mhz == pytest.approx(3000, rel=1e-3)


def test_bare_metal_has_no_hypervisor(c5_xlarge: Path) -> None:
    """A cloud's own metal carries the cloud's vendor strings, but not the guest's flag."""
    cpuinfo = c5_xlarge / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace(" hypervisor", ""))
    assert probe_host(c5_xlarge).hypervisor == ""


def test_an_arm_server_is_recognised(tmp_path: Path) -> None:
    """ARM spells its facts otherwise, in hexadecimal, and has no brand string."""
    block = "processor\t: {}\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd asimddp i8mm bf16 sve\n"
    block += "CPU implementer\t: 0x41\n"
    block += "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n"
    host = probe_host(write_tree(tmp_path, {"proc/cpuinfo": "\n".join(block.format(n) for n in range(2))}))
    assert (host.vendor, host.family, host.model, host.microarchitecture) == ("ARM", 8, 0xD40, "neoverse-v1")
    assert host.isa == ("asimd", "asimddp", "bf16", "i8mm", "sve")
    assert (host.logical_cpus, host.vector_bits, host.base_clock_mhz) == (2, 128, None)


def test_circumstances_are_read_from_the_same_tree(c5_xlarge: Path) -> None:
    """Steal is cumulative, guest time is not counted twice, and the fastest CPU's clock is given."""
    assert circumstances(c5_xlarge) == {
        "governor": None,
        "load_1m": 0.52,
        "steal_ticks": 44,
        "cpu_ticks": 1200,
        "clock_mhz": 3300.123,
    }


@pytest.mark.parametrize(
    ("isa", "bits"), [(("avx", "avx2", "avx512f"), 512), (("avx",), 256), (("sse4_2",), 128), ((), 128)]
)
def test_vector_width_follows_from_the_flags(isa: tuple[str, ...], bits: int) -> None:
    """The widest vectors count."""
    assert Host(isa=isa).vector_bits == bits


@pytest.mark.parametrize(
    ("identity", "slug"),
    [
        (("AuthenticAMD", 0x17, 0x31, 0), "zen2"),
        (("AuthenticAMD", 0x19, 0x01, 1), "zen3"),
        (("AuthenticAMD", 0x19, 0x11, 1), "zen4"),
        (("AuthenticAMD", 0x1A, 0x02, 1), "zen5"),
        (("GenuineIntel", 6, 0x55, 4), "skylake-x"),
        (("GenuineIntel", 6, 0x55, 7), "cascade-lake"),
        (("GenuineIntel", 6, 0x3F, 2), "haswell-ep"),
        (("GenuineIntel", 6, 0x6A, 6), "icelake-sp"),
        (("GenuineIntel", 6, 0x8F, 8), "sapphire-rapids"),
        (("GenuineIntel", 6, 0xCF, 2), "emerald-rapids"),
        (("GenuineIntel", 15, 0x55, 4), ""),
        (("", 0, 0, 0), ""),
    ],
)
def test_microarchitecture_is_known_by_family_and_model(identity: tuple[str, int, int, int], slug: str) -> None:
    """The paper's processors and today's servers have a slug; a stranger has none."""
    assert microarchitecture(*identity) == slug


def test_this_machine_can_be_probed_and_written_down() -> None:
    """The real root gives real facts, which survive JSON."""
    host = probe_host()
    assert host.logical_cpus == len(os.sched_getaffinity(0))
    assert host.memory_bytes > 0
    assert Host.from_facts(json.loads(json.dumps(host.facts()))) == host
    assert json.loads(json.dumps(circumstances())).keys() >= {"load_1m", "steal_ticks", "clock_mhz"}


def test_facts_of_another_version_are_read() -> None:
    """A fact that we do not know is ignored, one that is missing is unknown."""
    assert Host.from_facts({"vendor": "X", "invented_later": 1}) == Host(vendor="X")


def test_a_host_without_proc_is_described_by_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no Linux, psutil and platform answer for the essentials."""
    monkeypatch.setattr(costmodel.host, "_LIVE", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity")
    host = probe_host(tmp_path)
    assert host.logical_cpus == host.logical_cpus_total == os.cpu_count()
    assert 1 <= host.physical_cores <= host.logical_cpus
    assert host.memory_bytes > 0


def test_exported_names() -> None:
    """What is public is listed."""
    assert costmodel.host.__all__ == ["Host", "circumstances", "microarchitecture", "probe_host", "usable_cpus"]
