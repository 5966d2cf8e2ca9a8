"""Where costmodel keeps what it makes."""

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
        """Stores, trained regressors, caches."""
        return self.root / "data"

    @property
    def store_url(self) -> str:
        """The default store: SQLite, embedded."""
        return f"sqlite:///{self.data / 'costmodel.db'}"

    @property
    def bundles(self) -> Path:
        """Regressors trained on the default store, a folder for each system."""
        return self.data / "regressors"

    def bundles_of(self, store_url: str | None) -> Path:
        """The folder of the regressors trained on one store, however its URL is spelt.

        Driver, user, password, options and PostgreSQL's usual port make no difference, and neither does the way in
        which the path of an SQLite file is written.

        Args:
            store_url: URL of the store; None for the default one.

        Raises:
            StoreError: It is no URL of a store.
        """
        if store_url is None or store_url == self.store_url:
            return self.bundles
        from costmodel.store_url import place_of  # SQLAlchemy, which --help must not load

        place = place_of(store_url)
        if place == place_of(self.store_url):
            return self.bundles
        return self.data / f"regressors-{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    @property
    def cache(self) -> Path:
        """Lowered graphs; may be deleted at any time."""
        return self.data / "cache"

    @property
    def corpora(self) -> Path:
        """Corpora made here, a folder for each; may be deleted, and are then made again."""
        return self.data / "corpora"

    @property
    def tracking(self) -> Path:
        """MLflow's default store."""
        return self.root / "mlruns"


def find_home() -> Home:
    """The home of this installation, its data folder made if need be.

    Raises:
        CostModelError: The data folder cannot be made.
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
