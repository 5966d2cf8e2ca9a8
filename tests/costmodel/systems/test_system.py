"""Systems, the catalogue, and when records may share a name."""

import dataclasses
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import SystemMismatchError, SystemNameError
from costmodel.runtimes.base import Runtime, RuntimeSettings
from costmodel.systems.catalogue import catalogue
from costmodel.systems.host import Host
from costmodel.systems.microarchitecture import microarchitecture_facts
from costmodel.systems.names import validate_name
from costmodel.systems.system import System, check_same_system, this_system
from tests.sample_hosts import C5_XLARGE, DEFAULTS, EPYC, GIB, hosts, runtime_settings, text


@dataclasses.dataclass
class NamedRuntime:
    """The part of a runtime that a system needs."""

    name: str = "onnxruntime"
    version: str = "1.31.0"


ORT = cast(Runtime, NamedRuntime())

systems = st.builds(
    System,
    text,
    st.none() | hosts,
    text,
    text,
    runtime_settings,
    st.dictionaries(text, st.floats(0, 9)),
    st.booleans(),
    st.booleans(),
)


@given(systems)
def test_a_system_survives_json(system: System) -> None:
    """A system survives JSON."""
    assert System.from_dict(json.loads(json.dumps(system.to_dict()))) == system


def test_a_record_from_before_layers_could_overlap_is_of_one_at_a_time() -> None:
    """Records without inter-op threads, as older versions wrote them, mean one."""
    data = STORED.to_dict()
    del data["settings"]["inter_threads"]
    assert System.from_dict(data) == STORED


def test_what_a_newer_costmodel_wrote_down_is_kept() -> None:
    """Unknown settings, facts and fields of a newer version are ignored and written back unchanged."""
    system = System.from_dict(NEWER)
    assert (system.host, system.settings) == (STORED.host, STORED.settings)
    assert system.to_dict() == NEWER
    assert dataclasses.replace(system, capabilities={}).to_dict() == {**NEWER, "capabilities": {}}


def test_measurements_do_not_join_those_under_settings_that_are_not_known() -> None:
    """Measurements are not added to a system with unknown settings; the error names these."""
    newer = System.from_dict(NEWER)
    with pytest.raises(SystemMismatchError, match=r"settings that this costmodel does not know \(precision\).*upgrade"):
        check_same_system(newer, STORED)
    check_same_system(newer, newer)
    facts = {name: value for name, value in NEWER.items() if name != "settings"}
    check_same_system(System.from_dict({**facts, "settings": STORED.to_dict()["settings"]}), STORED)


def test_the_catalogue_has_the_machines_of_the_paper_and_later_ones() -> None:
    """The paper's four systems have its prices; a machine whose vCPUs are cores has as many cores as vCPUs."""
    known = catalogue()
    of_paper = ("c5.xlarge", "c5.2xlarge", "c4.xlarge", "c4.2xlarge")
    assert {name: (e.vcpus, e.clock_ghz, e.memory_gib, e.usd_per_hour) for name in of_paper for e in [known[name]]} == {
        "c5.xlarge": (4, 3.0, 8, 0.17),
        "c5.2xlarge": (8, 3.0, 16, 0.34),
        "c4.xlarge": (4, 2.9, 7.5, 0.199),
        "c4.2xlarge": (8, 2.9, 15, 0.398),
    }
    cores = {name: known[name].host.physical_cores for name in ("c6a.2xlarge", "c7a.2xlarge")}
    assert cores == {"c6a.2xlarge": 4, "c7a.2xlarge": 8}
    caches = {name: known[name].host.l3_bytes >> 20 for name in ("c6a.xlarge", "c6a.8xlarge", "c6i.xlarge")}
    assert caches == {"c6a.xlarge": 8, "c6a.8xlarge": 32, "c6i.xlarge": 54}
    shared = {
        name: known[name].host.l3_shared_cpus for name in ("c5a.8xlarge", "c6a.8xlarge", "c7a.8xlarge", "c7a.large")
    }
    assert shared == {"c5a.8xlarge": 8, "c6a.8xlarge": 16, "c7a.8xlarge": 8, "c7a.large": 2}


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_catalogued_name_is_valid_and_recognises_its_own_host(name: str) -> None:
    """Every catalogue entry has a valid name and matches its own host."""
    entry = catalogue()[validate_name(name)]
    own = Host(
        vendor=entry.vendor,
        model_name=entry.processor.replace("Intel Xeon", "Intel(R) Xeon(R) CPU"),
        logical_cpus_total=entry.vcpus,
        memory_bytes=int(entry.memory_gib * 0.95 * GIB),
        base_clock_mhz=entry.clock_ghz and entry.clock_ghz * 1000,
    )
    assert entry.differences(own) == []


def test_every_difference_is_named_in_plain_words() -> None:
    """Differences in CPUs, processor, memory and clock are named with expected and actual values."""
    assert catalogue()["c5.xlarge"].differences(EPYC) == [
        "4 vCPUs expected, 2 here",
        "processor Intel Xeon Platinum 8124M expected, AMD EPYC here",
        "8 GiB of memory expected, 23.5 here",
        "3 GHz expected, 2.6 here",
    ]


def test_what_the_kernel_hides_is_no_difference() -> None:
    """Unknown memory and clock are no differences."""
    host = dataclasses.replace(C5_XLARGE, memory_bytes=0, base_clock_mhz=None)
    assert catalogue()["c5.xlarge"].differences(host) == []


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"logical_cpus_total": 8}, "4 vCPUs expected, 8 here"),
        ({"cpu_quota": 1.5}, "4 vCPUs expected, this container may use 1.5 of them"),
        ({"model_name": "Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz"}, "8124M expected, Intel(R) Xeon"),
        ({"vendor": "", "model_name": ""}, "an unknown one here"),
        ({"memory_bytes": 16 * GIB}, "8 GiB of memory expected, 16.0 here"),
        ({"base_clock_mhz": 3600.0}, "3 GHz expected, 3.6 here"),
    ],
)
def test_one_difference_is_enough(change: dict[str, Any], difference: str) -> None:
    """An instance type of the same family does not match."""
    (found,) = catalogue()["c5.xlarge"].differences(dataclasses.replace(C5_XLARGE, **change))
    assert difference in found


def test_a_host_without_a_name_gets_its_own() -> None:
    """Without a given name, the system is named after the host."""
    system = this_system(ORT, DEFAULTS, host=EPYC)
    assert system == System("amd-epyc-zen5-2c-ort1.31-1t", EPYC, "onnxruntime", "1.31.0", DEFAULTS)


def test_this_very_machine_is_probed_by_default() -> None:
    """By default this machine is probed, and its name is stable."""
    first, second = this_system(ORT, DEFAULTS), this_system(ORT, DEFAULTS)
    assert first.name == second.name
    check_same_system(first, second)


def test_a_catalogued_name_on_another_host_is_refused() -> None:
    """The error has the system, every difference and how to proceed."""
    expected = r"this host is not a c5\.xlarge: .*--assert-system.* marks"
    with pytest.raises(SystemMismatchError, match=expected) as caught:
        this_system(ORT, DEFAULTS, name="c5.xlarge", host=EPYC)
    assert all(found in str(caught.value) for found in catalogue()["c5.xlarge"].differences(EPYC))


def test_only_an_asserted_name_is_marked() -> None:
    """An asserted name is accepted and marked only if the host differs."""
    system = this_system(ORT, DEFAULTS, name="c5.xlarge", host=EPYC, asserted=True)
    assert (system.name, system.asserted, system.host) == ("c5.xlarge", True, EPYC)
    assert not this_system(ORT, DEFAULTS, name="c5.xlarge", host=C5_XLARGE).asserted


def test_names_outside_the_catalogue_are_free_but_valid() -> None:
    """Names outside the catalogue must be valid only, asserted or not."""
    assert this_system(ORT, DEFAULTS, name="rack-7", host=EPYC).name == "rack-7"
    with pytest.raises(SystemNameError):
        this_system(ORT, DEFAULTS, name="../rack", host=EPYC, asserted=True)


STORED = this_system(ORT, DEFAULTS, name="box", host=EPYC)
NEWER = {
    **STORED.to_dict(),
    "settings": {**STORED.to_dict()["settings"], "precision": "bf16"},
    "host": {**STORED.to_dict()["host"], "l4_bytes": 1 << 30},
    "accelerators": ["npu"],
    "capabilities": {"npu_gflops": 7.0},
}


@pytest.mark.parametrize(
    "change",
    [{}, {"memory_bytes": GIB}, {"base_clock_mhz": 2700.0}, {"governor": "performance"}, {"cpu_quota": 2.5}],
)
def test_jitter_is_no_difference(change: dict[str, Any]) -> None:
    """Facts that vary on one machine are no differences."""
    check_same_system(STORED, dataclasses.replace(STORED, host=dataclasses.replace(EPYC, **change)))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"vendor": "GenuineIntel"}, "vendor AuthenticAMD there, GenuineIntel here"),
        ({"model_name": "AMD EPYC 9R14"}, "processor AMD EPYC there, AMD EPYC 9R14 here"),
        ({"family": 25}, "family 26 there, 25 here"),
        ({"model": 3}, "model 2 there, 3 here"),
        ({"physical_cores": 1}, "cores 2 there, 1 here"),
        ({"logical_cpus_total": 4}, "logical CPUs 2 there, 4 here"),
        ({"cpu_quota": 1.0}, "usable CPUs 2 there, 1 here"),
        ({"l3_bytes": 16 << 20}, "L3 KiB 32768 there, 16384 here"),
        ({"isa": ("avx", "avx2")}, "without avx512f here"),
        ({"isa": ("amx_tile", "avx", "avx2", "avx512f")}, "with amx_tile only here"),
    ],
)
def test_another_host_under_the_same_name_is_refused(change: dict[str, Any], difference: str) -> None:
    """Another host under a stored name is refused."""
    here = dataclasses.replace(STORED, host=dataclasses.replace(EPYC, **change))
    with pytest.raises(SystemMismatchError, match="records of box were measured on another system") as caught:
        check_same_system(STORED, here)
    assert difference in str(caught.value)
    assert "choose another --system name, or pass --assert-system" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"runtime": "openvino"}, "runtime onnxruntime there, openvino here"),
        ({"runtime_version": "1.32.0"}, "version 1.31 there, 1.32 here"),
        ({"settings": RuntimeSettings(threads=2)}, "threads 1 there, 2 here"),
        ({"settings": RuntimeSettings(level="basic")}, "optimisation level all there, basic here"),
        ({"settings": RuntimeSettings(spinning=False)}, "spinning on there, off here"),
        ({"settings": RuntimeSettings(inter_threads=2)}, "threads between layers 1 there, 2 here"),
    ],
)
def test_another_runtime_or_setting_is_refused(change: dict[str, Any], difference: str) -> None:
    """Another runtime or other settings under a stored name are refused."""
    with pytest.raises(SystemMismatchError, match=difference):
        check_same_system(STORED, dataclasses.replace(STORED, **change))


def test_all_differences_are_named_at_once() -> None:
    """All differences are in one error."""
    expected = r"vendor .*processor .*family .*model .*L3 .*version .*avx512f"
    with pytest.raises(SystemMismatchError, match=expected):
        check_same_system(STORED, dataclasses.replace(STORED, host=C5_XLARGE, runtime_version="1.40.1"))


def test_a_patch_release_and_new_capabilities_are_the_same_system() -> None:
    """Patch releases, capabilities and catalogued names without a host are no differences."""
    measured = dataclasses.replace(STORED, capabilities={"gemm_gflops": 9.0})
    check_same_system(STORED, dataclasses.replace(measured, runtime_version="1.31.4"))
    check_same_system(dataclasses.replace(STORED, host=None), STORED)


def test_the_user_may_vouch_for_a_host() -> None:
    """An asserted system may add to stored records; an unasserted one is refused if those were asserted elsewhere."""
    other = dataclasses.replace(STORED, host=C5_XLARGE)
    check_same_system(STORED, dataclasses.replace(other, asserted=True))
    with pytest.raises(SystemMismatchError, match=r"measured \(under --assert-system\) on another system"):
        check_same_system(dataclasses.replace(STORED, asserted=True), other)


def test_settings_are_checked_even_when_the_user_vouches() -> None:
    """Settings must match even if the system is asserted."""
    stored = this_system(ORT, RuntimeSettings(threads=1), "box", EPYC, asserted=True)
    with pytest.raises(SystemMismatchError, match="threads 1 there, 2 here; set them alike"):
        check_same_system(stored, this_system(ORT, RuntimeSettings(threads=2), "box", EPYC, asserted=True))


def test_the_default_name_of_another_setting_is_refused() -> None:
    """A default name with another number of threads is refused."""
    two = this_system(ORT, RuntimeSettings(threads=2), host=EPYC).name
    with pytest.raises(SystemMismatchError, match="leave out --system and set --runtime, --threads"):
        this_system(ORT, RuntimeSettings(threads=1), two, EPYC)
    assert this_system(ORT, RuntimeSettings(threads=2), two, EPYC).name == two


def test_an_extrapolated_system_becomes_the_one_that_is_measured() -> None:
    """What the catalogue says of a host that nobody has seen is not compared with the host itself."""
    here = this_system(ORT, DEFAULTS, "c5.xlarge", host=C5_XLARGE)
    guessed = System("c5.xlarge", catalogue()["c5.xlarge"].host, "onnxruntime", "1.31.0", DEFAULTS, extrapolated=True)
    check_same_system(guessed, here)
    with pytest.raises(SystemMismatchError):
        check_same_system(dataclasses.replace(guessed, extrapolated=False), here)


@pytest.mark.parametrize("name", catalogue())
def test_the_catalogue_knows_the_processor_of_each_machine(name: str) -> None:
    """Each machine type has a host of a known microarchitecture, which does not differ from the type itself."""
    machine = catalogue()[name]
    facts = microarchitecture_facts(machine.host.microarchitecture)
    assert facts is not None
    units = 1 if machine.microarchitecture == "zen4" else 2  # units that multiply and add whole vectors
    assert units * machine.host.vector_bits * 2 // 32 == facts.flops_per_cycle
    assert machine.differences(machine.host) == []
