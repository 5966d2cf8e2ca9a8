"""Result folders of evaluations, which contain what is needed to repeat them."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path

from costmodel.atomic_write import atomic_file
from costmodel.errors import EvaluationFileError
from costmodel.jobs.evaluation.results import EvaluationResults, read_results, results_csv, results_json
from costmodel.systems.host import probe_host

__all__ = ["Environment", "ResultFolder", "digest_of", "this_environment"]

_SPEC, _RESULTS, _TABLE, _ENVIRONMENT, _LOCK = (
    "evaluation.toml", "results.json", "results.csv", "environment.json", "requirements.txt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Environment:
    """The software and the hardware of a run.

    Attributes:
        python: Version of Python.
        platform: Operating system and its version.
        packages: Version of each installed package, by name.
        host: Facts about the host's hardware.
    """

    python: str
    platform: str
    packages: Mapping[str, str]
    host: Mapping[str, object]


def this_environment() -> Environment:
    """Returns the software and the hardware of this process."""
    packages = {one.metadata["Name"].lower(): one.version for one in distributions() if one.metadata["Name"]}
    return Environment(
        platform.python_version(), platform.platform(), dict(sorted(packages.items())), probe_host().facts()
    )


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """A folder with the spec of an evaluation, its results, and the environment in which they were made.

    Attributes:
        path: Path of the folder.
    """

    path: Path

    def prepare(self, spec_text: str) -> None:
        """Creates the folder with a spec in it; the folder may have the same spec already.

        Raises:
            EvaluationFileError: The folder has another spec, or cannot be written.
        """
        try:
            if (self.path / _SPEC).exists():
                if (self.path / _SPEC).read_text(encoding="utf-8") != spec_text:
                    raise EvaluationFileError(
                        f"{self.path} has the results of another spec: give another folder with --out"
                    )
                return
            self.path.mkdir(parents=True, exist_ok=True)
            self._write(_SPEC, spec_text)
        except OSError as error:
            raise EvaluationFileError(
                f"the result folder {self.path} cannot be written ({error.strerror}): give another one with --out"
            ) from error

    def write(self, results: EvaluationResults, environment: Environment) -> None:
        """Writes results, their table, and the environment; files of an earlier run are replaced."""
        self._write(_LOCK, "".join(f"{name}=={version}\n" for name, version in environment.packages.items()))
        self._write(_ENVIRONMENT, json.dumps(asdict(environment), indent=1) + "\n")
        self._write(_TABLE, results_csv(results))
        self._write(_RESULTS, results_json(results))  # last: a folder with results is complete

    def spec_text(self) -> str:
        """Returns the text of the spec.

        Raises:
            EvaluationFileError: The folder has no spec.
        """
        return self._read(_SPEC)

    def results(self) -> EvaluationResults:
        """Returns the results.

        Raises:
            EvaluationFileError: The folder has no results, or they are damaged or not those of its spec.
        """
        results = read_results(self._read(_RESULTS), str(self.path / _RESULTS))
        if results.spec_sha256 != digest_of(self.spec_text()):
            raise EvaluationFileError(f"{self.path / _SPEC} was changed after the evaluation: run it again")
        return results

    def environment(self) -> Environment:
        """Returns the environment in which the results were made.

        Raises:
            EvaluationFileError: The folder has no record of it, or the record is damaged.
        """
        try:
            return Environment(**json.loads(self._read(_ENVIRONMENT)))
        except (ValueError, TypeError) as error:
            raise EvaluationFileError(f"{self.path / _ENVIRONMENT} is damaged: run the evaluation again") from error

    @property
    def complete(self) -> bool:
        """Whether the folder has results."""
        return (self.path / _RESULTS).exists()

    def next_verification(self) -> "ResultFolder":
        """Returns the folder of the next verification: that of one that was interrupted, or else a new one."""
        number = 1
        while (folder := ResultFolder(self.path / f"verification-{number}")).complete:
            number += 1
        return folder

    @property
    def store_url(self) -> str:
        """URL of a results store in the folder, which a verification measures into."""
        return f"sqlite:///{self.path.resolve() / 'measurements.db'}"

    def _write(self, name: str, text: str) -> None:
        with atomic_file(self.path / name) as partial:
            partial.write_text(text, encoding="utf-8")

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EvaluationFileError(
                f"{self.path} has no {name}, so it is no folder of results: give one that `costmodel run` wrote"
            ) from error


def digest_of(spec_text: str) -> str:
    """Returns the SHA-256 of the text of a spec."""
    return hashlib.sha256(spec_text.encode()).hexdigest()
