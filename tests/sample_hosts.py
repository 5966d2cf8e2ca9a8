"""Hosts and settings that tests of systems and of their names share, and strategies that draw them."""

from hypothesis import strategies as st

from costmodel.runtimes.base import LEVELS, RuntimeSettings
from costmodel.systems.host import Host

GIB = 2**30
EPYC = Host(
    vendor="AuthenticAMD", model_name="AMD EPYC", family=26, model=2, microarchitecture="zen5",
    physical_cores=2, logical_cpus=2, logical_cpus_total=2, l3_bytes=32 << 20, isa=("avx", "avx2", "avx512f"),
    memory_bytes=int(23.5 * GIB), base_clock_mhz=2596.09,
)  # fmt: skip
C5_XLARGE = Host(
    vendor="GenuineIntel", model_name="Intel(R) Xeon(R) Platinum 8124M CPU @ 3.00GHz", family=6, model=85,
    microarchitecture="skylake-x", physical_cores=2, logical_cpus=4, logical_cpus_total=4, threads_per_core=2,
    memory_bytes=7834236 * 1024, base_clock_mhz=3000.0,
)  # fmt: skip
DEFAULTS = RuntimeSettings()

text = st.text(max_size=80)
hosts = st.builds(
    Host,
    vendor=st.sampled_from(["AuthenticAMD", "GenuineIntel", "ARM", ""]) | text,
    model_name=st.sampled_from([EPYC.model_name, C5_XLARGE.model_name]) | text,
    microarchitecture=st.sampled_from(["", "zen5", "sapphire-rapids"]) | text,
    architecture=text,
    family=st.integers(0, 1000),
    logical_cpus=st.integers(1, 4096),
    isa=st.sampled_from([(), ("avx",), ("avx", "avx2")]),
    cpu_quota=st.none() | st.floats(0.01, 5000),
)
runtime_settings = st.builds(
    RuntimeSettings,
    threads=st.integers(1, 4096),
    level=st.sampled_from(LEVELS),
    spinning=st.booleans(),
    inter_threads=st.integers(1, 64),
)
