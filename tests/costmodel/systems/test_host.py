"""Probing hosts: recorded files of other hosts, and this machine."""

import json
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from costmodel.errors import CostModelError
from costmodel.systems.host import Host, probe_environment, probe_host
from tests.hosts import HOSTS, lay_out, write_files

CPU = "sys/devices/system/cpu"
AVX2 = ("avx", "avx2", "f16c", "fma", "sse4_2")
AVX512 = ("avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma", "sse4_2")
VNNI = (*AVX512[:2], "avx512_vnni", *AVX512[2:])

# Expected facts of the hosts in tests/hosts; all others have the default of `Host`.
EXPECTED = MappingProxyType(
    {
        "intel-cascade-lake": Host(
            vendor="GenuineIntel", model_name="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", family=6, model=85,
            stepping=7, microarchitecture="cascade-lake", architecture="x86_64", physical_cores=2, logical_cpus=4,
            logical_cpus_total=4, threads_per_core=2, l1d_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=36608 << 10,
            l3_shared_cpus=4, isa=VNNI, memory_bytes=16068884 << 10, base_clock_mhz=2500.0, hypervisor="nitro",
            smt_active=True,
        ),
        "amd-rome": Host(
            vendor="AuthenticAMD", model_name="AMD EPYC 7R32", family=23, model=49, microarchitecture="zen2",
            architecture="x86_64", physical_cores=4, logical_cpus=8, logical_cpus_total=8, threads_per_core=2,
            l1d_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=16 << 20, l3_shared_cpus=8, isa=AVX2,
            memory_bytes=16101012 << 10, base_clock_mhz=2799.83, hypervisor="nitro", smt_active=True,
        ),
        "arm-graviton2": Host(
            vendor="ARM", family=8, model=0xD0C, stepping=1, microarchitecture="neoverse-n1", architecture="aarch64",
            physical_cores=4, logical_cpus=4, logical_cpus_total=4, l1d_bytes=64 << 10, l2_bytes=1 << 20,
            l3_bytes=32 << 20, l3_shared_cpus=4, isa=("asimd", "asimddp", "asimdhp"), memory_bytes=16197684 << 10,
            hypervisor="nitro", smt_active=False,
        ),
        "one-core": Host(
            vendor="GenuineIntel", model_name="Intel(R) Xeon(R) CPU E5-2676 v3 @ 2.40GHz", family=6, model=63,
            stepping=2, microarchitecture="haswell-ep", architecture="x86_64", l1d_bytes=32 << 10, l2_bytes=256 << 10,
            l3_bytes=30 << 20, l3_shared_cpus=1, isa=AVX2, memory_bytes=2028036 << 10, base_clock_mhz=2400.0,
            hypervisor="xen", smt_active=False,
        ),
        "container-v1": Host(
            vendor="GenuineIntel", model_name="Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", family=6, model=85,
            stepping=4, microarchitecture="skylake-x", architecture="x86_64", physical_cores=32, logical_cpus=64,
            logical_cpus_total=64, threads_per_core=2, sockets=2, numa_nodes=2, l1d_bytes=32 << 10, l2_bytes=1 << 20,
            l3_bytes=33 << 20, l3_shared_cpus=32, isa=AVX512, memory_bytes=260100212 << 10, base_clock_mhz=2500.0,
            hypervisor="nitro", cpu_quota=1.5, smt_active=True,
        ),
        "container-v2": Host(
            vendor="AuthenticAMD", model_name="AMD EPYC 7R13 Processor", family=25, model=1, stepping=1,
            microarchitecture="zen3", architecture="x86_64", physical_cores=32, logical_cpus=64, logical_cpus_total=64,
            threads_per_core=2, l1d_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=32 << 20, l3_shared_cpus=16, isa=AVX2,
            memory_bytes=130083640 << 10, base_clock_mhz=2649.995, hypervisor="nitro", cpu_quota=1.5, smt_active=True,
        ),
        "sandbox": Host(
            vendor="GenuineIntel", family=6, model=106, microarchitecture="icelake-sp",
            architecture=os.uname().machine, physical_cores=2, logical_cpus=2, logical_cpus_total=2, isa=VNNI,
            memory_bytes=4 << 30,
        ),
    }
)  # fmt: skip
# (vector width, usable CPUs) of each host.
USABLE = MappingProxyType(
    {
        "intel-cascade-lake": (512, 4), "amd-rome": (256, 8), "arm-graviton2": (128, 4), "one-core": (256, 1),
        "container-v1": (512, 1), "container-v2": (256, 1), "sandbox": (512, 2),
    }
)  # fmt: skip


@pytest.fixture
def xeon(tmp_path: Path) -> Path:
    """Files of a virtual machine with two cores of two threads each, without cpufreq."""
    return lay_out("intel-cascade-lake", tmp_path)


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_is_probed_completely(name: str, tmp_path: Path) -> None:
    """Every recorded fact is read, and all others stay unknown."""
    host = probe_host(lay_out(name, tmp_path))
    assert host == EXPECTED[name]
    assert (host.vector_bits, host.effective_cpus) == USABLE[name]


def test_another_host_can_answer_for_this_one(other_host: str, tmp_path: Path) -> None:
    """COSTMODEL_HOST_ROOT is the default root."""
    assert probe_host() == EXPECTED[other_host]
    assert probe_environment() == probe_environment(tmp_path / "host")


@pytest.mark.parametrize("probe", [probe_host, probe_environment])
def test_a_root_that_is_no_folder_is_a_sentence(probe: Any, xeon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that is no folder is an error; an empty variable counts as unset."""
    for wrong in (xeon / "none", xeon / "proc" / "cpuinfo"):
        monkeypatch.setenv("COSTMODEL_HOST_ROOT", str(wrong))
        with pytest.raises(CostModelError, match=r"COSTMODEL_HOST_ROOT is .*, which is not a folder: unset it"):
            probe()
    monkeypatch.setenv("COSTMODEL_HOST_ROOT", "")
    assert type(probe()) is type(probe(Path("/")))


def test_sys_that_cannot_be_read_is_as_good_as_absent(xeon: Path) -> None:
    """With an unreadable /sys, /proc is used: cores are counted, caches unknown, the clock from the brand string."""
    (xeon / "sys").rename(xeon / "kept")
    absent = probe_host(xeon)
    assert (absent.physical_cores, absent.logical_cpus, absent.l2_bytes, absent.base_clock_mhz) == (2, 4, 0, 2500.0)
    (xeon / "sys").symlink_to("sys")  # a symlink loop, which even root cannot read
    with pytest.raises(OSError, match="symbolic link"):
        (xeon / "sys/devices").stat()
    assert probe_host(xeon) == absent


def test_a_bare_machine_without_governor_quota_smt_and_caches_is_tolerated(tmp_path: Path) -> None:
    """With /proc/cpuinfo alone, cores are counted from it and the rest is unknown."""
    cpuinfo = lay_out("intel-cascade-lake", tmp_path / "whole") / "proc/cpuinfo"
    write_files(tmp_path / "bare", {"proc/cpuinfo": cpuinfo.read_text()})
    host = probe_host(tmp_path / "bare")
    assert (host.physical_cores, host.logical_cpus, host.threads_per_core, host.sockets) == (2, 4, 2, 1)
    assert (host.l1d_bytes, host.l2_bytes, host.l3_bytes, host.l3_shared_cpus) == (0, 0, 0, 0)
    assert (host.governor, host.cpu_quota, host.smt_active, host.max_clock_mhz) == (None, None, None, None)
    assert (host.hypervisor, host.memory_bytes) == ("unknown", 0)


def test_an_empty_tree_gives_an_unknown_host(tmp_path: Path) -> None:
    """An empty root gives an unknown host without an error."""
    assert probe_host(tmp_path) == Host(architecture=os.uname().machine)
    assert set(probe_environment(tmp_path).values()) == {None}


def test_files_full_of_nonsense_are_as_good_as_absent(xeon: Path) -> None:
    """Files with invalid content are treated as missing."""
    for path in xeon.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\xfe nonsense : : -1, 3-\n\n:\n")
    assert probe_host(xeon) == Host(architecture=os.uname().machine)
    assert set(probe_environment(xeon).values()) == {None}


def test_affinity_is_distinguished_from_the_whole_host(xeon: Path) -> None:
    """A process with restricted affinity finds its own and the host's number of CPUs."""
    write_files(xeon, {"proc/self/status": "Cpus_allowed_list:\t1,3"})
    host = probe_host(xeon)
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
        # The cgroup path is the host's, the mount the container's.
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
def test_the_tightest_quota_counts(xeon: Path, files: dict[str, str]) -> None:
    """The smallest CPU quota of any level counts, in both versions of control groups."""
    write_files(xeon, files)
    host = probe_host(xeon)
    assert host.cpu_quota == 1.5
    assert host.effective_cpus == 1


def test_no_quota_is_none(xeon: Path) -> None:
    """Both "max" and -1 mean unlimited."""
    write_files(xeon, {"sys/fs/cgroup/cpu.max": "max 100000"})
    assert probe_host(xeon).cpu_quota is None


def test_clocks_and_governor_are_read_where_the_kernel_has_them(xeon: Path) -> None:
    """The kernel's clock is converted from kHz to MHz and has precedence over the brand string."""
    root = f"{CPU}/cpu0/cpufreq"
    write_files(
        xeon,
        {
            f"{root}/base_frequency": "2500000",
            f"{root}/cpuinfo_max_freq": "3500000",
            f"{root}/scaling_governor": "performance",
        },
    )
    host = probe_host(xeon)
    assert (host.base_clock_mhz, host.max_clock_mhz, host.governor) == (2500.0, 3500.0, "performance")
    assert probe_environment(xeon)["governor"] == "performance"


def test_a_brand_string_without_a_clock_leaves_the_time_stamp_counter(xeon: Path) -> None:
    """Without a clock in the brand string, half of BogoMIPS is used."""
    cpuinfo = xeon / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace(" @ 2.50GHz", ""))
    assert probe_host(xeon).base_clock_mhz == pytest.approx(2500, rel=1e-3)


def test_bare_metal_has_no_hypervisor(xeon: Path) -> None:
    """A cloud's bare-metal host has the vendor's strings but no hypervisor flag."""
    cpuinfo = xeon / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace(" hypervisor", ""))
    assert probe_host(xeon).hypervisor == ""


def test_bare_metal_of_arm_has_no_hypervisor(tmp_path: Path) -> None:
    """On Arm, which has no hypervisor flag, the product name shows a bare-metal instance."""
    lay_out("arm-graviton2", tmp_path)
    write_files(tmp_path, {"sys/class/dmi/id/product_name": "m6g.metal"})
    assert probe_host(tmp_path).hypervisor == ""


def test_the_environment_is_read_from_the_same_tree(xeon: Path) -> None:
    """The environment has the steal time since boot, guest time counted once, and the fastest CPU's clock."""
    cpuinfo = xeon / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace("3099.998", "1200.000", 3))
    stat = xeon / "proc/stat"
    stat.write_text(stat.read_text().replace("44 0 0", "44 7 0", 1))
    assert probe_environment(xeon) == {
        "governor": None,
        "load_1m": 0.08,
        "steal_ticks": 44,
        "cpu_ticks": 4705 + 1292 + 1361293 + 484 + 75 + 44,
        "clock_mhz": 3099.998,
    }


@pytest.mark.parametrize(
    ("isa", "bits"), [(("avx", "avx2", "avx512f"), 512), (("avx",), 256), (("sse4_2",), 128), ((), 128)]
)
def test_vector_width_follows_from_the_flags(isa: tuple[str, ...], bits: int) -> None:
    """The vector width is that of the widest instruction set."""
    assert Host(isa=isa).vector_bits == bits


def test_this_machine_can_be_probed_and_written_down() -> None:
    """The facts of this machine survive JSON."""
    host = probe_host(Path("/"))
    assert host.logical_cpus == len(os.sched_getaffinity(0))
    assert host.memory_bytes > 0
    assert Host.from_facts(json.loads(json.dumps(host.facts()))) == host
    assert json.loads(json.dumps(probe_environment(Path("/")))).keys() >= {"load_1m", "steal_ticks", "clock_mhz"}


def test_facts_of_another_version_are_read() -> None:
    """Unknown facts are ignored, missing ones are unknown."""
    assert Host.from_facts({"vendor": "X", "invented_later": 1}) == Host(vendor="X")


def test_a_host_without_proc_is_described_by_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Linux, psutil and platform give the essential facts."""
    monkeypatch.delattr(os, "sched_getaffinity")
    host = probe_host(tmp_path, live=True)
    assert host.logical_cpus == host.logical_cpus_total == os.cpu_count()
    assert 1 <= host.physical_cores <= host.logical_cpus
    assert host.memory_bytes > 0
