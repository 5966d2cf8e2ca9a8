"""A client of the service: this one file and httpx, so that it can be taken along where costmodel is not installed.

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
# What a service or a proxy before it answers with where it cannot answer now.
_LATER = frozenset({429, 502, 503, 504})
_LOST = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError, httpx.ProxyError)
# Waits where the service names none: the first one, and the longest; each is twice the one before.
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 8.0
_PAGE = 1000  # the most entries that the service puts on one page

Model = str | Path | bytes | Mapping[str, Any]


class ServiceError(Exception):
    """The service gave no answer, or a problem instead of one.

    Attributes:
        status: Status code of HTTP; None where there was no answer.
        kind: Last part of the problem's type, such as "unknown-system"; "" where there was no answer.
        retry_after_s: Seconds after which to ask again, if the service said so.
        request_id: Number of the request, under which the service's log has the rest; "" where there was no answer.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        kind: str = "",
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        """Carry the sentence of the service."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.request_id = request_id


@dataclass(frozen=True)
class Prediction:
    """What a model will cost on a system.

    Attributes:
        model: Name of the model.
        digest: Digest of the model: the service knows it by that, and it need not be sent again.
        system: Name of the system.
        latency_us: Latency of back-to-back runs on the quiet machine.
        interval_us: Lowest and highest latency, with the probability `interval_level`.
        interval_level: For example 0.9.
        quantiles_us: Latencies that users will see, where they are known: "p50", "p90", "p99".
        coverage: Share of the latency by source: "measured", "predicted", "extrapolated".
        version: Version of the regressor that answered.
        warnings: What the reader should know.
        document: The whole answer, with its layers.
        etag: Entity tag of the answer; see `Client.prediction`.
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
    etag: str | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any], etag: str | None = None) -> Self:
        """The prediction in an answer of the service."""
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
            etag=etag,
        )


@dataclass(frozen=True)
class BulkItem:
    """What one of many models will cost, or why that is not known.

    Attributes:
        name: The name that was given, or "item" and the position.
        latency_us: Latency in microseconds; None where there is an error.
        interval_us: Lowest and highest latency; None where there is an error.
        coverage: Share of the latency by source; None where there is an error.
        error: One sentence; None where there is an answer.
    """

    name: str
    latency_us: float | None
    interval_us: tuple[float, float] | None
    coverage: Mapping[str, float] | None
    error: str | None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """One entry of an answer of the service."""
        interval = item.get("interval_us")
        return cls(
            item["name"], item.get("latency_us"), (interval[0], interval[1]) if interval else None,
            item.get("coverage"), item.get("error"),
        )  # fmt: skip


class Client:
    """Asks one service; threads may share it.

    A request that the service or the network did not answer is repeated, after the time that the service names
    (Retry-After) or else after growing waits. That changes nothing: what is asked here may be asked twice, and an
    observation carries a key under which it is stored once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 4,
        retry_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: URL of the service, such as "https://costmodel.example.org".
            token: A token that the operator of the service gave out.
            timeout_s: Seconds that each try may wait for the network.
            retries: How often a request is repeated at most; 0 for never.
            retry_s: Seconds that a request may take with its repetitions: none begins after that.
            transport: How to get there, where that is not the network.
            sleep: Waits for so many seconds.

        Raises:
            ServiceError: `url` is no URL.
        """
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)
        except httpx.InvalidURL as error:
            raise ServiceError(f"{url!r} is not the URL of a service ({error})") from error
        self._retries = retries
        self._retry_s = retry_s
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections."""
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
            system: Name of the system; may be left out where the service knows one system only.
            name: What to call the model.
            batch: Size of the batch, where it is symbolic.
            shapes: Shapes of inputs, by name.
            granularity: The most layers in a sequence.
            composition: "sequential", "parallel" or "workers:N".
            partial: Answer even if layers have no cost.
            measured: Whether to use measurements; without them every cost is predicted.
            version: Version of the regressor that is to answer; by default the champion.

        Raises:
            ServiceError: There is no answer.
            OSError: The file cannot be read.
        """
        title = name or (Path(model).stem if isinstance(model, str | Path) and not _is_digest(model) else "model")
        options = {
            "system": system, "name": title, "batch": batch, "shapes": shapes, "granularity": granularity,
            "composition": composition, "partial": partial, "measured": measured,
        }  # fmt: skip
        if isinstance(model, Mapping):
            return self._predicted({"graph": model}, options, version)
        if _is_digest(model):
            return self._predicted({"model": str(model)}, options, version)
        with _opened(model) as file:
            try:
                return self._predicted({"model": _content_hash(file)}, options, version)
            except ServiceError as error:
                if error.kind != "unknown-model":
                    raise
            return _prediction(self._send_file("/v1/predict", file, _query(options | {"version": version})))

    def _predicted(self, source: Mapping[str, Any], options: Mapping[str, Any], version: str | None) -> Prediction:
        asked = {**_json(options), **source}
        return _prediction(self._post("/v1/predict", asked, params=_query({"version": version})))

    def prediction(self, digest: str, *, known: Prediction | None = None, **options: Any) -> Prediction:
        """What a model that was sent before will cost, and only if it has changed.

        Args:
            digest: Digest of the model.
            known: The answer to the same question before: it is returned where it is still true.
            options: As in `predict`.

        Raises:
            ServiceError: There is no answer.
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
        """What many models will cost.

        Args:
            items: Each with "layers" (positions in `layers`), "model" ("sha256:...") or "graph", and a "name".
            layers: Layer sequences, or {"signature": ...} of known ones.
            system: Name of the system; may be left out where the service knows one system only.
            measured: Whether to use measurements.
            version: Version of the regressor that is to answer; by default the champion.

        Raises:
            ServiceError: There is no answer at all; an item without one has its own error.
        """
        asked: dict[str, Any] = {"items": list(items), "layers": list(layers), "measured": measured}
        if system is not None:
            asked["system"] = system
        answer = self._post("/v1/predict/bulk", asked, params=_query({"version": version})).json()
        return [BulkItem.of(item) for item in answer["items"]]

    def rank(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        systems: Sequence[str] | None = None,
        slo_us: float | None = None,
        quantile: str = "p50",
        usd_per_hour: Mapping[str, float] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Which system meets a latency objective, and at what price; or which of several models does.

        Args:
            models: Each with "model" or "graph", and a "name".
            systems: Names of the systems to choose among; by default all.
            slo_us: The latency that is not to be exceeded.
            quantile: Which latency that is: "p50", "p90", "p99", or "quiet".
            usd_per_hour: Prices by system; by default those of the service's catalogue.
            versions: Versions of regressors by system; by default the champions.

        Raises:
            ServiceError: There is no answer.
        """
        asked: dict[str, Any] = {
            "models": list(models), "quantile": quantile, "usd_per_hour": dict(usd_per_hour or {}),
            "versions": dict(versions or {}),
        }  # fmt: skip
        if systems is not None:
            asked["systems"] = list(systems)
        if slo_us is not None:
            asked["slo_us"] = slo_us
        return _document(self._post("/v1/rank", asked))

    # Models

    def send_model(self, model: str | Path | bytes) -> str:
        """Send an ONNX file, unless the service has it, and ask nothing about it yet.

        Args:
            model: Path or content of the file.

        Returns:
            The digest of the model, by which others who send the same model know it too.

        Raises:
            ServiceError: The service does not take it.
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
        """The models that one has sent and that the service still has.

        Raises:
            ServiceError: There is no answer.
        """
        return self._pages("models", "after")

    def model(self, digest: str) -> Mapping[str, Any]:
        """One of the models that one has sent.

        Raises:
            ServiceError: There is no answer; its `kind` is "unknown-model" where the service does not have it.
        """
        return _document(self._ask("GET", _path("models", digest)))

    def delete_model(self, digest: str) -> bool:
        """Delete a model that one has sent; whether the service had it.

        Raises:
            ServiceError: There is no answer.
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
        """Tell the service a latency that users saw.

        Args:
            digest: Digest of a model that was sent before.
            latency_us: The latency as users saw it.
            system: Name of the system that it was seen on.
            name: What to call the model.
            runs: How many runs the latency is the average of.
            observed_at: When it was seen, ISO 8601 in UTC; by default now.
            idempotency_key: A key under which the observation is stored once, however often it is sent; by default one
                that is made for this call.
            options: As in `predict`: batch, shapes, granularity, composition, measured.

        Raises:
            ServiceError: It was not stored.
        """
        asked = {
            "model": digest, "latency_us": latency_us, "system": system, "name": name, "runs": runs,
            "observed_at": observed_at, **options,
        }  # fmt: skip
        key = {"idempotency-key": idempotency_key or str(uuid4())}
        return _document(self._post("/v1/observations", _json(asked), headers=key))

    def observations(self, *, system: str | None = None) -> Iterator[Mapping[str, Any]]:
        """One's own observations, the newest first.

        Args:
            system: Name of a system, for its observations only.

        Raises:
            ServiceError: There is no answer.
        """
        return self._pages("observations", "before", system=system)

    def delete_observation(self, number: int) -> bool:
        """Delete one of one's observations, by its "id"; whether it was there.

        Raises:
            ServiceError: There is no answer.
        """
        return self._delete(_path("observations", str(number)), "not-found")

    def delete_observations(self, *, system: str | None = None) -> int:
        """Delete one's observations; how many there were.

        Args:
            system: Name of a system, for its observations only.

        Raises:
            ServiceError: There is no answer.
        """
        response = self._ask("DELETE", _path("observations"), params=_query({"system": system}))
        return int(_document(response)["deleted"])

    # What is known

    def systems(self) -> Iterator[Mapping[str, Any]]:
        """The systems that the service answers for, by name.

        Raises:
            ServiceError: There is no answer.
        """
        return self._pages("systems", "after")

    def system(self, name: str) -> Mapping[str, Any]:
        """One of the systems that the service answers for.

        Raises:
            ServiceError: There is no answer; its `kind` is "unknown-system" where the service does not know it.
        """
        return _document(self._ask("GET", _path("systems", name)))

    def regressors(self, *, system: str | None = None) -> Iterator[Mapping[str, Any]]:
        """The regressors that were trained; "champion" says which one answers for its system.

        Args:
            system: Name of a system, for its regressors only.

        Raises:
            ServiceError: There is no answer.
        """
        return self._pages("regressors", "after", system=system)

    # How it is asked

    def _pages(self, what: str, place: str, **query: Any) -> Iterator[Mapping[str, Any]]:
        asked: dict[str, Any] = {"limit": _PAGE, **query}
        while True:
            page = _document(self._ask("GET", _path(what), params=_query(asked)))
            yield from page[what]
            if page["next"] is None:
                return
            asked[place] = page["next"]

    def _delete(self, path: str, absent: str) -> bool:
        try:
            self._ask("DELETE", path)
        except ServiceError as error:
            if error.kind != absent:
                raise
            return False
        return True

    def _post(self, path: str, body: Mapping[str, Any], **asked: Any) -> httpx.Response:
        return self._ask("POST", path, json=body, **asked)

    def _send_file(self, path: str, file: IO[bytes], query: Sequence[tuple[str, str]] = ()) -> httpx.Response:
        return self._ask("POST", path, file=file, params=query, headers={"content-type": _FILE})

    def _ask(self, method: str, path: str, *, file: IO[bytes] | None = None, **asked: Any) -> httpx.Response:
        """The answer to a request, asked again while there is none and time is left; all of ours may be repeated.

        Raises:
            ServiceError: There is none, or it is a problem.
        """
        spent_s = 0.0
        for repetition in range(self._retries + 1):
            began_s = time.monotonic()
            after_s: float | None = None
            if file is not None:  # its length is declared, which the service asks for: httpx looks at the file
                file.seek(0)
                asked["content"] = file
            try:
                response = self._http.request(method, path, **asked)
                if response.status_code not in _LATER:
                    return self._checked(response)
                failure = self._failure(response)
                after_s = failure.retry_after_s
            except httpx.HTTPError as error:
                failure = ServiceError(
                    f"{self._http.base_url} does not answer ({error}): check the address, and that it runs"
                )
                failure.__cause__ = error
                if not isinstance(error, _LOST):
                    raise failure from error
            wait_s = _wait_s(repetition, after_s)
            spent_s += time.monotonic() - began_s + wait_s
            if repetition == self._retries or spent_s > self._retry_s:
                raise failure
            self._sleep(wait_s)
        raise AssertionError("the last repetition returns or raises")

    def _checked(self, response: httpx.Response) -> httpx.Response:
        """The answer, unless it is a problem or comes from something else."""
        if response.status_code in (204, 304):
            return response
        if not response.is_success:
            raise self._failure(response)
        try:
            sound = isinstance(response.json(), dict)
        except ValueError:
            sound = False
        if not sound:
            raise self._failure(response)
        return response

    def _failure(self, response: httpx.Response) -> ServiceError:
        """The error that an answer stands for."""
        try:
            problem = response.json()
        except ValueError:
            problem = None
        status, kind = response.status_code, ""
        if isinstance(problem, dict) and "detail" in problem:
            message, kind = str(problem["detail"]), str(problem.get("type", "")).rpartition(":")[2]
        elif status in _LATER:
            message = f"{self._http.base_url} cannot answer now (status {status}): ask again later"
        else:
            message = f"{self._http.base_url} is no costmodel service (status {status}): check the address"
        request_id = response.headers.get("x-request-id", "")
        return ServiceError(message, status, kind, _seconds(response.headers.get("retry-after")), request_id)


def _wait_s(repetition: int, after_s: float | None) -> float:
    """How long to wait: what the service says and a little more, or twice as long each time; no two clients alike."""
    by_chance = random.random()  # noqa: S311  # nothing is kept secret by it
    if after_s is not None:
        return after_s * (1 + 0.1 * by_chance)
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**repetition) * (0.5 + 0.5 * by_chance)


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header, which is a number of them or a date."""
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
    """Options as a body has them: what is None is left out."""
    given = {key: value for key, value in options.items() if value is not None}
    if "shapes" in given:
        given["shapes"] = {name: list(shape) for name, shape in given["shapes"].items()}
    return given


def _query(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Options as a query has them: shapes one by one, and what is None left out."""
    shapes: Mapping[str, Sequence[int]] = options.get("shapes") or {}
    query = [("shape", f"{name}={','.join(map(str, shape))}") for name, shape in shapes.items()]
    given = {key: value for key, value in options.items() if value is not None and key != "shapes"}
    return query + [
        (key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in given.items()
    ]


def _document(response: httpx.Response) -> Mapping[str, Any]:
    found: Mapping[str, Any] = response.json()
    return found


def _prediction(response: httpx.Response) -> Prediction:
    return Prediction.of(response.json(), response.headers.get("etag"))


def _is_digest(model: object) -> bool:
    return isinstance(model, str) and model.startswith("sha256:")
