"""Load-tests the service: cached requests, new models, bulk requests, and networks of a search in process.

    costmodel import data/amd-epyc-zen5-2c-ort1.31-1t.parquet      # and -training, then costmodel train
    python benchmarks/service_load.py amd-epyc-zen5-2c-ort1.31-1t [--only cached first bulk search]

Starts `costmodel serve --workers 2` on this machine and sends requests from this process, so that both share the
processors.

* cached: a known model, referred to by its digest: answers a second at several numbers of connections, then quantiles
  of the latency at half of 1,500 requests a second, counted from when a request was due.
* first: time until the answer for a new file of the size of ResNet-50, with its weights and without, in units of the
  model's own latency on this machine with one thread.
* bulk: 10,000 models of 50 layers in one request that lists its layers once.
* search: networks of 50 layers a second in one process with one thread, without HTTP: random ones of described layers.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from costmodel import CostModel, layer, read_model, weight
from costmodel.onnx_io.model import read_without_weights
from costmodel.paths import Home, find_home
from costmodel.training.corpus import corpus_models

HALF_LOAD = 750
JSON = "application/json"
FILE = "application/octet-stream"


def announced(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Waits until a service that was started with --json says where it listens; returns host and port."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line == "}\n":
            break
    host, port = json.loads(output)["url"].removeprefix("http://").split(":")
    return host, int(port)


def copied_home(folder: Path) -> Home:
    """Copies the store and the regressors of this installation to a new home in `folder`."""
    original, home = find_home(), Home(folder / "home")
    home.data.mkdir(parents=True)
    for file in original.data.glob("costmodel.db*"):
        shutil.copy(file, home.data)
    shutil.copytree(original.bundles, home.bundles)
    return home


@contextmanager
def service(workers: int = 2, tokens: Path | None = None) -> Iterator[tuple[str, int]]:
    """Starts a service in its own process, with a file of tokens if given; yields host and port."""
    command = [sys.executable, "-m", "costmodel", "serve", "--port", "0", "--workers", str(workers), "--json"]
    command += ["--tokens", str(tokens)] if tokens else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    host, port = announced(process)
    try:
        for _ in range(4 * workers):  # enough that each worker has most probably answered
            urllib.request.urlopen(f"http://{host}:{port}/readyz").read()
        yield host, port
    finally:
        process.terminate()
        process.wait()


def request_bytes(path: str, body: bytes, kind: str = JSON, token: str = "", key: str = "") -> bytes:
    """Encodes a POST request as HTTP."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    head += f"idempotency-key: {key}\r\n" if key else ""
    head += f"authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
    return head.encode() + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Sends a request; returns status and body of the answer."""
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return status, await reader.readexactly(length)


async def throughput(host: str, port: int, request: bytes, connections: int, seconds: float) -> float:
    """Sends a request as often as possible; returns answers a second."""
    answered = 0
    end = time.perf_counter() + seconds

    async def keep_asking() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection(host, port)
        while time.perf_counter() < end:
            status, _ = await exchange(reader, writer, request)
            assert status == 200, status
            answered += 1
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(keep_asking() for _ in range(connections)))
    return answered / (time.perf_counter() - start)


async def latencies_ms(
    host: str, port: int, request: bytes, connections: int, rate: float, seconds: float
) -> list[float]:
    """Sends a request at a steady rate; returns milliseconds from the due times to the answers."""
    found: list[float] = []
    due = iter(range(int(rate * seconds)))
    start = time.perf_counter() + 0.1

    async def keep_asking() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for number in due:
            wait = start + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            status, _ = await exchange(reader, writer, request)
            assert status == 200, status
            found.append(1e3 * (time.perf_counter() - start - number / rate))
        writer.close()

    await asyncio.gather(*(keep_asking() for _ in range(connections)))
    return found


def posted(
    host: str, port: int, path: str, body: bytes, kind: str = JSON, token: str = ""
) -> tuple[dict[str, object], float]:
    """Posts a body; returns the answer and the seconds until it was complete. The body is not copied by the client."""
    start = time.perf_counter()
    with closing(HTTPConnection(host, port)) as connection:
        connection.request(
            "POST", path, body, {"content-type": kind} | ({"authorization": f"Bearer {token}"} if token else {})
        )
        answer = connection.getresponse()
        content = answer.read()
    took = time.perf_counter() - start
    assert answer.status == 200, content[:500]
    found: dict[str, object] = json.loads(content)
    return found, took


def cached(system: str, seconds: float) -> None:
    """Measures requests of a known model."""
    (model,) = corpus_models("light_resnet50")
    with service() as (host, port):
        sent, _ = posted(host, port, f"/v1/predict?system={system}", model.path.read_bytes(), FILE)
        question = {"model": sent["digest"], "system": system}
        request = request_bytes("/v1/predict", json.dumps(question).encode())
        asyncio.run(throughput(host, port, request, 8, 1.0))  # fills the cache of each worker
        for connections in (1, 4, 16, 64):
            rate = asyncio.run(throughput(host, port, request, connections, seconds))
            print(f"cached, {connections:3d} connections   {rate:8,.0f} requests/s", flush=True)
        found = sorted(asyncio.run(latencies_ms(host, port, request, 32, HALF_LOAD, 4 * seconds)))
        quantiles = "   ".join(f"p{q:g} {found[int(len(found) * q / 100)]:.2f} ms" for q in (50, 90, 99, 99.9))
        print(f"cached, {HALF_LOAD} requests/s   {quantiles}   ({len(found)} requests)", flush=True)


def inference_s(content: bytes, runs: int = 30) -> float:
    """Measures a model on this host with one thread; returns the 0.1 quantile of the runs in seconds."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feeds = {port.name: np.zeros(port.shape, np.float32) for port in session.get_inputs()}
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.quantiles(times, n=10)[0]


def with_weights(path: Path) -> onnx.ModelProto:
    """Loads a light model with random weights; its file has only their shapes."""
    model = onnx.load(path)
    random = np.random.default_rng(0)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in list(model.graph.node):
        if node.op_type == "ConstantOfShape":
            shape = tuple(int(size) for size in values[node.input[0]])
            made = random.uniform(0.01, 0.02, shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(made, node.output[0]))
            model.graph.node.remove(node)
            for listed in (model.graph.initializer, model.graph.input):  # in old files a constant is an input too
                listed.remove(next(one for one in listed if one.name == node.input[0]))
    return model


def first_sight(system: str, repeats: int) -> None:
    """Measures requests of new models."""
    (known,) = corpus_models("light_resnet50")
    model = with_weights(known.path)
    inference = inference_s(model.SerializeToString())
    print(
        f"resnet50, {len(model.SerializeToString()) / 1e6:.0f} MB, one inference {1e3 * inference:.1f} ms", flush=True
    )
    with service() as (host, port):
        posted(host, port, f"/v1/predict?system={system}", known.path.read_bytes(), FILE)
        for label, small in (("with its weights", False), ("without them", True)):
            took = []
            for number in range(repeats):
                model.graph.node[0].name = f"{label} {number}"
                content = model.SerializeToString()
                if small:
                    path = Path(os.environ.get("TMPDIR", "/tmp")) / "first-sight.onnx"
                    path.write_bytes(content)
                    content = read_without_weights(path)
                    path.unlink()
                took.append(posted(host, port, f"/v1/predict?system={system}", content, FILE)[1])
            middle = statistics.median(took)
            print(
                f"first sight {label:<18} {1e3 * middle:6.0f} ms (median of {repeats}; {1e3 * min(took):.0f} to "
                f"{1e3 * max(took):.0f})   {middle / inference:.2f} inferences",
                flush=True,
            )


def bulk(system: str, repeats: int) -> None:
    """Measures bulk requests of 10,000 models of 50 layers."""
    cost_model = CostModel.load(system)
    found = {}
    for model in corpus_models("light"):
        found |= cost_model.decompose(read_model(model.path)).unique
    layers = [json.loads(sequence.text) for sequence in found.values()]
    random = Random(0)
    items = [{"layers": random.choices(range(len(layers)), k=50)} for _ in range(10_000)]
    body = json.dumps({"system": system, "layers": layers, "items": items}).encode()
    with service() as (host, port):
        took = [posted(host, port, "/v1/predict/bulk", body)[1] for _ in range(repeats + 1)]
    print(
        f"bulk, 10,000 models of 50 of {len(layers)} layers, {len(body) / 1e6:.1f} MB   first {took[0]:.2f} s   "
        f"then {statistics.median(took[1:]):.2f} s (median of {repeats})",
        flush=True,
    )


def search(system: str, repeats: int) -> None:
    """Measures the pricing of networks of described layers, in process, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cost_model = CostModel.load(system)
    described = [
        layer("Conv", (1, c, s, s), weight(o, c, k, k), weight(o), pads=[k // 2] * 4)
        for s, c in ((56, 32), (28, 64), (14, 128), (7, 256))
        for o in (c // 2, c, 2 * c)
        for k in (1, 3, 5)
    ]
    described += [layer("HardSwish", (1, c, s, s)) for s, c in ((56, 32), (28, 64), (14, 128), (7, 256))]
    start = time.perf_counter()
    sequences = [cost_model.sequences(one) for one in described]
    lowered = time.perf_counter() - start
    parts = [sequence for one in sequences for sequence in one]
    random = np.random.default_rng(0)
    for measured in (True, False):
        took = []
        for _ in range(repeats + 1):
            networks = random.integers(0, len(parts), (10_000, 50))
            start = time.perf_counter()
            cost_model.predict_networks(parts, networks, measured=measured)
            took.append(time.perf_counter() - start)
        source = "measured where known" if measured else "all predicted"
        first, then = 10_000 / took[0], 10_000 / statistics.median(took[1:])
        print(
            f"search, 10,000 networks of 50 of {len(parts)} layers, {source}   first {first:8,.0f} networks/s   "
            f"then {then:8,.0f} networks/s",
            flush=True,
        )
    print(f"search, {len(described)} described layers lowered in {lowered:.2f} s, once")


def main() -> None:
    """Prints the results of each kind of load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system")
    parser.add_argument("--only", nargs="*", choices=("cached", "first", "bulk", "search"))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    jobs = {
        "cached": lambda: cached(given.system, given.seconds),
        "first": lambda: first_sight(given.system, given.repeats),
        "bulk": lambda: bulk(given.system, given.repeats),
        "search": lambda: search(given.system, given.repeats),
    }
    for name in given.only or jobs:
        jobs[name]()


if __name__ == "__main__":
    main()
