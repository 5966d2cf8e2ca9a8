"""Bearer tokens: 256 random bits each, stored as hashes, with scopes and an optional expiry date."""

import hashlib
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from costmodel.errors import CostModelError

__all__ = ["SCOPES", "Token", "TokenFile", "Tokens", "add_token"]

_LOG = logging.getLogger("costmodel.service")
_PREFIX = "cm_"
# Scopes of tokens; `admin` includes all others.
SCOPES = ("predict", "observe", "metrics", "admin")
# Scopes of a token whose line in the file names none.
_DEFAULT_SCOPES = frozenset({"predict", "observe"})
_HASH_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token without its secret.

    Attributes:
        name: Name of the token's owner.
        scopes: Scopes of the token, a subset of `SCOPES`.
        expires: Time at which the token expires; None for never.
    """

    name: str
    scopes: frozenset[str] = _DEFAULT_SCOPES
    expires: datetime | None = None

    def allows(self, scope: str) -> bool:
        """Returns whether the token has a scope; one with the scope `admin` has all."""
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True)
class Tokens:
    """The bearer tokens in a token file.

    Attributes:
        by_hash: Tokens by the SHA-256 of their secrets. A fast hash and a dictionary lookup are safe: 256 random bits
            cannot be guessed, and the comparison is of hashes, not of secrets.
    """

    by_hash: Mapping[str, Token]

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """Reads a token file.

        Each line has the name of an owner, the SHA-256 of a token, and optionally `scopes=...` and `expires=...`.

        Raises:
            CostModelError: The file cannot be read or is not a token file.
        """
        try:
            lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
            found = {digest: _token(name, options) for name, digest, *options in lines}
        except (OSError, ValueError) as error:
            raise CostModelError(
                f"{path} cannot be read as tokens ({error}): make it with `costmodel token`"
            ) from error
        if any(len(digest) != _HASH_DIGITS for digest in found):
            raise CostModelError(f"{path} has a hash of the wrong length: make it anew with `costmodel token`")
        return cls(found)

    def find(self, header: str | None) -> Token | None:
        """Returns the token in an Authorization header; None if there is none, or if it is unknown or has expired.

        Args:
            header: Value of the header; None if the request has no such header.
        """
        scheme, _, secret = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = self.by_hash.get(_digest(secret.strip()))
        if found is None or (found.expires is not None and datetime.now(UTC) >= found.expires):
            return None
        return found


class TokenFile:
    """The current tokens in a token file that may change; deleting a line revokes its token.

    If the file is deleted or damaged, no token is accepted.
    """

    def __init__(self, path: Path) -> None:
        """Reads the token file.

        Raises:
            CostModelError: The file cannot be read or is not a token file.
        """
        self._path = path
        self._file_version = self._current_file_version()
        self._tokens = Tokens.read(path)

    def refresh(self) -> None:
        """Reads the token file again if it was changed."""
        file_version = self._current_file_version()
        if file_version == self._file_version:
            return
        self._file_version = file_version
        try:
            self._tokens = Tokens.read(self._path)
        except CostModelError as error:
            self._tokens = Tokens({})
            _LOG.error("no token is accepted any more", extra={"fields": {"error": str(error)}})

    def find(self, header: str | None) -> Token | None:
        """Returns the token in an Authorization header, like `Tokens.find`."""
        return self._tokens.find(header)

    def _current_file_version(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def add_token(
    path: Path, name: str, *, scopes: Sequence[str] = tuple(sorted(_DEFAULT_SCOPES)), expires: datetime | None = None
) -> str:
    """Creates a token, adds its hash to a token file, and returns the token, which cannot be recovered later.

    Args:
        path: Token file; if it does not exist, it is created, readable and writable only by the user of this process.
        name: Name of the token's owner: letters, digits, dots, dashes and underscores.
        scopes: Scopes of the token, a subset of `SCOPES`.
        expires: Time at which the token expires; None for never.

    Raises:
        CostModelError: The name is taken or not valid, a scope is unknown or none is given, or the file cannot be read
            or written.
    """
    if not name or len(name) > 64 or not all(c.isascii() and (c.isalnum() or c in ".-_") for c in name):
        raise CostModelError(f"{name!r} is no name for a token: use up to 64 letters, digits, dots and dashes")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise CostModelError(f"{', '.join(unknown) or 'nothing'} is no scope: choose among {', '.join(SCOPES)}")
    known = Tokens.read(path).by_hash if path.exists() else {}
    if name in {token.name for token in known.values()}:
        raise CostModelError(f"{path} has a token of {name}: delete its line to revoke it, or choose another name")
    token = _PREFIX + secrets.token_urlsafe(32)
    line = f"{name} {_digest(token)} scopes={','.join(scopes)}"
    if expires is not None:
        line += f" expires={expires.astimezone(UTC).isoformat(timespec='seconds')}"
    try:
        path.touch(mode=0o600)
        with path.open("ab+") as file:
            # An editor may have removed the last line break.
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")
            file.write(f"{line}\n".encode())
    except OSError as error:
        raise CostModelError(f"{path} cannot be written ({error.strerror}): check its folder") from error
    return token


def _token(name: str, options: Sequence[str]) -> Token:
    scopes, expires = _DEFAULT_SCOPES, None
    for option in options:
        key, _, value = option.partition("=")
        if key == "scopes" and value and set(value.split(",")) <= set(SCOPES):
            scopes = frozenset(value.split(","))
        elif key == "expires":
            expires = datetime.fromisoformat(value)
            if expires.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone")
        else:
            raise ValueError(f"{option!r} is neither scopes= nor expires=")
    return Token(name, scopes, expires)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
