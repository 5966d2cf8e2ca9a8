"""Access control: bearer tokens with scopes or, if the service has no tokens, clients on this host only."""

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from costmodel.serving.http.tokens import Token, TokenFile
from costmodel.serving.wire.problems import Problem

__all__ = ["OPEN_PREFIX", "Access"]

# Paths that need no token, because they reveal nothing about models or systems. The web page asks for the token itself.
_PUBLIC = frozenset({"/healthz", "/readyz", "/", "/systems"})
OPEN_PREFIX = "/static/"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_CHALLENGE = 'Bearer realm="costmodel"'


class Access:
    """Access rules of the service: a request is admitted by its client address, Host header and token."""

    def __init__(self, tokens: TokenFile | None, *, insecure: bool, hosts: Sequence[str]) -> None:
        """Sets up the access rules.

        Args:
            tokens: Tokens that are accepted; None to accept clients on this host without a token.
            insecure: Whether, without tokens, clients of every address are accepted.
            hosts: Accepted names in Host headers. If empty, every name is accepted if there are tokens or `insecure` is
                set, and otherwise only the names of this host.
        """
        self._tokens = tokens
        self._insecure = insecure
        self._hosts = frozenset(host.lower() for host in hosts) or (
            None if tokens is not None or insecure else frozenset(_LOCAL_HOSTS)
        )

    @property
    def has_tokens(self) -> bool:
        """Whether there are tokens, so that several owners share the service."""
        return self._tokens is not None

    def admit(self, scope: Scope, headers: Headers) -> Token | None:
        """Returns the token that a request came with; None if the request needs no token.

        Raises:
            Problem: The request is not admitted: 401 without a valid token, 403 without the required scope, or 421
                because of the Host header.
        """
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        is_public = path in _PUBLIC or path.startswith(OPEN_PREFIX)
        if self._hosts is not None and _host_of(headers) not in self._hosts and not _is_probe(path):
            # Protects against DNS rebinding: a foreign page whose name resolves to this host sends that name.
            raise Problem(421, "wrong-host", "the Host header does not name this service: use its own name")
        if is_public:
            return None
        if self._tokens is None:
            if self._insecure or _is_loopback(scope):
                return None
            raise Problem(
                401, "unauthorized", "without tokens this service answers clients on its own host only: add a token",
                headers={"WWW-Authenticate": _CHALLENGE},
            )  # fmt: skip
        authorization = headers.get("authorization")
        token = self._tokens.find(authorization)
        if token is None:
            challenge = _CHALLENGE if authorization is None else f'{_CHALLENGE}, error="invalid_token"'
            raise Problem(
                401, "unauthorized",
                "send a token that the operator of this service gave you: Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": challenge},
            )  # fmt: skip
        required_scope = _required_scope(path)
        if required_scope is not None and not token.allows(required_scope):
            raise Problem(
                403, "forbidden", f"your token may not do that: ask for one with the scope {required_scope}",
                headers={"WWW-Authenticate": f'{_CHALLENGE}, error="insufficient_scope", scope="{required_scope}"'},
            )  # fmt: skip
        return token


def _required_scope(path: str) -> str | None:
    """Returns the scope that a token must have for requests to a URL path; None if any token is sufficient."""
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
    """Returns whether a URL path is that of a health probe; a probe's Host header is the address of a container."""
    return path in ("/healthz", "/readyz")


def _is_loopback(scope: Scope) -> bool:
    """Returns whether the client is on this host; false for a Unix socket: a proxy may use it for remote clients."""
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False
