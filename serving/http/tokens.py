"""Bearer tokens: 256 random bits each, kept as hashes, with scopes and a date on which they expire."""

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
# What a token may do; `admin` includes all others.
SCOPES = ("predict", "observe", "metrics", "admin")
# What a token may do whose line does not say.
_USUAL = frozenset({"predict", "observe"})
_HASH_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Token:
    """A token, as far as the service knows it.

    Attributes:
        name: Name of its owner.
        scopes: What it may do, some of `SCOPES`.
        expires: The moment from which on it is worth nothing; None for never.
    """

    name: str
    scopes: frozenset[str] = _USUAL
    expires: datetime | None = None

    def allows(self, scope: str) -> bool:
        """Whether the token may do something."""
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True)
class Tokens:
    """The tokens of a file.

    Attributes:
        by_hash: Each token, by its SHA-256. A fast hash will do, and looking it up in a dictionary: there is nothing to
            guess in 256 random bits, and what is compared is not the secret.
    """

    by_hash: Mapping[str, Token]

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """The tokens in a file, one a line: a name, the hash, and `scopes=...` and `expires=...` where wanted.

        Raises:
            CostModelError: The file cannot be read, or is not such a file.
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
        """The token that an Authorization header carries; None if it is unknown or has expired."""
        scheme, _, secret = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = self.by_hash.get(_digest(secret.strip()))
        if found is None or (found.expires is not None and datetime.now(UTC) >= found.expires):
            return None
        return found


class TokenFile:
    """The tokens of a file as it is now: a line that is deleted is a token that is revoked.

    A file that is deleted or damaged lets nobody in.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            CostModelError: It cannot be read, or is not such a file.
        """
        self._path = path
        self._stamp = self._stamped()
        self._tokens = Tokens.read(path)

    def refresh(self) -> None:
        """Read the file again if it was written to."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = Tokens.read(self._path)
        except CostModelError as error:
            self._tokens = Tokens({})
            _LOG.error("nobody is let in any more", extra={"told": {"error": str(error)}})  # one line

    def find(self, header: str | None) -> Token | None:
        """As `Tokens.find`."""
        return self._tokens.find(header)

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def add_token(
    path: Path, name: str, *, scopes: Sequence[str] = tuple(sorted(_USUAL)), expires: datetime | None = None
) -> str:
    """Make a token, add its hash to a file, and give it: it cannot be had again.

    Args:
        path: The file; made if it is not there, for its owner only.
        name: Whose the token is; letters, digits, dots and dashes.
        scopes: What it may do, some of `SCOPES`.
        expires: The moment from which on it is worth nothing; None for never.

    Raises:
        CostModelError: The name is taken or not valid, a scope is not known, or the file cannot be written.
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
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":  # somebody's editor left it so
                file.write(b"\n")
            file.write(f"{line}\n".encode())
    except OSError as error:
        raise CostModelError(f"{path} cannot be written ({error.strerror}): check its folder") from error
    return token


def _token(name: str, options: Sequence[str]) -> Token:
    scopes, expires = _USUAL, None
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
