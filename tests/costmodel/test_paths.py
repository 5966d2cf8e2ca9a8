"""The folders that costmodel uses."""

import re
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from costmodel.errors import CostModelError, StoreError
from costmodel.paths import Home, find_home, shipped_data_folder


@pytest.fixture(autouse=True)
def empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsets the variables, and gives the user an empty home folder."""
    monkeypatch.delenv("COSTMODEL_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def test_the_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COSTMODEL_HOME is the root and is created if missing."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "a" / "b"))
    assert find_home().root == tmp_path / "a" / "b"
    assert find_home().data.is_dir()


def test_the_variable_may_say_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading tilde is expanded, and relative paths are relative to the current folder."""
    monkeypatch.setenv("COSTMODEL_HOME", "~/costs")
    assert find_home().root == tmp_path / "user" / "costs"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSTMODEL_HOME", "here")
    assert find_home().root == tmp_path / "here"


def test_a_checkout_keeps_its_own(tmp_path: Path) -> None:
    """In a checkout, data and tracking are in its folders."""
    (tmp_path / "clone" / "data").mkdir(parents=True)
    (tmp_path / "clone" / "pyproject.toml").touch()
    home = find_home(tmp_path / "clone")
    assert home.root == tmp_path / "clone"
    assert home.tracking == tmp_path / "clone" / "mlruns"


def test_an_installation_uses_the_folder_for_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package uses XDG_DATA_HOME if set and not empty, else ~/.local/share."""
    installed = tmp_path / "site-packages"
    assert find_home(installed).root == tmp_path / "user" / ".local" / "share" / "costmodel"
    monkeypatch.setenv("XDG_DATA_HOME", "")
    assert find_home(installed).root == tmp_path / "user" / ".local" / "share" / "costmodel"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert find_home(installed).root == tmp_path / "share" / "costmodel"


def test_a_home_that_cannot_be_made_is_an_error_that_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that cannot be created is an error with the folder and the variable."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(CostModelError, match=re.escape(str(tmp_path / "file")) + ".*COSTMODEL_HOME"):
        find_home()


@pytest.mark.parametrize("name", ["plain", "with space", "ümläut", "100%", "a:b@c"])
def test_the_store_lies_in_the_data_folder(tmp_path: Path, name: str) -> None:
    """The default store URL is a file in the data folder, for any folder name."""
    home = Home(tmp_path / name)
    assert make_url(home.store_url).database == str(tmp_path / name / "data" / "costmodel.db")
    assert home.data in home.bundles.parents
    assert home.data in home.cache.parents


def test_each_store_has_regressors_of_its_own(tmp_path: Path) -> None:
    """Regressors of different stores are in different folders; the default store uses the default one."""
    home = Home(tmp_path)
    assert home.bundles_of(None) == home.bundles_of(home.store_url) == home.bundles
    other = home.bundles_of("sqlite:///other.db")
    assert other != home.bundles
    assert other != home.bundles_of("sqlite:///third.db")
    # User and password do not identify the store.
    shared = home.bundles_of("postgresql://host/costmodel")
    assert shared == home.bundles_of("postgresql://me:p%40ss@host/costmodel") != home.bundles_of("postgresql://host/x")


@pytest.mark.parametrize(
    "url",
    [
        "postgres://h/db", "postgresql+psycopg://h/db", "postgresql+psycopg2://h/db", "postgresql://h:5432/db",
        "postgresql://H/db", "postgresql://me@h/db", "postgresql://me:p%40ss@h:5432/db?sslmode=require",
        "postgresql:///db?host=h", "postgresql:///db?host=h&port=5432",
    ],
)  # fmt: skip
def test_one_database_has_one_folder_of_regressors(tmp_path: Path, url: str) -> None:
    """Driver, user, password, default port and options of a URL do not change the folder."""
    home = Home(tmp_path)
    assert home.bundles_of(url) == home.bundles_of("postgresql://h/db")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/other", "postgresql://g/db", "postgresql://h:5433/db", "postgresql:///db",
        "postgresql:///db?host=h&port=5433", "mysql://h/db", "sqlite:///db",
    ],
)  # fmt: skip
def test_another_database_has_another_folder(tmp_path: Path, url: str) -> None:
    """Another name, host, port or kind of database has another folder."""
    home = Home(tmp_path)
    assert home.bundles_of(url) != home.bundles_of("postgresql://h/db")


def test_one_file_has_one_folder_of_regressors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spellings of one file path have the same folder."""
    home = Home(tmp_path)
    monkeypatch.chdir(tmp_path)
    absolute = home.bundles_of(f"sqlite:///{tmp_path / 'x.db'}")
    (tmp_path / "link.db").symlink_to("x.db")
    for url in ("sqlite:///x.db", "sqlite:///a/../x.db", "sqlite+pysqlite:///./x.db", "sqlite:///link.db"):
        assert home.bundles_of(url) == absolute
    assert home.bundles_of("sqlite:///data/costmodel.db") == home.bundles


@pytest.mark.parametrize("url", ["results.db", "sqlite://", "postgresql://h:port/db"])
def test_what_is_no_url_has_no_folder(tmp_path: Path, url: str) -> None:
    """An invalid URL is refused in one sentence."""
    with pytest.raises(StoreError, match="such as sqlite:///results"):
        Home(tmp_path).bundles_of(url)


def test_only_a_checkout_ships_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped data are in the checkout, wherever COSTMODEL_HOME is; an installed package has none."""
    monkeypatch.setenv("COSTMODEL_HOME", str(tmp_path / "home"))
    (tmp_path / "clone" / "data").mkdir(parents=True)
    (tmp_path / "clone" / "pyproject.toml").touch()
    assert shipped_data_folder(tmp_path / "clone") == tmp_path / "clone" / "data"
    assert shipped_data_folder(tmp_path / "site-packages") is None
