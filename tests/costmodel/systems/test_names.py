"""Names of systems: which are valid, which are given by default, and what these tell."""

import dataclasses
import string

import pytest
from hypothesis import given

from costmodel.errors import SystemNameError
from costmodel.runtimes.base import RuntimeSettings
from costmodel.systems.host import Host
from costmodel.systems.names import default_name, measuring_command, validate_name
from tests.sample_hosts import C5_XLARGE, DEFAULTS, EPYC, GIB, hosts, runtime_settings, text


@pytest.mark.parametrize("name", ["c5.xlarge", "a", "9", "My_box-2.local", "x" * 64, "console", "com10"])
def test_good_names_pass_unchanged(name: str) -> None:
    """Letters, digits, dots, underscores and dashes are valid in names."""
    assert validate_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a/b", "..", "-rf", "_a", "a\n", "a\0", "x" * 65, "con", "nul.a", "é", "٣", "💥" * 99],
)
def test_odd_names_are_refused_with_what_is_allowed(name: str) -> None:
    """The error is one printable line with the name and the allowed characters."""
    with pytest.raises(SystemNameError, match="use at most 64 letters, digits") as caught:
        validate_name(name)
    message = str(caught.value)
    assert message.isprintable()
    assert message.isascii()
    assert len(message) < 1000


@given(text)
def test_a_name_is_either_refused_or_safe_everywhere(name: str) -> None:
    """Every accepted name is a safe file name."""
    try:
        validate_name(name)
    except SystemNameError:
        return
    assert set(name) <= set(string.ascii_letters + string.digits + "._-")
    assert name[0] not in "._-"


@pytest.mark.parametrize(
    ("host", "settings", "name"),
    [
        (EPYC, DEFAULTS, "amd-epyc-zen5-2c-ort1.31-1t"),
        (EPYC, RuntimeSettings(2, "basic", spinning=False), "amd-epyc-zen5-2c-ort1.31-2t-basic-nospin"),
        (EPYC, RuntimeSettings(inter_threads=2), "amd-epyc-zen5-2c-ort1.31-1t-2inter"),
        (dataclasses.replace(EPYC, microarchitecture=""), DEFAULTS, "amd-epyc-f26m2-2c-ort1.31-1t"),
        (C5_XLARGE, DEFAULTS, "intel-xeon-platinum-8124m-skylake-x-4c-ort1.31-1t"),
        (dataclasses.replace(EPYC, cpu_quota=1.5), DEFAULTS, "amd-epyc-zen5-1c-ort1.31-1t"),
        (Host(), DEFAULTS, "host-1c-ort1.31-1t"),
    ],
)
def test_default_names_are_readable(host: Host, settings: RuntimeSettings, name: str) -> None:
    """The default name has processor, cores, runtime and threads."""
    assert default_name(host, "onnxruntime", "1.31.0", settings) == name


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("amd-epyc-zen4-2c-ort1.31-1t", "costmodel bench"),
        ("amd-epyc-zen4-2c-ort1.31-2t", "costmodel bench --threads 2"),
        ("amd-epyc-zen4-2c-ov2026.4-1t", "costmodel bench --runtime openvino"),
        ("x-8c-ort1.31-2t-4inter-none-nospin", "costmodel bench --threads 2 --inter-threads 4 --level none"),
        ("c5.xlarge", "costmodel bench --system c5.xlarge"),
    ],
)
def test_the_command_that_measures_a_system(name: str, command: str) -> None:
    """The settings in a default name are options; any other name is given as it is."""
    assert measuring_command(name) == command


@pytest.mark.parametrize("version", ["1.31.0", "1.31.7", "1.31.0.dev20261101+cpu"])
def test_default_names_are_stable_across_patches(version: str) -> None:
    """Patch releases, memory, clock and governor do not change the default name."""
    host = dataclasses.replace(EPYC, memory_bytes=GIB, base_clock_mhz=None, governor="powersave")
    assert default_name(host, "onnxruntime", version, DEFAULTS) == "amd-epyc-zen5-2c-ort1.31-1t"


@given(hosts, text, text, runtime_settings)
def test_default_names_are_valid(host: Host, runtime: str, version: str, settings: RuntimeSettings) -> None:
    """Default names are valid for any processor and runtime."""
    name = default_name(host, runtime, version, settings)
    assert validate_name(name) == name
