"""Who is let in: tokens and their scopes, and without tokens this host only."""

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from costmodel.serving.http.tokens import Token, TokenFile
from costmodel.serving.wire.problems import Problem

__all__ = ["OPEN_PREFIX", "Access"]

# Open to everybody: they say nothing of models or systems. The page asks for the token itself.
_OPEN = frozenset({"/healthz", "/readyz", "/", "/systems"})
OPEN_PREFIX = "/static/"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_CHALLENGE = 'Bearer realm="costmodel"'


class Access:
    """Decides about requests by their address, host and token; whatever it cannot tell is refused."""

    def __init__(self, tokens: TokenFile | None, *, insecure: bool, hosts: Sequence[str]) -> None:
        """Let in whoever the settings say.

        Args:
            tokens: Who has a token; None lets in whoever is on this host.
            insecure: Whether, without tokens, every address is let in.
            hosts: Names in Host headers that are answered; empty for all, or without tokens those of this host.
        """
        self._tokens = tokens
        self._insecure = insecure
        self._hosts = frozenset(host.lower() for host in hosts) or (
            None if tokens is not None or insecure else frozenset(_LOCAL_HOSTS)
        )

    @property
    def tells_owners_apart(self) -> bool:
        """Whether there are tokens, so that what there is has to be shared."""
        return self._tokens is not None

    def admit(self, scope: Scope, headers: Headers) -> Token | None:
        """The token that a request came with; None where none is needed.

        Raises:
            Problem: The request is not answered.
        """
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        open_to_all = path in _OPEN or path.startswith(OPEN_PREFIX)
        if self._hosts is not None and _host_of(headers) not in self._hosts and not _is_probe(path):
            # A page of somebody else's whose name was made to lead here (DNS rebinding) asks by that name.
            raise Problem(421, "wrong-host", "this service is not known by that name: ask for it by its own")
        if open_to_all:
            return None
        if self._tokens is None:
            if self._insecure or _is_loopback(scope):
                return None
            raise Problem(
                401, "unauthorized", "without tokens this service answers its own host only: give it some",
                headers={"WWW-Authenticate": _CHALLENGE},
            )  # fmt: skip
        given = headers.get("authorization")
        token = self._tokens.find(given)
        if token is None:
            challenge = _CHALLENGE if given is None else f'{_CHALLENGE}, error="invalid_token"'
            raise Problem(
                401, "unauthorized",
                "send a token that the operator of this service gave you: Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": challenge},
            )  # fmt: skip
        scope_needed = _scope_of(path)
        if scope_needed is not None and not token.allows(scope_needed):
            raise Problem(
                403, "forbidden", f"your token may not do that: ask for one with the scope {scope_needed}",
                headers={"WWW-Authenticate": f'{_CHALLENGE}, error="insufficient_scope", scope="{scope_needed}"'},
            )  # fmt: skip
        return token


def _scope_of(path: str) -> str | None:
    """What a token needs for a path; None where any token will do."""
    if path == "/metrics":
        return "metrics"
    if path.startswith("/v1/observations"):
        return "observe"
    return "predict" if path.startswith("/v1/") else None


def _host_of(headers: Headers) -> str:
    host = headers.get("host", "").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_probe(path: str) -> bool:
    """Whether it is one that orchestrators ask by the address of a container."""
    return path in ("/healthz", "/readyz")


def _is_loopback(scope: Scope) -> bool:
    """Whether somebody asks from this host; a socket in the file system, which a proxy may be behind, does not say."""
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False
