"""Other hosts, as the files in which a kernel describes them: tests run as on any of them, whatever they run on.

A host is a TOML file beside this one. `cpuinfo` and the paths under `[cpu]`, which is the folder of one CPU, are
repeated for each CPU, and in them the CPU's number, core, package and thread siblings stand for {cpu}, {core},
{package} and {siblings}; `{all}` stands for all CPUs.
"""

import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["HOSTS", "lay_out", "write_files"]

_CPU = "sys/devices/system/cpu"

HOSTS = MappingProxyType({path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))})


def lay_out(name: str, root: Path) -> Path:
    """Write the files of the host called `name` under `root`, and return `root`."""
    host: dict[str, Any] = {"threads_per_core": 1, "packages": 1, "cpu": {}} | tomllib.loads(HOSTS[name].read_text())
    cores = host["cpus"] // host["threads_per_core"]
    blocks, files = [], dict(host["files"])
    for cpu in range(host["cpus"]):
        core = cpu % cores
        package = core * host["packages"] // cores
        place = {
            "cpu": cpu,
            "core": core % (cores // host["packages"]),
            "package": package,
            "siblings": ",".join(str(sibling) for sibling in range(core, host["cpus"], cores)),
            "all": f"0-{host['cpus'] - 1}" if host["cpus"] > 1 else "0",
        }
        blocks.append(host["cpuinfo"].format(**place))
        files |= {f"{_CPU}/cpu{cpu}/{path}": text.format(**place) for path, text in host["cpu"].items()}
    write_files(root, {"proc/cpuinfo": "\n".join(blocks).rstrip("\n"), **files})
    return root


def write_files(root: Path, files: dict[str, str]) -> None:
    """Write `files`, each ended as the kernel ends them, under `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
