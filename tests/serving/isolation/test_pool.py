"""Untrusted models: they may harm the worker that reads them, and nothing else."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import psutil
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from costmodel.errors import BusyError, LoweringError, ModelError, ModelReadError, ShapeError
from costmodel.onnx_io.model import read_model
from costmodel.partition.decomposition import decompose
from costmodel.runtimes.ort.adapter import OnnxRuntime
from costmodel.serving.isolation.limits import Limits
from costmodel.serving.isolation.pool import ReaderPool
from costmodel.serving.isolation.task import Task
from tests.processes import await_end

Parse = Callable[..., ModelProto]
SWAPPING = Path(__file__).with_name("swapping.py")
# A reader that greets and never answers.
STUCK = """
import sys, time
from costmodel.serving.isolation.child import open_answers, receive, send
answers = open_answers()
send(answers, {})
receive(sys.stdin.buffer)
time.sleep(60)
"""
LIMITS = Limits(memory_bytes=1 << 30, cpu_s=10, wall_s=20.0, layers=2000)


@pytest.fixture(scope="module")
def pool() -> Iterator[ReaderPool]:
    """A pool of one worker that all tests share."""
    with ReaderPool(1, LIMITS) as pool:
        yield pool


@pytest.fixture
def written(tmp_path: Path) -> Callable[[ModelProto | bytes], Path]:
    """Function that writes a model into its own file."""

    def written(model: ModelProto | bytes) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return path

    return written


def _healthy(pool: ReaderPool, written: Callable[[ModelProto], Path], parse: Parse) -> None:
    """Asserts that the pool answers the next task."""
    cut, _ = pool.lower(Task("next", written(parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }"))))
    assert [segment.sequence.kind for segment in cut.segments] == ["Relu"]


def test_a_model_is_cut_as_it_is_in_process(
    pool: ReaderPool, runtime: OnnxRuntime, light_models: dict[str, Path], tmp_path: Path
) -> None:
    """A worker returns the same sequences, names and predecessors as decomposition in the process."""
    for granularity in (1, 3):
        found, warnings = pool.lower(Task("squeezenet", light_models["squeezenet"], granularity=granularity))
        model = read_model(light_models["squeezenet"], name="squeezenet")
        assert found == decompose("squeezenet", runtime.lower(model, "all"), granularity)
        assert warnings == model.warnings
    graph = runtime.lower(model, "all").to_dict()
    assert pool.lower(Task("squeezenet", graph=graph, granularity=3))[0] == found


def test_a_reader_is_replaced_by_one_that_has_the_runtime(light_models: dict[str, Path]) -> None:
    """A task for another runtime gets a reader that has loaded it; later tasks for either runtime keep that one."""
    pytest.importorskip("openvino")
    from costmodel.runtimes.openvino.adapter import OpenVino

    path = light_models["squeezenet"]
    with ReaderPool(1, LIMITS) as pool:
        first, _ = pool.lower(Task("squeezenet", path))
        found, _ = pool.lower(Task("squeezenet", path, runtime="openvino"))
        replaced = pool.pids
        assert found == decompose("squeezenet", OpenVino().lower(read_model(path, name="squeezenet"), "all"))
        assert pool.lower(Task("squeezenet", path))[0] == first != found
        assert pool.lower(Task("squeezenet", path, runtime="openvino"))[0] == found
        assert pool.pids == replaced


def test_a_runtime_that_is_not_there_is_refused(pool: ReaderPool, light_models: dict[str, Path]) -> None:
    """The sentence names the runtimes that there are, and the next task is answered."""
    with pytest.raises(ModelError, match="there is no runtime 'unheard-of': choose one of onnxruntime"):
        pool.lower(Task("squeezenet", light_models["squeezenet"], runtime="unheard-of"))
    assert pool.lower(Task("squeezenet", light_models["squeezenet"]))


def test_a_model_is_kept_without_its_weights(pool: ReaderPool, light_models: dict[str, Path], tmp_path: Path) -> None:
    """The kept copy is small and gives the same sequences."""
    kept = tmp_path / "kept.onnx"
    kept.write_bytes(pool.read_without_weights(light_models["vgg19"])[0])
    assert kept.stat().st_size < 100_000
    assert pool.lower(Task("vgg19", kept)) == pool.lower(Task("vgg19", light_models["vgg19"]))


def test_errors_are_those_of_the_process(
    pool: ReaderPool, written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """Errors have the class and the message that they have without a worker."""
    with pytest.raises(ModelReadError, match="is not an ONNX file or is truncated"):
        pool.lower(Task("mine", written(b"\x0a\xff\xff")))
    with pytest.raises(ShapeError, match=r"mine has dimensions without a size: x axis 1 \(T\)"):
        pool.lower(Task("mine", written(parse("(float[1, T] x) => (float[1, T] y) { y = Relu(x) }"))))
    with pytest.raises(LoweringError, match="mine is refused by onnxruntime"):
        pool.lower(Task("mine", written(parse("(float[1] x) => (float[1] y) { y = Nothing(x) }"))))
    with pytest.raises(ModelReadError, match="does not exist"):
        pool.lower(Task("mine", Path("/nowhere/model.onnx")))
    _healthy(pool, written, parse)


def _field(number: int, content: bytes) -> bytes:
    """Returns an encoded field of a protobuf message."""
    length, varint = len(content), bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *varint, length]) + content


def _expanding(elements: int) -> ModelProto:
    """Returns a small model that the runtime would fold into a large constant."""
    shape = numpy_helper.from_array(np.array([elements], dtype=np.int64), "shape")
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"], value=value),
        helper.make_node("ReduceSum", ["large"], ["sum"]),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(nodes, "bomb", ports[:1], ports[1:], [shape])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("elements", [1 << 31, 1 << 40, 1 << 62])
def test_a_bomb_costs_itself_an_error(
    pool: ReaderPool, written: Callable[[ModelProto | bytes], Path], parse: Parse, elements: int
) -> None:
    """A model of a hundred bytes that expands to terabytes fails at the memory limit without harm to others."""
    model = _expanding(elements)
    assert len(model.SerializeToString()) < 200
    with suppress(ModelError):  # a runtime need not fold it
        pool.lower(Task("bomb", written(model)))
    _healthy(pool, written, parse)


def test_more_layers_than_are_accepted(
    pool: ReaderPool, written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """A model with a million layers is refused before lowering."""
    nodes = _field(1, _field(1, b"x") + _field(2, b"y") + _field(4, b"Relu")) * 1_000_000
    content = b"\x08\x09" + _field(7, nodes) + _field(8, b"\x10\x11")
    with pytest.raises(ModelError, match="many "):
        pool.lower(Task("many", written(content)))
    _healthy(pool, written, parse)


@pytest.mark.parametrize("depth", [20, 90, 5000])
def test_deep_nesting(
    pool: ReaderPool, written: Callable[[ModelProto | bytes], Path], parse: Parse, depth: int
) -> None:
    """Deeply nested subgraphs are refused at any depth."""
    graph = b""
    for _ in range(depth):
        attribute = _field(1, b"then_branch") + _field(6, graph) + b"\xa0\x01\x05"
        graph = _field(1, _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute))
    with pytest.raises(ModelError):
        pool.lower(Task("deep", written(b"\x08\x09" + _field(7, graph) + _field(8, b"\x10\x11"))))
    _healthy(pool, written, parse)


@pytest.fixture
def endless(written: Callable[[ModelProto | bytes], Path], parse: Parse) -> Path:
    """A model whose lowering does not end."""
    return written(
        parse(
            """(float[1] x, bool c) => (float y) {
            zero = Constant<value = float {0.0}>()
            n = Loop(, c, zero) <body = body (int64 i, bool b, float s) => (bool d, float t) {
                d = Identity(b) one = Constant<value = float {1.0}>() t = Add(s, one) }>
            shape = Cast<to = 7>(n) axes = Constant<value_ints = [0]>() dims = Unsqueeze(shape, axes)
            large = Expand(x, dims) y = ReduceSum<keepdims = 0>(large) }"""
        )
    )


def test_a_loop_that_does_not_end_is_stopped(
    endless: Path, written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """A loop without an end is stopped, and the worker goes on."""
    with ReaderPool(1, Limits(wall_s=6.0, cpu_s=30)) as pool:
        pool.start()
        (worker,) = pool.pids
        with pytest.raises(LoweringError, match=r"a loop in it has no end on synthetic values, or none within 1 s"):
            pool.lower(Task("next", endless))
        _healthy(pool, written, parse)
        assert pool.pids == [worker]


def test_a_task_that_does_not_end_is_stopped(endless: Path) -> None:
    """A reader that gives no answer is ended by the time limit."""
    with (
        ReaderPool(1, Limits(wall_s=3.0, cpu_s=30), program=("-c", STUCK)) as pool,
        pytest.raises(ModelError, match=r"next was not read within 3 s"),
    ):
        pool.lower(Task("next", endless))


def test_a_reader_outlives_the_thread_that_started_it(
    written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """Linux ends a child with the thread that forked it, which is one that lasts, whoever asked for the child."""
    with ReaderPool(1, LIMITS) as pool:
        thread = Thread(target=pool.start)
        thread.start()
        thread.join()
        (worker,) = pool.pids
        _healthy(pool, written, parse)
        assert pool.pids == [worker]


def test_the_task_of_a_killed_worker_is_repeated(
    pool: ReaderPool, written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """Another worker repeats the task of a killed one."""
    _healthy(pool, written, parse)
    (worker,) = pool.pids
    os.kill(worker, signal.SIGKILL)
    await_end(worker)
    _healthy(pool, written, parse)
    assert worker not in pool.pids


def test_a_file_that_brings_down_two_workers_is_to_blame(
    endless: Path, written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """A file whose two workers die gets an error, and the next file is answered."""
    with ReaderPool(1, LIMITS) as pool, ThreadPoolExecutor(1) as threads:
        pool.start()
        running = threads.submit(pool.lower, Task("next", endless))
        killed: set[int] = set()
        while not running.done():
            for worker in set(pool.pids) - killed:
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)
            time.sleep(0.01)
        with pytest.raises(ModelError, match="next crashes the reader process"):
            running.result()
        assert len(killed) == 2
        _healthy(pool, written, parse)


def test_a_client_that_waits_too_long_for_a_worker_gets_an_error(
    endless: Path, written: Callable[[ModelProto | bytes], Path], parse: Parse, tmp_path: Path
) -> None:
    """A client that waits too long gets an error, and the running task continues until its loop is stopped."""
    other = tmp_path / "endless.onnx"
    endless.rename(other)
    limits = replace(LIMITS, wall_s=12.0, wait_s=0.05)
    with ReaderPool(1, limits, tmp_path) as pool, ThreadPoolExecutor(1) as threads:
        pool.start()
        running = threads.submit(pool.lower, Task("endless", other))
        while other.stat().st_nlink == 1 and not running.done():  # until the file is linked for the worker
            time.sleep(0.01)
        with pytest.raises(BusyError, match="ask again"):
            _healthy(pool, written, parse)
        with pytest.raises(LoweringError, match="a loop in it has no end"):
            running.result()
        _healthy(pool, written, parse)


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "folder", "too large"])
def test_a_file_that_a_reader_leaves_may_be_anything(
    written: Callable[[ModelProto | bytes], Path], parse: Parse, tmp_path: Path, kind: str
) -> None:
    """A symlink, a pipe or a too large file in place of the kept copy is ignored."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"of somebody else")
    model = written(parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }"))
    with (
        ReaderPool(1, LIMITS, program=[str(SWAPPING), kind, str(secret)]) as pool,
        pytest.raises(ModelError, match="malformed"),
    ):
        pool.read_without_weights(model)


def test_a_file_that_a_reader_leaves_is_the_kept_copy(
    written: Callable[[ModelProto | bytes], Path], parse: Parse
) -> None:
    """The same reader without the swap leaves a copy that is accepted."""
    model = written(parse("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }"))
    with ReaderPool(1, LIMITS, program=[str(SWAPPING), "nothing", ""]) as pool:
        assert b"Relu" in pool.read_without_weights(model)[0]


def test_several_ask_at_once(light_models: dict[str, Path]) -> None:
    """With more clients than workers, each gets its own answer."""
    names = ["squeezenet", "shufflenet", "resnet50"] * 3
    with ReaderPool(2, LIMITS) as pool, ThreadPoolExecutor(9) as threads:
        cuts = list(threads.map(lambda name: pool.lower(Task(name, light_models[name]))[0], names))
    assert [cut.model for cut in cuts] == names
    assert len({len(cut.segments) for cut in cuts}) == 3


def test_workers_see_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not inherit the environment of the service."""
    monkeypatch.setenv("COSTMODEL_STORE", "postgresql://user:secret@host/db")
    with ReaderPool(1, LIMITS) as pool:
        pool.start()
        (worker,) = pool.pids
        environment = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"TMPDIR" in environment


def test_nothing_is_left_behind(light_models: dict[str, Path], tmp_path: Path) -> None:
    """Neither processes nor files remain after closing."""
    with ReaderPool(1, LIMITS, tmp_path) as pool:
        pool.lower(Task("squeezenet", light_models["squeezenet"]))
        (worker,) = pool.pids
        assert tmp_path in Path(os.readlink(f"/proc/{worker}/cwd")).parents
    assert pool.pids == []
    assert not psutil.pid_exists(worker)
    assert list(tmp_path.iterdir()) == []
