"""A client of a costmodel service: this file needs only httpx, and works where costmodel is not installed.

client = Client("http://127.0.0.1:8000")
client.predict("model.onnx", system="c5.xlarge").latency_us
"""

import hashlib
import io
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

__all__ = ["BulkItem", "Client", "Prediction", "ServiceError"]

_FILE = "application/octet-stream"
# Statuses with which a service, or a proxy in front of it, says that it cannot answer now.
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
# A proxy answers these when it has passed the request on and got no answer.
_LOST_STATUSES = frozenset({502, 504})
_UNSENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_RETRIED_ERRORS = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError, httpx.ProxyError)
# Bounds of the waits before repetitions where the service sends no Retry-After; each wait is twice the one before.
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 8.0
_LARGEST_PAGE = 1000  # maximum number of entries that the service puts on one page

Model = str | Path | bytes | Mapping[str, Any]


class ServiceError(Exception):
    """A failed request: the service did not respond, or responded with an error.

    Attributes:
        status: HTTP status code of the response; None if there was no response.
        kind: Kind of the error, which is the last part of the "type" in the response, such as "unknown-system"; "" if
            it has none or there was no response.
        retry_after_s: Seconds after which the service asks to repeat the request; None if it did not say.
        request_id: Identifier of the request in the service's log; "" if the response has none or there was no
            response.
        answer_lost: Whether the answer to the same request was lost before, so that it may have been obeyed already.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        kind: str = "",
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        """Stores the error message and the details of the response, as in the attributes of the class."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.answer_lost = False


@dataclass(frozen=True)
class Prediction:
    """The predicted latency of a model on a system.

    Attributes:
        model: Name of the model.
        digest: Digest of the model; pass it instead of the file in later requests.
        system: Name of the system.
        latency_us: Latency in microseconds of runs without pauses between them, while nothing else uses the machine.
        interval_us: Lower and upper bound of the latency in microseconds, between which it lies with probability
            `interval_level`.
        interval_level: Probability that the latency lies in the interval, such as 0.9.
        quantiles_us: Quantiles in microseconds, as far as they are known, of the latencies that users will observe, by
            name: "p50", "p90", "p99".
        coverage: Share of the latency by source: "measured", "predicted", "extrapolated".
        version: Version of the regressor that priced the layers without a measurement; "none" if there is no regressor.
        peak_memory_bytes: Peak resident memory in bytes of a process that runs the model; None if it is not known.
        peak_memory_interval_bytes: Lower and upper bound of `peak_memory_bytes`; None if it is not known.
        load_time_us: Time in microseconds to load the model in a new process; None if it is not known.
        load_time_interval_us: Lower and upper bound of `load_time_us`; None if it is not known.
        first_run_us: Latency in microseconds of the first run after loading; None if it is not known.
        first_run_interval_us: Lower and upper bound of `first_run_us`; None if it is not known.
        warnings: Sentences about limits of this prediction.
        document: The whole response as a JSON document, layers included.
        etag: Entity tag (HTTP ETag) of the response, with which `Client.prediction` asks whether it has changed; None
            if there is none.
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
    peak_memory_bytes: int | None
    peak_memory_interval_bytes: tuple[int, int] | None
    load_time_us: float | None
    load_time_interval_us: tuple[float, float] | None
    first_run_us: float | None
    first_run_interval_us: tuple[float, float] | None
    warnings: Sequence[str]
    document: Mapping[str, Any]
    etag: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any], etag: str | None = None) -> Self:
        """Builds a prediction from the JSON document of a response and the response's entity tag `etag`."""
        low, high = document["interval_us"]

        def bounds(name: str) -> tuple[Any, Any] | None:
            found = document.get(name)
            return (found[0], found[1]) if found else None

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
            peak_memory_bytes=document.get("peak_memory_bytes"),
            peak_memory_interval_bytes=bounds("peak_memory_interval_bytes"),
            load_time_us=document.get("load_time_us"),
            load_time_interval_us=bounds("load_time_interval_us"),
            first_run_us=document.get("first_run_us"),
            first_run_interval_us=bounds("first_run_interval_us"),
            warnings=document["warnings"],
            document=document,
            etag=etag,
        )


@dataclass(frozen=True)
class BulkItem:
    """One result of a request about many models: the predicted latency of a model, or the reason why there is none.

    Attributes:
        name: Name that the request gave to the model; by default "item" and its position in the request.
        latency_us: Latency in microseconds; None if there is an error.
        interval_us: Lower and upper bound of the latency in microseconds; None if there is an error.
        coverage: Share of the latency by source; None if there is an error.
        error: Reason why there is no prediction, one sentence; None if there is one.
    """

    name: str
    latency_us: float | None
    interval_us: tuple[float, float] | None
    coverage: Mapping[str, float] | None
    error: str | None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """Builds a result from one entry of the list "items" in the JSON document of a response."""
        interval = item.get("interval_us")
        return cls(
            item["name"], item.get("latency_us"), (interval[0], interval[1]) if interval else None,
            item.get("coverage"), item.get("error"),
        )  # fmt: skip


class Client:
    """A thread-safe client of one costmodel service.

    A request is repeated if the service or the network does not respond, or if the service says that it cannot answer
    now. It is repeated after the time that the service names (Retry-After), or else after growing waits. This is safe,
    because all requests are idempotent; an observation has a key under which the service stores it once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 4,
        retry_s: float = 60.0,
        page_size: int = _LARGEST_PAGE,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepares a client without opening a connection yet.

        Args:
            url: URL of the service, such as "https://costmodel.example.org".
            token: Token from the operator of the service; None if the service needs none.
            timeout_s: Network timeout of each attempt, in seconds.
            retries: Maximum number of times that a request is repeated; 0 for never.
            retry_s: Number of seconds since a request was first sent after which it is not repeated any more.
            page_size: Number of entries to ask for at a time when models or observations are listed, up to 1000.
            transport: Replacement for the network transport of httpx.
            sleep: Function that waits for a given number of seconds.

        Raises:
            ServiceError: `url` is not a URL.
        """
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
        except httpx.InvalidURL as error:
            raise ServiceError(f"{url!r} is not the URL of a service ({error})") from error
        self._retries = retries
        self._page_size = page_size
        self._retry_s = retry_s
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections to the service."""
        self._http.close()

    # Predictions

    def predict(
        self,
        model: Model,
        *,
        system: str | None = None,
        name: str | None = None,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, float] | None = None,
        granularity: int = 1,
        composition: str = "sequential",
        partial: bool = False,
        measured: bool = True,
        version: str | None = None,
        beside: Sequence[Mapping[str, Any]] = (),
    ) -> Prediction:
        """Predicts the latency of a model.

        A file is sent only if the service does not have it yet.

        Args:
            model: Path or content of an ONNX file, the digest ("sha256:...") of a file that was sent before, or a graph
                of layers as a JSON document.
            system: Name of the system; optional if the service knows only one.
            name: Name to use for the model in the response; by default the stem of its path.
            batch: Batch size to use where the model leaves it symbolic.
            shapes: Full shape of each input, by name of the input.
            values: Values of inputs that control what the model does, such as a flag that chooses a branch, by name of
                the input, which becomes a constant.
            granularity: Maximum number of layers in a sequence.
            composition: Composition rule: "sequential", "parallel" or "workers:N".
            partial: Whether to return an estimate even if layers have no cost; if false, that is an error.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.
            version: Version of the regressor to predict with; by default that of the system's champion.
            beside: Models that run at the same time on CPUs of their own, each a mapping with "model" (the digest of a
                model that was sent before), and optionally with "name", "batch" and "shapes".

        Raises:
            ServiceError: The service does not respond, or responds with an error.
            OSError: The file cannot be read.
        """
        options = {
            "system": system, "name": name or _title(model), "batch": batch, "shapes": shapes, "values": values,
            "granularity": granularity, "composition": composition, "partial": partial, "measured": measured,
            "beside": list(beside) or None,
        }  # fmt: skip
        if beside and not isinstance(model, Mapping) and not _is_digest(model):
            model = self.send_model(model)  # a file in the body leaves no room for the other models
        return _prediction(self._ask_about(model, "/v1/predict", options, version))

    def prediction(self, digest: str, *, known: Prediction | None = None, **options: Any) -> Prediction:
        """Predicts the latency of a model that was sent before; returns `known` if the prediction has not changed.

        Args:
            digest: Digest of the model.
            known: Earlier prediction for the same model and options; its entity tag is sent with the request, so that
                the service need not send an unchanged prediction again.
            options: Keyword arguments, as in `predict`.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        headers = {"if-none-match": known.etag} if known is not None and known.etag else {}
        response = self._ask("GET", _path("models", digest, "prediction"), params=_query(options), headers=headers)
        if response.status_code == 304 and known is not None:
            return known
        return _prediction(response)

    def predict_bulk(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        layers: Sequence[Mapping[str, Any]] = (),
        system: str | None = None,
        measured: bool = True,
        version: str | None = None,
    ) -> list[BulkItem]:
        """Predicts the latencies of many models in one request.

        Args:
            items: Models, each a mapping with one of "layers" (positions in `layers`), "model" (the digest of a model
                that was sent before, "sha256:...") or "graph" (a graph of layers), and with a "name".
            layers: Layer sequences that `items` refer to by position, as JSON documents; {"signature": ...} for one
                that the service knows.
            system: Name of the system; optional if the service knows only one.
            measured: Whether to use measurements where there are any; if false, every cost is predicted.
            version: Version of the regressor to predict with; by default that of the system's champion.

        Raises:
            ServiceError: The whole request failed; why a single model failed is in its `BulkItem.error`.
        """
        body: dict[str, Any] = {"items": list(items), "layers": list(layers), "measured": measured}
        if system is not None:
            body["system"] = system
        answer = self._post("/v1/predict/bulk", body, params=_query({"version": version})).json()
        return [BulkItem.of(item) for item in answer["items"]]

    def rank(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        systems: Sequence[str] | None = None,
        slo_us: float | None = None,
        quantile: str = "p50",
        memory_bytes: int | None = None,
        arrivals_per_s: float | None = None,
        usd_per_hour: Mapping[str, float] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Ranks systems and models by whether they fit, whether they meet a latency objective, and by price.

        Args:
            models: Models, each a mapping with "model" (the digest of a model that was sent before, "sha256:...") or
                "graph" (a graph of layers), and with a "name".
            systems: Names of the systems to choose among; by default all.
            slo_us: Latency in microseconds that must not be exceeded; None for no objective.
            quantile: Quantile of the latency that must not exceed `slo_us`: "p50", "p90" or "p99"; "quiet" for the
                latency on the quiet machine.
            memory_bytes: Memory in bytes that a process may take; None for no limit.
            arrivals_per_s: Requests a second to carry within the objective, on as many replicas as it takes; None for
                one request at a time.
            usd_per_hour: Price of a system in US dollars an hour, by name of the system; by default the price in the
                service's catalogue.
            versions: Version of the regressor to predict with, by name of the system; by default that of the system's
                champion.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        body: dict[str, Any] = {
            "models": list(models), "quantile": quantile, "usd_per_hour": dict(usd_per_hour or {}),
            "versions": dict(versions or {}),
        }  # fmt: skip
        if systems is not None:
            body["systems"] = list(systems)
        if slo_us is not None:
            body["slo_us"] = slo_us
        if memory_bytes is not None:
            body["memory_bytes"] = memory_bytes
        if arrivals_per_s is not None:
            body["arrivals_per_s"] = arrivals_per_s
        return _document(self._post("/v1/rank", body))

    def capacity(
        self,
        model: Model,
        *,
        scenario: str = "server",
        percentile: float | None = None,
        slo_us: float | None = None,
        arrivals_per_s: float | None = None,
        replicas: int | None = None,
        max_batch: int | None = None,
        max_wait_us: float | None = None,
        usd_per_hour: float | None = None,
        version: str | None = None,
        **options: Any,
    ) -> Mapping[str, Any]:
        """Asks how much traffic a model carries on a system within a latency objective, and what that costs.

        A file is sent only if the service does not have it yet.

        Args:
            model: Model, as in `predict`.
            scenario: Scenario of MLPerf: "server", "offline", "single-stream" or "multi-stream".
            percentile: Percentile of the latency that `slo_us` limits, from 50 to 99.9; by default 99.
            slo_us: Latency objective in microseconds, which the scenario "server" needs.
            arrivals_per_s: Requests a second that are to be carried; None to ask for the highest rate only.
            replicas: Number of replicas; by default as many as the arrivals need.
            max_batch: Largest number of requests that are joined to a batch; by default one.
            max_wait_us: Longest time in microseconds for which a request waits for a batch; by default none.
            usd_per_hour: Price of a machine in US dollars an hour; by default that of the service's catalogue.
            version: Version of the regressor to predict with; by default that of the system's champion.
            options: Keyword arguments, as in `predict`: system, name, shapes, values, measured.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
            OSError: The file cannot be read.
        """
        asked = {
            "scenario": scenario, "percentile": percentile, "slo_us": slo_us, "arrivals_per_s": arrivals_per_s,
            "replicas": replicas, "max_batch": max_batch, "max_wait_us": max_wait_us, "usd_per_hour": usd_per_hour,
        }  # fmt: skip
        return _document(self._ask_about(model, "/v1/capacity", {**options, **asked}, version))

    def tune(
        self,
        model: Model,
        *,
        objective: str = "latency",
        percentile: float | None = None,
        slo_us: float | None = None,
        max_batch: int | None = None,
        int8: str | None = None,
        usd_per_hour: float | None = None,
        version: str | None = None,
        **options: Any,
    ) -> Mapping[str, Any]:
        """Asks under which settings a model runs best on the host of a system, by prediction.

        A file is sent only if the service does not have it yet.

        Args:
            model: Model, as in `predict`.
            objective: What is to be best: "latency", "throughput" or "cost".
            percentile: Percentile of the latency that `slo_us` limits, from 50 to 99.9; by default 99.
            slo_us: Latency in microseconds that a run must not exceed; None for no objective.
            max_batch: Largest batch size to try for throughput and cost; by default one.
            int8: Digest of the int8 version of the model, which was sent before; None if there is none.
            usd_per_hour: Price of the machine in US dollars an hour; by default that of the service's catalogue.
            version: Version of the regressor to predict with; by default that of the system's champion.
            options: Keyword arguments, as in `predict`: system, name, shapes, values, measured.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
            OSError: The file cannot be read.
        """
        asked = {
            "objective": objective, "percentile": percentile, "slo_us": slo_us, "max_batch": max_batch, "int8": int8,
            "usd_per_hour": usd_per_hour,
        }  # fmt: skip
        return _document(self._ask_about(model, "/v1/tune", {**options, **asked}, version))

    # Models

    def send_model(self, model: str | Path | bytes) -> str:
        """Sends an ONNX file to the service, unless the service has it already; requests no prediction.

        Args:
            model: Path or content of the file.

        Returns:
            Digest of the model; it depends on the content of the file alone.

        Raises:
            ServiceError: The service refuses the file or does not respond.
            OSError: The file cannot be read.
        """
        with _opened(model) as file:
            try:
                return str(self.model(_content_hash(file))["digest"])
            except ServiceError as error:
                if error.kind != "unknown-model":
                    raise
            return str(_document(self._send_file("/v1/models", file))["digest"])

    def models(self) -> Iterator[Mapping[str, Any]]:
        """Iterates over descriptions of the models that the owner of this client's token has sent.

        Models that the service does not have any more are left out.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._pages("models", "after")

    def model(self, digest: str) -> Mapping[str, Any]:
        """Returns the service's description of a model that the owner of this client's token has sent.

        Raises:
            ServiceError: The request failed; `kind` is "unknown-model" if the service does not have the model.
        """
        return _document(self._ask("GET", _path("models", digest)))

    def delete_model(self, digest: str) -> bool:
        """Deletes a model that the owner of this client's token has sent; returns whether the service had it.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._delete(_path("models", digest), "unknown-model")

    # Observations

    def observe(
        self,
        digest: str,
        latency_us: float,
        *,
        system: str,
        name: str = "model",
        runs: int | None = None,
        observed_at: str | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Mapping[str, Any]:
        """Reports a latency that users observed; returns the service's response as a JSON document.

        Args:
            digest: Digest of a model that was sent before.
            latency_us: Observed latency in microseconds.
            system: Name of the system on which the latency was observed.
            name: Name to use for the model in the response.
            runs: Number of runs of which the latency is the average.
            observed_at: Time of the observation, ISO 8601 in UTC; by default now.
            idempotency_key: Key under which the observation is stored once, however often it is sent; by default a new
                key for each call of this method.
            options: Keyword arguments, as in `predict`: batch, shapes, granularity, composition, measured.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        body = {
            "model": digest, "latency_us": latency_us, "system": system, "name": name, "runs": runs,
            "observed_at": observed_at, **options,
        }  # fmt: skip
        key = {"idempotency-key": idempotency_key or str(uuid4())}
        return _document(self._post("/v1/observations", _json(body), headers=key))

    def observations(self, *, system: str | None = None) -> Iterator[Mapping[str, Any]]:
        """Iterates over the observations that the owner of this client's token has reported, newest first.

        Args:
            system: Name of the system whose observations are wanted; None for all systems.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._pages("observations", "before", system=system)

    def delete_observation(self, number: int) -> bool:
        """Deletes one observation that the owner of this client's token has reported; returns whether it existed.

        Args:
            number: Number of the observation, which is its "id" in the responses of the service.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._delete(_path("observations", str(number)), "not-found")

    def delete_observations(self, *, system: str | None = None) -> int:
        """Deletes the observations that the owner of this client's token has reported; returns how many there were.

        If the first answer is lost and the request repeated, those that are deleted already do not count.

        Args:
            system: Name of the system whose observations are deleted; None for all systems.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        response = self._ask("DELETE", _path("observations"), params=_query({"system": system}))
        return int(_document(response)["deleted"])

    # Systems and regressors

    def systems(self) -> Iterator[Mapping[str, Any]]:
        """Iterates over the systems that the service can predict for, in order of their names.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._pages("systems", "after")

    def system(self, name: str) -> Mapping[str, Any]:
        """Returns the description of one system that the service can predict for.

        Raises:
            ServiceError: The request failed; `kind` is "unknown-system" if the service does not know the system.
        """
        return _document(self._ask("GET", _path("systems", name)))

    def regressors(self, *, system: str | None = None) -> Iterator[Mapping[str, Any]]:
        """Iterates over descriptions of regressors; "champion" is true for the one that predicts for its system.

        Args:
            system: Name of the system whose regressors are wanted; None for all systems.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        return self._pages("regressors", "after", system=system)

    # Requests

    def _ask_about(self, model: Model, path: str, options: Mapping[str, Any], version: str | None) -> httpx.Response:
        """Sends a request about one model and returns the response; sends a file only if the service does not have it.

        Args:
            model: Model, as in `predict`.
            path: Path of the URL.
            options: Options of the request by name; those that are None are left out.
            version: Version of the regressor to predict with; None for that of the system's champion.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
            OSError: The file cannot be read.
        """
        options = {"name": _title(model), **options}

        def post(**source: object) -> httpx.Response:
            return self._post(path, {**_json(options), **source}, params=_query({"version": version}))

        if isinstance(model, Mapping):
            return post(graph=model)
        if _is_digest(model):
            return post(model=model)
        with _opened(model) as file:
            try:
                return post(model=_content_hash(file))
            except ServiceError as error:
                if error.kind != "unknown-model":
                    raise
            return self._send_file(path, file, _query({**options, "version": version}))

    def _pages(self, collection: str, cursor: str, **query: Any) -> Iterator[Mapping[str, Any]]:
        parameters: dict[str, Any] = {"limit": self._page_size, **query}
        while True:
            page = _document(self._ask("GET", _path(collection), params=_query(parameters)))
            yield from page[collection]
            if page["next"] is None:
                return
            parameters[cursor] = page["next"]

    def _delete(self, path: str, absent_kind: str) -> bool:
        try:
            self._ask("DELETE", path)
        except ServiceError as error:
            if error.kind != absent_kind:
                raise
            return error.answer_lost
        return True

    def _post(self, path: str, body: Mapping[str, Any], **arguments: Any) -> httpx.Response:
        return self._ask("POST", path, json=body, **arguments)

    def _send_file(self, path: str, file: IO[bytes], query: Sequence[tuple[str, str]] = ()) -> httpx.Response:
        return self._ask("POST", path, file=file, params=query, headers={"content-type": _FILE})

    def _ask(self, method: str, path: str, *, file: IO[bytes] | None = None, **arguments: Any) -> httpx.Response:
        """Sends a request and returns the response; repeats it while the service cannot answer and time is left.

        Every request of this client may be sent repeatedly without harm.

        Args:
            method: HTTP method.
            path: Path of the URL.
            file: File whose content is the body of the request; None if the body is no file.
            arguments: Further arguments of `httpx.Client.request`.

        Raises:
            ServiceError: The service does not respond, or responds with an error.
        """
        spent_s, answer_lost = 0.0, False
        for repetition in range(self._retries + 1):
            began_s = time.monotonic()
            after_s: float | None = None
            if file is not None:  # httpx declares the length of a file, which the service requires
                file.seek(0)
                arguments["content"] = file
            try:
                response = self._http.request(method, path, **arguments)
                if response.status_code not in _RETRIED_STATUSES:
                    return self._checked(response)
                failure = self._failure(response)
                after_s = failure.retry_after_s
                answer_lost |= response.status_code in _LOST_STATUSES
            except ServiceError as error:
                error.answer_lost = answer_lost
                raise
            except httpx.HTTPError as error:
                failure = ServiceError(
                    f"{self._http.base_url} does not answer ({error}): check the address, and that it runs"
                )
                failure.__cause__ = error
                answer_lost |= not isinstance(error, _UNSENT_ERRORS)
                if not isinstance(error, _RETRIED_ERRORS):
                    raise failure from error
            wait_s = _wait_s(repetition, after_s)
            spent_s += time.monotonic() - began_s + wait_s
            if repetition == self._retries or spent_s > self._retry_s:
                failure.answer_lost = answer_lost
                raise failure
            self._sleep(wait_s)
        raise AssertionError("the last repetition returns or raises")

    def _checked(self, response: httpx.Response) -> httpx.Response:
        """Returns the given response unchanged if it is a successful response of a costmodel service.

        Raises:
            ServiceError: The response is an error, or does not come from a costmodel service.
        """
        if response.status_code in (204, 304):
            return response
        if not response.is_success:
            raise self._failure(response)
        try:
            is_document = isinstance(response.json(), dict)
        except ValueError:
            is_document = False
        if not is_document:
            raise self._failure(response)
        return response

    def _failure(self, response: httpx.Response) -> ServiceError:
        """Returns the exception that describes a failed response, for the caller to raise."""
        try:
            problem = response.json()
        except ValueError:
            problem = None
        status, kind = response.status_code, ""
        if isinstance(problem, dict) and "detail" in problem:
            message, kind = str(problem["detail"]), str(problem.get("type", "")).rpartition(":")[2]
        elif status in _RETRIED_STATUSES:
            message = f"{self._http.base_url} cannot answer now (status {status}): ask again later"
        else:
            message = f"{self._http.base_url} is no costmodel service (status {status}): check the address"
        request_id = response.headers.get("x-request-id", "")
        return ServiceError(message, status, kind, _seconds(response.headers.get("retry-after")), request_id)


def _wait_s(repetition: int, after_s: float | None) -> float:
    """Returns the seconds to wait before a request is repeated, varied at random so that clients do not retry in step.

    Args:
        repetition: Number of times that the request was repeated so far.
        after_s: Seconds that the service asked to wait, to which up to 10% is added; None for exponential backoff.
    """
    jitter = random.random()  # noqa: S311  # nothing secret depends on it
    if after_s is not None:
        return after_s * (1 + 0.1 * jitter)
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**repetition) * (0.5 + 0.5 * jitter)


def _seconds(retry_after: str | None) -> float | None:
    """Returns the seconds from now that a Retry-After header asks for; None if the header is missing or invalid."""
    if not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


@contextmanager
def _opened(model: str | Path | bytes) -> Iterator[IO[bytes]]:
    if isinstance(model, bytes):
        yield io.BytesIO(model)
        return
    with Path(model).open("rb") as file:
        yield file


def _content_hash(file: IO[bytes]) -> str:
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"  # type: ignore[arg-type]


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)


def _json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a request as a JSON object for its body; options that are None are left out."""
    given = {key: value for key, value in options.items() if value is not None}
    if "shapes" in given:
        given["shapes"] = {name: list(shape) for name, shape in given["shapes"].items()}
    return given


def _query(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the options of a request as names and values for its URL, with a "shape" and a "value" per input.

    Options that are None are left out.
    """
    shapes: Mapping[str, Sequence[int]] = options.get("shapes") or {}
    query = [("shape", f"{name}={','.join(map(str, shape))}") for name, shape in shapes.items()]
    values: Mapping[str, float] = options.get("values") or {}
    query += [("value", f"{name}={value:.17g}") for name, value in values.items()]
    given = {key: value for key, value in options.items() if value is not None and key not in ("shapes", "values")}
    return query + [
        (key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in given.items()
    ]


def _document(response: httpx.Response) -> Mapping[str, Any]:
    found: Mapping[str, Any] = response.json()
    return found


def _prediction(response: httpx.Response) -> Prediction:
    return Prediction.of(response.json(), response.headers.get("etag"))


def _title(model: Model) -> str:
    """Returns the name that a model has without another one: the stem of its path."""
    return Path(model).stem if isinstance(model, str | Path) and not _is_digest(model) else "model"


def _is_digest(model: object) -> bool:
    return isinstance(model, str) and model.startswith("sha256:")
