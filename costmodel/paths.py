"""Locations of the files that costmodel writes."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import CostModelError

__all__ = ["Home", "find_home", "shipped_data_folder"]

_CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Home:
    """The folders in which one installation of costmodel keeps its files.

    Attributes:
        root: Folder that contains all others: the environment variable `COSTMODEL_HOME` if set, else the source
            checkout if costmodel runs from one, else a folder in the user's data folder.
    """

    root: Path

    @property
    def data(self) -> Path:
        """Folder of result stores, trained regressors, corpora and caches."""
        return self.root / "data"

    @property
    def store_url(self) -> str:
        """URL of the default results store, an SQLite file."""
        return f"sqlite:///{self.data / 'costmodel.db'}"

    @property
    def survey_store_url(self) -> str:
        """URL of the results store of `costmodel survey`, an SQLite file that contains only the standard set."""
        return f"sqlite:///{self.data / 'survey.db'}"

    @property
    def bundles(self) -> Path:
        """Folder of the regressors trained on the default results store, with a subfolder for each system."""
        return self.data / "regressors"

    def bundles_of(self, store_url: str | None) -> Path:
        """Returns the folder of the regressors trained on a results store; equivalent URLs give the same folder.

        URLs are equivalent if they differ only in driver, user, password, options, PostgreSQL's default port, or in
        the spelling of the path of an SQLite file.

        Args:
            store_url: URL of the store; None for the default one.

        Raises:
            StoreError: `store_url` is not the URL of a store.
        """
        if store_url is None or store_url == self.store_url:
            return self.bundles
        from costmodel.store_url import store_identity  # imported here: it loads SQLAlchemy, which --help must not

        place = store_identity(store_url)
        if place == store_identity(self.store_url):
            return self.bundles
        return self.data / f"regressors-{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    @property
    def cache(self) -> Path:
        """Folder of lowered graphs; may be deleted at any time."""
        return self.data / "cache"

    @property
    def environments(self) -> Path:
        """Folder of environments that contain a release of a runtime each; a deleted one is made again."""
        return self.data / "environments"

    @property
    def corpora(self) -> Path:
        """Folder of built corpora, with a subfolder for each; a deleted corpus is built again when it is needed."""
        return self.data / "corpora"

    @property
    def tracking(self) -> Path:
        """Folder in which MLflow records training runs by default."""
        return self.root / "mlruns"


def find_home(checkout: Path = _CHECKOUT) -> Home:
    """Returns the folders of this installation; creates the data folder if necessary.

    Args:
        checkout: Folder that contains the package; the root if it is a source checkout and `COSTMODEL_HOME` is not set.

    Raises:
        CostModelError: The data folder cannot be created.
    """
    configured = os.environ.get("COSTMODEL_HOME")
    if configured:
        root = Path(configured).expanduser().resolve()
    elif _is_checkout(checkout):
        root = checkout
    else:
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        root = Path(base) / "costmodel"
    home = Home(root)
    try:
        home.data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CostModelError(
            f"the folder {home.data} cannot be made ({error.strerror}): set COSTMODEL_HOME to a folder that can be "
            "written"
        ) from error
    return home


def shipped_data_folder(checkout: Path = _CHECKOUT) -> Path | None:
    """Returns the folder of the data sets that are versioned with costmodel; None if it was installed from a wheel.

    Args:
        checkout: Folder that contains the package.
    """
    return checkout / "data" if _is_checkout(checkout) else None


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").exists() and (folder / "data").is_dir()
