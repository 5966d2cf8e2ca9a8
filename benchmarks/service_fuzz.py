"""Fuzzes a running service with mutated models: no status from 500 on, no invalid JSON, no second of processor time.

    python benchmarks/service_fuzz.py SYSTEM [--files 10000] [--graphs 5000] [--first 0] [--connections 1] [--also DIR]

Sends ONNX files and graphs in JSON with a few mutations: external data, sparse tensors, tensors in attributes,
subgraphs, functions, names, numbers, and flipped bytes (`fuzz_models.py`, `fuzz_graphs.py`). The number of a request is
the seed of its mutations and is printed if the answer is unacceptable: `--first NUMBER --files 1` sends it again. The
processor time of each request is measured only with one connection, because it cannot be attributed with more.
`schemathesis run URL/openapi.json --checks all` tests the rest of the interface.
"""

import argparse
import json
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import psutil
from fuzz_graphs import mutated_graph
from fuzz_models import mutated_model, rich_model
from service_load import FILE, JSON, service

from costmodel.onnx_io.model import read_model
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.training.corpus import corpus_models

LONGEST_S = 40.0
MOST_CPU_S = 1.0
SMALL_BYTES = 100_000  # larger models may take a second of processor time even without a mutation
INSIDE = ("Traceback", "/tmp", "site-packages", "onnxruntime_src", "0x7f")


@dataclass
class Tally:
    """Results of the requests with one mutation."""

    statuses: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    cpu_s: float = 0.0


class Fuzz:
    """A sender of requests that checks each answer."""

    def __init__(self, host: str, port: int, documented: set[int], *, timed: bool) -> None:
        self._host, self._port = host, port
        self._documented = documented
        self._timed = timed
        self._lock = threading.Lock()
        self._local = threading.local()
        self.tallies: dict[str, Tally] = {}
        self.sent = 0
        self.broken: Counter[str] = Counter()
        self.sentences: Counter[str] = Counter()

    def send(self, label: str, path: str, body: bytes, kind: str, mutations: list[str]) -> None:
        """Sends one request and checks the answer; `label` says how to reproduce the request."""
        begun = cpu_s() if self._timed else 0.0
        status, problem = self._exchange(path, body, kind)
        took = cpu_s() - begun if self._timed else 0.0
        if problem is None and took > MOST_CPU_S:
            problem = f"{took:.1f} s of processor time"
        with self._lock:
            self.sent += 1
            if self.sent % 1000 == 0:
                print(f"{self.sent} sent, {self.broken.total()} broken", flush=True)
            for name in set(mutations):
                tally = self.tallies.setdefault(f"{label.split()[0]}: {name}", Tally())
                tally.statuses[status] += 1
                tally.broken += problem is not None
                tally.cpu_s = max(tally.cpu_s, took)
            if problem is not None:
                self.broken[problem.partition(":")[0]] += 1
                print(f"{label}: {status} {problem} ({', '.join(mutations)})", flush=True)

    def _exchange(self, path: str, body: bytes, kind: str) -> tuple[int, str | None]:
        try:
            connection = self._connection()
            connection.request("POST", path, body, {"content-type": kind})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            self._local.connection = None
            return 0, f"no answer: {type(error).__name__} {error}"
        return answer.status, self._problem(answer.status, answer.headers.get("content-type", ""), content)

    def _connection(self) -> HTTPConnection:
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = HTTPConnection(self._host, self._port, timeout=LONGEST_S)
        return connection

    def _problem(self, status: int, media_type: str, content: bytes) -> str | None:
        """Describes what is wrong with an answer; None if it is acceptable."""
        if status >= 500:
            return f"status {status}: {content[:200]!r}"
        if status not in self._documented:
            return f"undocumented status {status}"
        expected = "application/json" if status < 400 else "application/problem+json"
        if media_type.partition(";")[0] != expected:
            return f"content type {media_type}"
        try:
            document = strict_json(content)
        except ValueError as error:
            return f"invalid JSON: {error}"
        text = content.decode()
        inside = next((word for word in INSIDE if word in text), None)
        if inside:
            return f"internals revealed: {inside} in {text[max(0, text.find(inside) - 100) :][:200]}"
        if status >= 400:
            if document.get("status") != status or not document.get("detail"):
                return "no problem details"
            with self._lock:
                self.sentences[str(document["detail"]).partition("(")[0][:60]] += 1
        elif not (math.isfinite(document["latency_us"]) and document["latency_us"] >= 0):
            return "invalid latency"
        return None


def strict_json(content: bytes) -> Any:
    """Parses JSON strictly by RFC 8259: refuses NaN, infinities, duplicate names and lone surrogates.

    Raises:
        ValueError: `content` is not strict JSON.
    """

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"the number {text}")
        return value

    def refuse(name: str) -> None:
        raise ValueError(name)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("duplicate name")
        return found

    document = json.loads(content, parse_float=number, parse_constant=refuse, object_pairs_hook=once)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def cpu_s() -> float:
    """Processor seconds of all processes that this one has started, including ended children."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            found += sum(process.cpu_times()[:4])  # user and system time, and both of ended children
        except psutil.NoSuchProcess:
            continue
    return found


def requests(
    given: argparse.Namespace, models: list[bytes], graphs: list[dict[str, Any]]
) -> Iterator[Callable[[Fuzz], None]]:
    """Yields functions that send the requests; each request is made only when its turn comes."""
    path = f"/v1/predict?system={quote(given.system)}&name=fuzz"

    def file(number: int) -> Callable[[Fuzz], None]:
        chance = Random(f"file {number}")
        content, mutations = mutated_model(chance.choice(models), chance)
        return lambda fuzz: fuzz.send(f"file {number}", path, content, FILE, mutations)

    def graph(number: int) -> Callable[[Fuzz], None]:
        chance = Random(f"graph {number}")
        body, mutations = mutated_graph(chance.choice(graphs), chance, given.system)
        return lambda fuzz: fuzz.send(f"graph {number}", "/v1/predict", body, JSON, mutations)

    for place in range(max(given.files, given.graphs)):
        if place < given.files:
            yield file(given.first + place)
        if place < given.graphs:
            yield graph(given.first + place)


def send_all(fuzz: Fuzz, waiting: Iterator[Callable[[Fuzz], None]], connections: int) -> None:
    """Sends all requests of `waiting` on several connections."""
    taking = threading.Lock()

    def keep_sending() -> None:
        while True:
            with taking:
                ask = next(waiting, None)
            if ask is None:
                return
            ask(fuzz)

    with ThreadPoolExecutor(connections) as threads:
        for done in [threads.submit(keep_sending) for _ in range(connections)]:
            done.result()


def table(fuzz: Fuzz) -> None:
    """Prints the results of each kind of mutation."""
    print(f"\n{'mutation':32s} {'sent':>6s} {'200':>6s} {'4xx':>6s} {'broken':>6s} {'most CPU':>9s}")
    for name, tally in sorted(fuzz.tallies.items()):
        sent = sum(tally.statuses.values())
        refused = sum(count for status, count in tally.statuses.items() if 400 <= status < 500)
        print(
            f"{name:32s} {sent:6d} {tally.statuses[200]:6d} {refused:6d} {tally.broken:6d} {1e3 * tally.cpu_s:6.0f} ms"
        )
    print("\nmost frequent refusals")
    for sentence, times in fuzz.sentences.most_common(12):
        print(f"  {times:6d}  {sentence}")
    for problem, times in fuzz.broken.most_common():
        print(f"BROKEN {times:6d}  {problem}")


def main() -> None:
    """Fuzzes the service; exits with 1 if an answer is unacceptable."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--graphs", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first file and of the first graph")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--also", type=Path, help="folder of more files to begin with")
    given = parser.parse_args()
    light = [model.path for model in corpus_models("light") if model.path.stat().st_size < SMALL_BYTES]
    models = [path.read_bytes() for path in light] + [rich_model().SerializeToString()] * 4
    if given.also:
        models += [path.read_bytes() for path in sorted(given.also.rglob("*.onnx")) if path.stat().st_size < 1 << 16]
    runtime = OnnxRuntime()
    graphs = [runtime.lower(read_model(path), "all").to_dict() for path in light] if given.graphs else []
    if graphs:
        graphs += [runtime.lower(read_model(rich_model()), "all").to_dict()] * 4
    with service(1) as (host, port):
        connection = HTTPConnection(host, port)
        connection.request("GET", "/openapi.json")
        operation = json.loads(connection.getresponse().read())["paths"]["/v1/predict"]["post"]
        documented = {int(status) for status in operation["responses"] if status.isdigit()}
        fuzz = Fuzz(host, port, documented, timed=given.connections == 1)
        # The first request includes the start of a reader process, so that it is not counted.
        warm = Fuzz(host, port, documented, timed=False)
        warm.send("warm up", f"/v1/predict?system={quote(given.system)}", models[-1], FILE, [])
        print(f"documented statuses: {sorted(documented)}; numbers from {given.first}", flush=True)
        begun = time.monotonic()
        send_all(fuzz, requests(given, models, graphs), given.connections)
    table(fuzz)
    print(f"\n{fuzz.sent} requests in {time.monotonic() - begun:.0f} s; {fuzz.broken.total()} unacceptable answers")
    sys.exit(1 if fuzz.broken else 0)


if __name__ == "__main__":
    main()
