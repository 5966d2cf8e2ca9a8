"""Locations of the files that costmodel writes."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import CostModelError

__all__ = ["Home", "find_home"]

_CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Home:
    """The folders of one installation.

    Attributes:
        root: `COSTMODEL_HOME` if set; the checkout when run from one; else the user's data folder.
    """

    root: Path

    @property
    def data(self) -> Path:
        """Folder of stores, trained regressors and caches."""
        return self.root / "data"

    @property
    def store_url(self) -> str:
        """URL of the default store, an SQLite file."""
        return f"sqlite:///{self.data / 'costmodel.db'}"

    @property
    def bundles(self) -> Path:
        """Folder of the regressors trained on the default store, with a subfolder for each system."""
        return self.data / "regressors"

    def bundles_of(self, store_url: str | None) -> Path:
        """Returns the folder of the regressors trained on a store; equivalent URLs give the same folder.

        URLs are equivalent if they differ only in driver, user, password, options, PostgreSQL's default port, or in
        the spelling of the path of an SQLite file.

        Args:
            store_url: URL of the store; None for the default one.

        Raises:
            StoreError: `store_url` is not the URL of a store.
        """
        if store_url is None or store_url == self.store_url:
            return self.bundles
        from costmodel.store_url import place_of  # imported here: it loads SQLAlchemy, which --help must not

        place = place_of(store_url)
        if place == place_of(self.store_url):
            return self.bundles
        return self.data / f"regressors-{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    @property
    def cache(self) -> Path:
        """Folder of lowered graphs; may be deleted at any time."""
        return self.data / "cache"

    @property
    def corpora(self) -> Path:
        """Folder of built corpora, with a subfolder for each; may be deleted, and is then built again."""
        return self.data / "corpora"

    @property
    def tracking(self) -> Path:
        """Folder of MLflow's default store."""
        return self.root / "mlruns"


def find_home() -> Home:
    """Finds the home of this installation; creates its data folder if necessary.

    Raises:
        CostModelError: The data folder cannot be created.
    """
    configured = os.environ.get("COSTMODEL_HOME")
    if configured:
        root = Path(configured).expanduser().resolve()
    elif (_CHECKOUT / "pyproject.toml").exists() and (_CHECKOUT / "data").is_dir():
        root = _CHECKOUT
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
