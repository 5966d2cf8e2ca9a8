"""A client of the service: this one file and httpx, so that it can be taken along where costmodel is not installed.

client = Client("http://127.0.0.1:8000")
client.predict("model.onnx", system="c5.xlarge").latency_us
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

__all__ = ["BulkItem", "Client", "Prediction", "ServiceError"]

_FILE = "application/octet-stream"


class ServiceError(Exception):
    """The service gave no answer, or a problem instead of one.

    Attributes:
        status: Of HTTP; None where there was no answer.
        kind: Last part of the problem's type, such as "unknown-system"; "" where there was no answer.
        retry_after_s: After which to ask again, if the service said so.
    """

    def __init__(
        self, message: str, status: int | None = None, kind: str = "", retry_after_s: float | None = None
    ) -> None:
        """With the sentence of the service."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Prediction:
    """What a model will cost on a system.

    Attributes:
        model: Its name.
        digest: By which the service knows it: it need not be sent again.
        system: Where it would run.
        latency_us: Of back-to-back runs on the quiet machine.
        interval_us: Where it lies with probability `interval_level`.
        interval_level: For example 0.9.
        quantiles_us: What users will see: "p50", "p90", "p99", where that is known.
        coverage: Share of the latency by source: "measured", "predicted", "extrapolated".
        version: Of the regressor that answered.
        warnings: What the reader should know.
        document: The whole answer, with its layers.
    """

    model: str
    digest: str
    system: str
    latency_us: float
    interval_us: tuple[float, float]
    interval_level: float
    quantiles_us: Mapping[str, float]
    coverage: Mapping[str, float]
    version: str
    warnings: Sequence[str]
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Of an answer."""
        low, high = document["interval_us"]
        return cls(
            model=document["model"],
            digest=document["digest"],
            system=document["system"],
            latency_us=document["latency_us"],
            interval_us=(low, high),
            interval_level=document["interval_level"],
            quantiles_us=document["quantiles_us"],
            coverage=document["coverage"],
            version=document["predictor"]["version"],
            warnings=document["warnings"],
            document=document,
        )


@dataclass(frozen=True)
class BulkItem:
    """What one of many models will cost, or why that is not known.

    Attributes:
        name: As asked.
        latency_us: None where there is an error.
        interval_us: None where there is an error.
        coverage: Share of the latency by source; None where there is an error.
        error: One sentence; None where there is an answer.
    """

    name: str
    latency_us: float | None
    interval_us: tuple[float, float] | None
    coverage: Mapping[str, float] | None
    error: str | None


class Client:
    """Asks one service; not to be shared between threads while it is closed."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Of the service, "https://costmodel.example.org".
            token: That the operator of the service gave out.
            timeout_s: For each answer.
            transport: How to get there, where that is not the network.

        Raises:
            ServiceError: That is no URL.
        """
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
        except httpx.InvalidURL as error:
            raise ServiceError(f"{url!r} is not the URL of a service ({error})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def predict(
        self,
        model: str | Path | bytes | Mapping[str, Any],
        *,
        system: str | None = None,
        name: str | None = None,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        granularity: int = 1,
        composition: str = "sequential",
        partial: bool = False,
        measured: bool = True,
        version: str | None = None,
    ) -> Prediction:
        """What a model will cost.

        A file is sent only where the service has not seen it before.

        Args:
            model: Path or content of an ONNX file, "sha256:..." of one that was sent before, or a graph of layers.
            system: Where it would run; may be left out where the service knows one system only.
            name: What to call it.
            batch: Size of the batch, where it is symbolic.
            shapes: Of inputs, by name.
            granularity: The most layers in a sequence.
            composition: "sequential", "parallel" or "workers:N".
            partial: Answer even if layers have no cost.
            measured: Whether to use measurements; without them every cost is predicted.
            version: Of the regressor that is to answer; by default the champion.

        Raises:
            ServiceError: There is no answer.
            OSError: The file cannot be read.
        """
        options: dict[str, Any] = {
            "batch": batch, "granularity": granularity, "composition": composition, "partial": partial,
            "measured": measured, "system": system,
        }  # fmt: skip
        title = name or (Path(model).stem if isinstance(model, str | Path) and not _is_digest(model) else "model")
        asked = {key: value for key, value in options.items() if value is not None} | {"name": title}
        if shapes:
            asked["shapes"] = {key: list(shape) for key, shape in shapes.items()}
        pinned = {"version": version} if version else {}
        if isinstance(model, Mapping):
            return Prediction.of(self._post("/v1/predict", pinned, json=asked | {"graph": model}))
        if _is_digest(model):
            return Prediction.of(self._post("/v1/predict", pinned, json=asked | {"model": str(model)}))
        content = model if isinstance(model, bytes) else Path(str(model)).read_bytes()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        try:
            return Prediction.of(self._post("/v1/predict", pinned, json=asked | {"model": digest}))
        except ServiceError as error:
            if error.kind != "unknown-model":
                raise
        asked.pop("shapes", None)
        query: list[tuple[str, str]] = [(key, _text(value)) for key, value in (asked | pinned).items()]
        query += [("shape", f"{key}={','.join(map(str, shape))}") for key, shape in (shapes or {}).items()]
        return Prediction.of(self._post("/v1/predict", query, content=content, headers={"content-type": _FILE}))

    def predict_bulk(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        layers: Sequence[Mapping[str, Any]] = (),
        system: str | None = None,
        measured: bool = True,
    ) -> list[BulkItem]:
        """What many models will cost.

        Args:
            items: Each with "layers" (positions in `layers`), "model" ("sha256:...") or "graph", and a "name".
            layers: Layer sequences, or {"signature": ...} of known ones.
            system: Where they would run.
            measured: Whether to use measurements.

        Raises:
            ServiceError: There is no answer at all; an item without one has its own error.
        """
        asked: dict[str, Any] = {"items": list(items), "layers": list(layers), "measured": measured}
        if system is not None:
            asked["system"] = system
        answer = self._post("/v1/predict/bulk", {}, json=asked)
        return [
            BulkItem(
                item["name"], item.get("latency_us"),
                (item["interval_us"][0], item["interval_us"][1]) if item.get("interval_us") else None,
                item.get("coverage"), item.get("error"),
            )
            for item in answer["items"]
        ]  # fmt: skip

    def rank(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        systems: Sequence[str] | None = None,
        slo_us: float | None = None,
        quantile: str = "p50",
        usd_per_hour: Mapping[str, float] | None = None,
    ) -> Mapping[str, Any]:
        """Which system meets a latency objective, and at what price; or which of several models does.

        Args:
            models: Each with "model" or "graph", and a "name".
            systems: That may be chosen; by default all.
            slo_us: The latency that is not to be exceeded.
            quantile: Which latency that is: "p50", "p90", "p99", or "quiet".
            usd_per_hour: Prices of systems.

        Raises:
            ServiceError: There is no answer.
        """
        asked: dict[str, Any] = {"models": list(models), "quantile": quantile, "usd_per_hour": dict(usd_per_hour or {})}
        if systems is not None:
            asked["systems"] = list(systems)
        if slo_us is not None:
            asked["slo_us"] = slo_us
        return self._post("/v1/rank", {}, json=asked)

    def observe(
        self,
        digest: str,
        latency_us: float,
        *,
        system: str,
        name: str = "model",
        runs: int | None = None,
        **options: Any,
    ) -> Mapping[str, Any]:
        """Tell the service a latency that users saw.

        Args:
            digest: Of a model that was sent before.
            latency_us: As users saw it.
            system: Where.
            name: Of the model.
            runs: That it is the average of.
            options: As in `predict`: batch, shapes, granularity, composition.

        Raises:
            ServiceError: It was not stored.
        """
        asked = {"model": digest, "latency_us": latency_us, "system": system, "name": name, **options}
        if runs is not None:
            asked["runs"] = runs
        return self._post("/v1/observations", {}, json=asked)

    def systems(self) -> list[Mapping[str, Any]]:
        """The systems that the service answers for.

        Raises:
            ServiceError: There is no answer.
        """
        found: list[Mapping[str, Any]] = self._answer("GET", "/v1/systems")["systems"]
        return found

    def models(self) -> list[Mapping[str, Any]]:
        """The regressors that the service has.

        Raises:
            ServiceError: There is no answer.
        """
        found: list[Mapping[str, Any]] = self._answer("GET", "/v1/models")["models"]
        return found

    def _post(self, path: str, query: Any, **body: Any) -> Mapping[str, Any]:
        return self._answer("POST", path, params=query, **body)

    def _answer(self, method: str, path: str, **asked: Any) -> Mapping[str, Any]:
        try:
            response = self._http.request(method, path, **asked)
        except httpx.HTTPError as error:
            raise ServiceError(
                f"{self._http.base_url} does not answer ({error}): check the address, and that it runs"
            ) from error
        try:
            document = response.json()
        except ValueError as error:
            raise ServiceError(
                f"{self._http.base_url} is no costmodel service (status {response.status_code}): check the address",
                response.status_code,
            ) from error
        if response.is_success and isinstance(document, dict):
            return document
        problem = document if isinstance(document, dict) else {}
        after = response.headers.get("retry-after", "")
        raise ServiceError(
            str(problem.get("detail") or f"the service answered with status {response.status_code}"),
            response.status_code,
            str(problem.get("type", "")).rpartition(":")[2],
            float(after) if after.isdigit() else None,
        )


def _is_digest(model: object) -> bool:
    return isinstance(model, str) and model.startswith("sha256:")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
