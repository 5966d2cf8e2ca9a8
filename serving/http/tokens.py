"""Bearer tokens: 256 random bits each, kept as hashes, compared in constant time."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costmodel.errors import CostModelError

__all__ = ["TokenFile", "Tokens", "add_token"]

_PREFIX = "cm_"


@dataclass(frozen=True)
class Tokens:
    """Those that are let in.

    Attributes:
        names: Of whom each belongs to, by the SHA-256 of the token. A fast hash will do: there is nothing to guess in
            256 random bits.
    """

    names: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Tokens":
        """Those in a file, one a line: a name, a space, the hash.

        Raises:
            CostModelError: It cannot be read, or is no such file.
        """
        try:
            lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
            names = {digest: name for name, digest in lines}
        except (OSError, ValueError) as error:
            raise CostModelError(
                f"{path} cannot be read as tokens ({error}): make it with `costmodel token`"
            ) from error
        if any(len(digest) != 64 for digest in names):
            raise CostModelError(f"{path} holds a hash that is none: make it anew with `costmodel token`")
        return cls(names)

    def owner(self, header: str | None) -> str | None:
        """Whose token an Authorization header carries; None if it is nobody's."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = _digest(token.strip())
        found = None
        for known, name in self.names.items():  # all of them, so that the time says nothing
            if hmac.compare_digest(known, digest):
                found = name
        return found


class TokenFile:
    """Those of a file, as it is now: a line that is deleted is a token that is revoked."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            CostModelError: It cannot be read, or is no such file.
        """
        self._path = path
        self._stamp = self._stamped()
        self._tokens = Tokens.read(path)

    def refresh(self) -> None:
        """Read it again if it was written to.

        Raises:
            CostModelError: It cannot be read; those that were known stay.
        """
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            self._tokens = Tokens.read(self._path)

    def owner(self, header: str | None) -> str | None:
        """As `Tokens.owner`."""
        return self._tokens.owner(header)

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def add_token(path: Path, name: str) -> str:
    """Make a token, add its hash to a file, and give it: it cannot be had again.

    Args:
        path: Of the file; made if it is not there, for its owner only.
        name: Whose it is; letters, digits, dots and dashes.

    Raises:
        CostModelError: The name is taken or not valid, or the file cannot be written.
    """
    if not name or not all(c.isalnum() or c in ".-_" for c in name):
        raise CostModelError(f"{name!r} is no name for a token: use letters, digits, dots and dashes")
    known = Tokens.read(path).names if path.exists() else {}
    if name in known.values():
        raise CostModelError(f"{path} has a token of {name}: delete its line to revoke it, or choose another name")
    token = _PREFIX + secrets.token_urlsafe(32)
    try:
        path.touch(mode=0o600)
        with path.open("a") as file:
            file.write(f"{name} {_digest(token)}\n")
    except OSError as error:
        raise CostModelError(f"{path} cannot be written ({error.strerror}): check its folder") from error
    return token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
