"""Environments of releases: virtual environments that contain one release of a runtime each, and nothing else.

Everything besides the release, costmodel included, comes from the interpreter that runs the comparison: a program in an
environment looks for packages first there and then on the search path of that interpreter. An environment is made once
and kept.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

import costmodel
from costmodel.errors import CostModelError
from costmodel.runtimes.base import DEFAULT_RUNTIME

__all__ = ["ReleaseName", "environment_of", "parse_release", "program_in"]

_RELEASE = re.compile(r"(?:(?P<runtime>[A-Za-z][A-Za-z0-9_-]*)==)?(?P<version>\d+(?:\.\d+){1,3}(?:[a-z]+\d+)?)")
_OFFERED = re.compile(r"from versions: ([^)]*)\)")
# Number of releases that the error about an unknown one lists, the newest last.
_MOST_LISTED = 8
_PIP = ("-m", "pip", "install", "--no-deps", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2")
# Put on the search path after the packages of the environment, so that the release in there takes precedence.
_BOOTSTRAP = "import json, sys; sys.path.extend(json.loads(sys.argv.pop(1))); {then}"
_SERVE = "from costmodel.jobs.runtime_comparison.release_process import serve; serve()"


@dataclass(frozen=True, slots=True)
class ReleaseName:
    """A release of a runtime, as the user names it.

    Attributes:
        runtime: Name of the runtime, which is also that of its package.
        version: Version: two numbers such as "1.30" for the newest patch of a release, or three for exactly that patch.
    """

    runtime: str
    version: str

    def __str__(self) -> str:
        """Returns the release in the form in which the user names it, such as "onnxruntime==1.30"."""
        return f"{self.runtime}=={self.version}"

    @property
    def requirement(self) -> str:
        """The release as pip's requirement, such as "onnxruntime==1.30.*"."""
        return f"{self}.*" if self.version.count(".") == 1 and self.version[-1].isdigit() else str(self)

    def includes(self, version: str) -> bool:
        """Returns whether `version`, the full version of a package, is this release."""
        return version == self.version or version.startswith(f"{self.version}.")


def parse_release(text: str, runtime: str | None = None) -> ReleaseName:
    """Parses the name of a release, such as "onnxruntime==1.30" or "1.31".

    Args:
        text: Name of the release.
        runtime: Runtime whose release it must be, and is if `text` names none; None for any.

    Raises:
        CostModelError: `text` does not name a release, or one of another runtime, or one that costmodel cannot use.
    """
    match = _RELEASE.fullmatch(text.strip())
    if match is None:
        raise CostModelError(f"{text!r} names no release: write it like onnxruntime==1.30 or 1.30.1")
    release = ReleaseName(match["runtime"] or runtime or DEFAULT_RUNTIME, match["version"])
    if runtime is not None and release.runtime != runtime:
        raise CostModelError(
            f"{text} is a release of another runtime than {runtime}: compare two releases of one runtime"
        )
    known = sorted(point.name for point in importlib.metadata.entry_points(group="costmodel.runtimes"))
    if release.runtime not in known:
        raise CostModelError(f"there is no runtime {release.runtime!r}: choose one of {', '.join(known)}")
    least = _least_version(release.runtime)
    if least is not None and _numbers(release.version) < _numbers(least):
        raise CostModelError(
            f"{release} is older than costmodel can use: choose a release from {release.runtime}=={least} on"
        )
    return release


def environment_of(release: ReleaseName, folder: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """Returns the Python program of the environment that contains a release, which is made if it does not exist yet.

    Args:
        release: Release that the environment contains.
        folder: Folder of all environments.
        note: Function that is called with a remark before an environment is made, which takes some seconds.

    Raises:
        CostModelError: The environment cannot be made, for example because there is no such release.
    """
    place = folder / f"{release.runtime}-{release.version}-{sys.implementation.cache_tag}"
    made = place / "release.json"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{place.name}.lock"):
            if not made.exists():
                note(f"an environment with {release} is made in {place}")
                venv.EnvBuilder(clear=True, symlinks=os.name != "nt", with_pip=True).create(place)
                try:
                    _install(release, python)
                except CostModelError:
                    shutil.rmtree(place)
                    raise
                made.write_text(json.dumps({"release": str(release), "python": sys.version}))
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the module ensurepip of this Python does not work"
        raise CostModelError(
            f"the environment {place} cannot be made ({reason}): make room for it, and check that "
            "`python -m venv` works with this interpreter"
        ) from error
    return python


def program_in(python: Path, then: str = _SERVE) -> Sequence[str]:
    """Returns the program that serves the release of an environment, with its arguments.

    Args:
        python: Python program of the environment.
        then: Python statements that serve the release.
    """
    own = {str(Path(costmodel.__file__).parents[1].resolve()): None}
    prefixes = (sys.base_prefix, sys.base_exec_prefix)
    others = [path for path in sys.path if path and not _is_standard_library(path, prefixes)]
    paths = [*own, *(path for path in others if path not in own)]
    # Isolated: PYTHONPATH would come before the packages of the environment.
    return (str(python), "-I", "-c", _BOOTSTRAP.format(then=then), json.dumps(paths))


def _is_standard_library(path: str, prefixes: Sequence[str]) -> bool:
    """Returns whether a folder of the search path belongs to Python itself, of which the environment has its own."""
    inside = any(Path(path).resolve().is_relative_to(Path(prefix).resolve()) for prefix in prefixes)
    return inside and not {"site-packages", "dist-packages"} & set(Path(path).parts)


def _install(release: ReleaseName, python: Path) -> None:
    """Installs a release into a new environment, from the index for which pip is configured.

    Raises:
        CostModelError: There is no such release, or pip failed for another reason.
    """
    settings = Path(sys.prefix) / "pip.conf"  # pip's settings for the running interpreter alone
    if settings.exists():
        shutil.copy(settings, python.parents[1] / settings.name)
    done = subprocess.run(
        [str(python), "-I", *_PIP, release.requirement], capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode == 0:
        return
    offered = _OFFERED.search(done.stderr)
    if offered is not None and offered[1] != "none":
        least = _least_version(release.runtime) or "0"
        versions = [version for version in offered[1].split(", ") if _numbers(version) >= _numbers(least)]
        raise CostModelError(
            f"there is no release {release} for this Python: choose one of those that pip finds, such as "
            f"{', '.join(versions[-_MOST_LISTED:])}"
        )
    if offered is not None:
        raise CostModelError(
            f"pip finds no release of {release.runtime} at all: check the network, or the index that pip is configured "
            "to use"
        )
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    raise CostModelError(f"pip could not install {release}: {lines[-1] if lines else 'it gave no reason'}")


def _least_version(runtime: str) -> str | None:
    """Returns the oldest version of a runtime that costmodel's own requirements admit; None if they name none."""
    for requirement in importlib.metadata.requires("costmodel") or ():
        match = re.match(rf"{re.escape(runtime)}\s*>=\s*([0-9.]+)", requirement)
        if match is not None:
            return match[1]
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
