"""Names of microarchitectures."""

import pytest

from costmodel.systems.microarchitecture import microarchitecture


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
    """Known processors have a microarchitecture slug, unknown ones none."""
    assert microarchitecture(*identity) == slug
