"""Names of microarchitectures, and facts from which the speed of a processor is guessed that nobody has measured."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Microarchitecture", "microarchitecture", "microarchitecture_facts"]

# From Linux's amd.c and intel-family.h. Never rename a slug, because slugs are part of default system names.
_AMD = {
    0x17: ((0x00, 0x2F, "zen1"), (0x30, 0xFF, "zen2")),
    0x19: ((0x10, 0x1F, "zen4"), (0x60, 0xAF, "zen4"), (0x00, 0x5F, "zen3")),
    0x1A: ((0x50, 0x5F, "zen6"), (0x80, 0xAF, "zen6"), (0xC0, 0xCF, "zen6"), (0x00, 0x7F, "zen5")),
}
_INTEL_FAMILY_6 = {
    0x2D: "sandy-bridge-ep", 0x3E: "ivy-bridge-ep", 0x3F: "haswell-ep", 0x4F: "broadwell-ep",
    0x56: "broadwell-de", 0x6A: "icelake-sp", 0x6C: "icelake-sp", 0x8F: "sapphire-rapids",
    0xCF: "emerald-rapids", 0xAD: "granite-rapids", 0xAE: "granite-rapids", 0xAF: "sierra-forest",
    0x3C: "haswell", 0x5E: "skylake", 0x8E: "kaby-lake", 0x9E: "kaby-lake", 0x97: "alder-lake",
    0x9A: "alder-lake", 0xB7: "raptor-lake", 0xBA: "raptor-lake", 0xAA: "meteor-lake",
}  # fmt: skip
_ARM_PARTS = {0xD0C: "neoverse-n1", 0xD40: "neoverse-v1", 0xD49: "neoverse-n2", 0xD4F: "neoverse-v2"}


@dataclass(frozen=True, slots=True)
class Microarchitecture:
    """Facts about a microarchitecture.

    Attributes:
        year: When the first server processor with it was released, as a year with a fraction.
        flops_per_cycle: Number of float32 operations that one core completes in a cycle, counting a multiplication with
            an addition as two.
    """

    year: float
    flops_per_cycle: int


@cache
def microarchitecture_facts(slug: str) -> Microarchitecture | None:
    """Returns the facts about a microarchitecture, named as `Host.microarchitecture`; None if it is not listed."""
    text = (files("costmodel.systems") / "microarchitectures.toml").read_text(encoding="utf-8")
    entry = tomllib.loads(text).get(slug)
    return None if entry is None else Microarchitecture(**entry)


def microarchitecture(vendor: str, family: int, model: int, stepping: int) -> str:
    """Returns the slug of a processor's microarchitecture, such as "zen5"; "" if this module does not list it."""
    if vendor == "AuthenticAMD":
        return next((slug for first, last, slug in _AMD.get(family, ()) if first <= model <= last), "")
    if vendor == "GenuineIntel" and family == 6:
        if model == 0x55:
            return "cooper-lake" if stepping >= 10 else "cascade-lake" if stepping >= 5 else "skylake-x"
        return _INTEL_FAMILY_6.get(model, "")
    return _ARM_PARTS.get(model, "") if vendor == "ARM" else ""
