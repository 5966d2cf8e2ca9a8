"""Reads the system labels of nodes from the API server of a Kubernetes cluster."""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from costmodel.errors import KubernetesError, MissingExtraError
from costmodel.serving.extender.objective import SYSTEM_LABEL

try:
    import httpx
except ImportError as error:
    raise MissingExtraError("the scheduler extender", "serve") from error

__all__ = ["ClusterNodes", "ServiceAccount", "cluster_url", "connect"]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Asks for the metadata of nodes only: whole nodes are about ten times as long.
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_PAGE = 500


class ServiceAccount(httpx.Auth):
    """The service account of the pod that this process runs in.

    Its token is read for each request, because Kubernetes replaces it every hour.
    """

    def __init__(self, folder: Path = _ACCOUNT) -> None:
        """Stores the folder into which Kubernetes mounts the service account; it need not exist."""
        self._folder = folder

    def verification(self) -> ssl.SSLContext | bool:
        """Returns how the certificate of the API server is verified: by the authority of the cluster, if known."""
        authority = self._folder / "ca.crt"
        return ssl.create_default_context(cafile=str(authority)) if authority.exists() else True

    def auth_flow(self, request: httpx.Request) -> Any:
        """Adds the token of the service account to a request, if there is one."""
        token = self._folder / "token"
        if token.exists():
            request.headers["authorization"] = f"Bearer {token.read_text().strip()}"
        yield request


def cluster_url() -> str | None:
    """Returns the URL of the API server of the cluster that this process runs in; None outside of a cluster."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class ClusterNodes:
    """The system labels of the nodes of a cluster, cached briefly; several threads may read them at once.

    After a request that failed, the API server is not asked again for a few seconds, and the labels that were read
    before it remain in use.
    """

    def __init__(
        self, http: httpx.Client, *, cache_s: float, pause_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepares the reader without a request.

        Args:
            http: HTTP client whose base URL is that of the API server.
            cache_s: Number of seconds for which the labels are cached.
            pause_s: Number of seconds after a failed request during which the API server is not asked.
            clock: Returns the time in seconds.
        """
        self._http = http
        self._cache_s = cache_s
        self._pause_s = pause_s
        self._clock = clock
        self._next_s: float | None = None
        self._labels: Mapping[str, str] | None = None
        self._failure = ""
        self._lock = Lock()

    def systems(self) -> Mapping[str, str]:
        """Returns the name of the system of each node that has a system label, by name of the node.

        Raises:
            KubernetesError: The API server does not respond, or does not allow nodes to be listed, and it never has.
        """
        with self._lock:  # one thread asks, the others wait for its answer
            if self._next_s is None or self._clock() >= self._next_s:
                try:
                    self._labels = self._list()
                    self._next_s = self._clock() + self._cache_s
                except KubernetesError as error:
                    self._failure = str(error)
                    self._next_s = self._clock() + self._pause_s
            if self._labels is None:
                raise KubernetesError(self._failure)
            return self._labels

    def _list(self) -> Mapping[str, str]:
        parameters: dict[str, str | int] = {"labelSelector": SYSTEM_LABEL, "limit": _PAGE}
        found: dict[str, str] = {}
        try:
            while True:
                response = self._http.get("/api/v1/nodes", params=parameters, headers={"accept": _METADATA})
                response.raise_for_status()
                page = response.json()
                for item in page.get("items") or ():
                    found[item["metadata"]["name"]] = item["metadata"]["labels"][SYSTEM_LABEL]
                following = page.get("metadata", {}).get("continue")
                if not following:
                    return found
                parameters["continue"] = following
        except (httpx.HTTPError, ValueError, KeyError, OSError) as error:
            raise KubernetesError(
                f"the nodes of the cluster cannot be listed ({error}): the service account needs the verb list on nodes"
            ) from error


def connect(url: str, *, timeout_s: float, cache_s: float, pause_s: float) -> ClusterNodes:
    """Returns a reader of the nodes of a cluster, which uses the service account of this pod; it opens no connection.

    Args:
        url: URL of the API server.
        timeout_s: Network timeout of a request in seconds.
        cache_s: Number of seconds for which the labels are cached.
        pause_s: Number of seconds after a failed request during which the API server is not asked.

    Raises:
        KubernetesError: `url` is not a URL.
    """
    if not url.startswith(("https://", "http://")):
        raise KubernetesError(
            f"{url!r} is not the URL of an API server: give one such as https://kubernetes.default.svc"
        )
    account = ServiceAccount()
    http = httpx.Client(base_url=url, auth=account, verify=account.verification(), timeout=timeout_s)
    return ClusterNodes(http, cache_s=cache_s, pause_s=pause_s)
