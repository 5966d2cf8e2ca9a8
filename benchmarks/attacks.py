"""Requests of a hostile client, at the limits that the service states; `service_attacks.py` runs them.

    python benchmarks/attacks.py HOST PORT TOKEN NAME SECONDS      # one attack, for so long; prints statuses as JSON

Each attack is a function that makes the body of a request, or one that misuses a connection.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from random import Random

from onnx import ModelProto, TensorProto, helper

# Source address of the attacker; the other clients have another one.
ATTACKER = "127.0.0.2"
JSON, FILE = "application/json", "application/octet-stream"
MIB = 1 << 20
# The limits that the service states (costmodel/serving/http/settings.py).
MAX_JSON, MAX_FILE, MAX_ITEMS, MAX_LISTED, MAX_REFERENCES, MAX_LAYERS = (
    16 * MIB, 256 * MIB, 10_000, 3_000, 500_000, 10_000,
)  # fmt: skip

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# Function that runs on one connection; returns the status of the answer, or "closed" or "held" for the connection.
Misuse = Callable[[Connection, str], Awaitable[str]]


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: Name of the attack in the table.
        path: Path of the URL of the request.
        body: Function that makes the body of the request; None if the connection is misused instead.
        kind: Media type of the body.
        connections: Number of connections that attack at the same time.
        expected: Statuses that are acceptable answers.
        misuse: Function that misuses a connection; None if requests are sent.
    """

    name: str
    path: str = "/v1/predict"
    body: Callable[[], bytes] | None = None
    kind: str = JSON
    connections: int = 4
    expected: tuple[str, ...] = ("422", "429", "503")
    misuse: Misuse | None = None


def _layer(attributes: dict[str, object], op: str = "Conv", inputs: tuple[str, ...] = ("x", "w")) -> dict[str, object]:
    return {"name": "a", "op": op, "attrs": attributes, "in": list(inputs), "out": ["y"]}


def _graph(layer: dict[str, object], shape: tuple[int, ...] = (1, 8, 8, 8)) -> bytes:
    kind = ["float32", list(shape), False]
    graph = {
        "layers": [layer], "types": {"x": kind, "w": ["float32", [8, 8, 3, 3], False], "y": kind},
        "constants": {"w": None}, "inputs": ["x"], "outputs": ["y"],
    }  # fmt: skip
    return json.dumps({"graph": graph, "name": f"n{os.getpid()}-{time.monotonic_ns()}"}).encode()


def strides() -> bytes:
    """A list of strides whose product has millions of digits."""
    return _graph(_layer({"strides": {"ints": [2**31 - 1] * ((MAX_JSON - 4096) // 12)}}))


def axes() -> bytes:
    """A list of millions of axes for a reduction of four dimensions."""
    return _graph(_layer({"axes": {"ints": [1] * ((MAX_JSON - 4096) // 3)}}, "ReduceMean", ("x",)))


def _sequence(number: int) -> dict[str, object]:
    value = ["float32", [1, 64, 28, 1 + number], 0, "input", None]
    return {
        "layers": [{"op": "Relu", "domain": "", "since": 14, "attrs": {}, "in": [0], "out": [1], "captured": 0}],
        "values": [value, [*value[:3], "internal", None]], "outputs": [1],
    }  # fmt: skip


def colliding() -> bytes:
    """Integers that all collide in a hash table."""
    step = 2**61 - 1
    items = b",".join(b"%d" % (place * step) for place in range((MAX_JSON - 4096) // 24))
    return b'{"layers":[%s],"items":[{"layers":[%s]}]}' % (json.dumps(_sequence(0)).encode(), items)


def references() -> bytes:
    """Eight million references to one layer."""
    return b'{"layers":[%s],"items":[{"layers":[%s]}]}' % (
        json.dumps(_sequence(0)).encode(), b",".join([b"0"] * ((MAX_JSON - 4096) // 2)),
    )  # fmt: skip


def full_bulk() -> bytes:
    """A valid bulk request with the maximum number of models and of new layers."""
    chance = Random(time.monotonic_ns())
    first = chance.randrange(1_000_000)
    layers = [_sequence(first + number) for number in range(MAX_LISTED)]
    each = MAX_REFERENCES // MAX_ITEMS
    items = [{"layers": [chance.randrange(MAX_LISTED) for _ in range(each)]} for _ in range(MAX_ITEMS)]
    return json.dumps({"layers": layers, "items": items}, separators=(",", ":")).encode()


def no_number() -> bytes:
    """NaN, Infinity and 1e308 where numbers are expected."""
    return _graph(_layer({"alpha": {"f": float("nan")}, "beta": {"f": 1e308}, "gamma": {"f": float("inf")}}))


def digits() -> bytes:
    """An integer with millions of digits."""
    return b'{"graph":{"layers":[],"types":{},"opset":%s}}' % (b"9" * (MAX_JSON - 4096))


def nesting() -> bytes:
    """Millions of nested brackets."""
    return b'{"graph":' + b"[" * (MAX_JSON // 2 - 4096) + b"]" * (MAX_JSON // 2 - 4096) + b"}"


def many_layers() -> bytes:
    """A graph with the maximum number of layers, all alike, to be cut into sequences of a thousand."""
    kind = ["float32", [1, 8], False]
    layers = [
        {"name": f"l{place}", "op": "Relu", "since": 14, "in": ["x"], "out": [f"y{place}"]}
        for place in range(MAX_LAYERS)
    ]
    graph = {
        "layers": layers, "types": {"x": kind} | {f"y{place}": kind for place in range(MAX_LAYERS)}, "inputs": ["x"],
        "outputs": [f"y{place}" for place in range(MAX_LAYERS)],
    }  # fmt: skip
    return json.dumps({"graph": graph, "granularity": 1000, "name": f"n{time.monotonic_ns()}"}).encode()


def rank_many() -> bytes:
    """A ranking of the maximum number of graphs."""
    kind = ["float32", [1, 8], False]
    models = [
        {
            "name": f"m{number}",
            "graph": {
                "layers": [{"name": "a", "op": "Relu", "since": 14, "in": ["x"], "out": ["y"]}],
                "types": {"x": ["float32", [1, 8 + number], False], "y": kind}, "inputs": ["x"], "outputs": ["y"],
            },
        }
        for number in range(100)
    ]  # fmt: skip
    return json.dumps({"models": models}).encode()


def _onnx(nodes: list[object], initializers: tuple[TensorProto, ...] = ()) -> bytes:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, f"n{time.monotonic_ns()}", ports[:1], ports[1:], list(initializers))
    content: bytes = helper.make_model(
        graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]
    ).SerializeToString()
    return content


def million_nodes() -> bytes:
    """An ONNX model with a million nodes."""
    node = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    field = b"\x0a" + bytes([len(node)]) + node
    graph = field * 1_000_000
    length, varint = len(graph), bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return b"\x08\x09" + b"\x42\x04\x0a\x00\x10\x11" + b"\x3a" + bytes(varint) + graph


def expanding() -> bytes:
    """A small ONNX model with a constant that expands to terabytes."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [1 << 40])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]), helper.make_node("ReduceSum", ["large"], ["sum"]),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]  # fmt: skip
    return _onnx(nodes, (shape,))


def endless() -> bytes:
    """An endless loop over constants, which runs while the model is read if the shapes behind it are not known."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["co"]), helper.make_node("Identity", ["v"], ["vo"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("co", TensorProto.BOOL, []),
         helper.make_tensor_value_info("vo", TensorProto.FLOAT, [8])],
    )  # fmt: skip
    constants = (
        helper.make_tensor("n", TensorProto.INT64, [], [2**62]), helper.make_tensor("t", TensorProto.BOOL, [], [True]),
        helper.make_tensor("w", TensorProto.FLOAT, [8], [1.0] * 8),
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", "t", "w"], ["z"], body=body), helper.make_node("Add", ["x", "z"], ["y"])]
    return _onnx(nodes, constants)


def endless_function() -> bytes:
    """The same in a local function, which the model calls with its input."""
    model = ModelProto.FromString(endless())
    constants = [helper.make_node("Constant", [], [one.name], value=one) for one in model.graph.initializer]
    opset = list(model.opset_import)
    function = helper.make_function("mine", "Endless", ["x"], ["y"], [*constants, *model.graph.node], opset)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.append(helper.make_node("Endless", ["x"], ["y"], domain="mine"))
    return model.SerializeToString()


def foreign_data() -> bytes:
    """Weights whose external location is the file of another tenant's model."""
    tensor = TensorProto(name="w", dims=[8], data_type=TensorProto.INT64, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", f"{'0' * 64}.onnx"), ("offset", "0"), ("length", "64")):
        tensor.external_data.add(key=key, value=value)
    return _onnx([helper.make_node("Reshape", ["x", "w"], ["y"])], (tensor,))


def long_names() -> bytes:
    """An ONNX model whose nodes have names of a megabyte each."""
    return _onnx([helper.make_node("Relu", ["x"], ["y"], name="n" * MIB) for _ in range(16)])


def largest_file() -> bytes:
    """Random bytes of the maximum size of a file."""
    return os.urandom(MIB) * (MAX_FILE // MIB)


async def slow_head(stream: Connection, token: str) -> str:
    """Sends the head of a request one byte at a time."""
    for byte in b"POST /v1/predict HTTP/1.1\r\nhost: x\r\n" + b"x-a: b\r\n" * 1000:
        stream[1].write(bytes([byte]))
        await stream[1].drain()
        await asyncio.sleep(0.5)
    return "held"


async def endless_head(stream: Connection, token: str) -> str:
    """Sends a head that never ends, as fast as the service reads it."""
    stream[1].write(b"GET /healthz HTTP/1.1\r\nx-a: ")
    while True:
        stream[1].write(b"a" * 65536)
        await stream[1].drain()


async def idle(stream: Connection, token: str) -> str:
    """Opens a connection and sends nothing."""
    return "closed" if await stream[0].read(1) == b"" else "answered"


async def held_upload(stream: Connection, token: str) -> str:
    """Declares a body and does not send it."""
    stream[1].write(_head("/v1/predict", FILE, token, MAX_FILE))
    await stream[1].drain()
    return await _status(stream)


async def slow_reader(stream: Connection, token: str) -> str:
    """Requests the largest answers, and reads none of them."""
    request = _head("/openapi.json", JSON, token, 0, method="GET")
    for _ in range(200):
        stream[1].write(request)
        await stream[1].drain()
    await asyncio.sleep(3600)
    return "held"


async def cached_flood(stream: Connection, token: str) -> str:
    """Sends cheap requests one after the other, as fast as they are answered."""
    stream[1].write(_head("/v1/systems", JSON, token, 0, method="GET"))
    await stream[1].drain()
    return await _status(stream)


async def guessing(stream: Connection, token: str) -> str:
    """Sends a request with a guessed token."""
    stream[1].write(_head("/v1/systems", JSON, "cm_guess", 0, method="GET"))
    await stream[1].drain()
    return await _status(stream)


ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        Attack("long list of strides", body=strides),
        Attack("long list of axes", body=axes),
        Attack("colliding integers", "/v1/predict/bulk", colliding, expected=("200", "413", "422", "429", "503")),
        Attack("8 million references", "/v1/predict/bulk", references, expected=("200", "413", "422", "429", "503")),
        Attack("the largest bulk", "/v1/predict/bulk", full_bulk, expected=("200", "429", "503")),
        Attack("NaN and 1e308", body=no_number),
        Attack("an integer of 16 MiB", body=digits),
        Attack("nested brackets", body=nesting),
        Attack("10,000 layers alike", body=many_layers, expected=("200", "422", "429", "503")),
        Attack("rank 100 graphs", "/v1/rank", rank_many, expected=("200", "422", "429", "503")),
        Attack("ONNX: a million nodes", body=million_nodes, kind=FILE),
        Attack("ONNX: terabytes of constants", body=expanding, kind=FILE, expected=("200", "422", "429", "503")),
        Attack("ONNX: an endless loop", body=endless, kind=FILE, expected=("200", "422", "429", "503")),
        Attack("ONNX: the same in a function", body=endless_function, kind=FILE, expected=("200", "422", "429", "503")),
        Attack("ONNX: another tenant's data", body=foreign_data, kind=FILE, expected=("200", "422", "429", "503")),
        Attack("ONNX: names of a megabyte", body=long_names, kind=FILE, expected=("200", "422", "429", "503")),
        Attack("a file of 256 MiB", body=largest_file, kind=FILE, connections=2),
        Attack("uploads that do not come", misuse=held_upload, connections=64, expected=("408", "503")),
        Attack("heads a byte at a time", misuse=slow_head, connections=2000, expected=("closed",)),
        Attack("heads without an end", misuse=endless_head, connections=16, expected=("closed",)),
        Attack("idle connections", misuse=idle, connections=2000, expected=("closed",)),
        Attack("answers that nobody reads", misuse=slow_reader, connections=64, expected=("closed", "held")),
        Attack("cheap questions", misuse=cached_flood, connections=64, expected=("200", "429")),
        Attack("guessed tokens", misuse=guessing, connections=64, expected=("401",)),
    )
}


def _head(path: str, kind: str, token: str, length: int, method: str = "POST") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"authorization: Bearer {token}", f"content-type: {kind}",
    ]  # fmt: skip
    if method == "POST":
        lines.append(f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _status(stream: Connection) -> str:
    head = await stream[0].readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await stream[0].readexactly(int(length or b"0"))
    return head[9:12].decode()


async def send(stream: Connection, attack: Attack, token: str, body: bytes) -> str:
    """Sends one request of an attack on an open connection; returns the status."""
    stream[1].write(_head(attack.path, attack.kind, token, len(body)))
    answer = asyncio.ensure_future(_status(stream))
    try:
        for start in range(0, len(body), MIB):
            if answer.done():  # refused before the body was complete: the connection cannot be reused
                stream[1].close()
                break
            stream[1].write(body[start : start + MIB])
            await stream[1].drain()
        return await answer
    finally:
        answer.cancel()


async def once(host: str, port: int, token: str, attack: Attack, body: bytes) -> str:
    """Sends one request of an attack on a new connection; returns the status."""
    stream = await asyncio.open_connection(host, port, limit=1 << 26, local_addr=(ATTACKER, 0))
    try:
        return await send(stream, attack, token, body)
    except (OSError, asyncio.IncompleteReadError):
        return "closed"
    finally:
        stream[1].close()


async def run(host: str, port: int, token: str, attack: Attack, seconds: float) -> Counter[str]:
    """Runs an attack for some seconds on its number of connections; returns the number of answers by status."""
    statuses: Counter[str] = Counter()
    until = time.monotonic() + seconds
    bodies = _bodies(attack)

    async def connection() -> None:
        while time.monotonic() < until:
            stream = None
            try:
                stream = await asyncio.open_connection(host, port, limit=1 << 26, local_addr=(ATTACKER, 0))
                while time.monotonic() < until:
                    if attack.misuse is not None:
                        status = await attack.misuse(stream, token)
                    else:
                        status = await send(stream, attack, token, next(bodies))
                    statuses[status] += 1
                    if status == "closed" or stream[1].is_closing():
                        break
            except (OSError, asyncio.IncompleteReadError):
                statuses["closed"] += 1
                await asyncio.sleep(0.05)
            finally:
                if stream is not None:
                    stream[1].close()

    tasks = [asyncio.create_task(connection()) for _ in range(attack.connections)]
    await asyncio.wait(tasks, timeout=seconds + 1.0)
    for task in tasks:
        task.cancel()
    return statuses


def _bodies(attack: Attack) -> Iterator[bytes]:
    if attack.body is None:
        return
    # A few different bodies, made in advance so that making them does not slow the attack down.
    made = [attack.body() for _ in range(1 if attack.body is largest_file else 3)]
    while True:
        yield from made


def main() -> None:
    """Runs one attack at low priority, because this process stands for another machine."""
    host, port, token, name, seconds = sys.argv[1:]
    os.nice(10)
    print(json.dumps(asyncio.run(run(host, int(port), token, ATTACKS[name], float(seconds)))))


if __name__ == "__main__":
    main()
