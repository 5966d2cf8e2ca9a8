"""The job of `costmodel profile` in simulated time, and the traces that it writes."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

from costmodel.errors import MeasurementError
from costmodel.jobs.bench import bench_target
from costmodel.jobs.profile_trace import TraceEvent, trace_document
from costmodel.jobs.profiling import LayerProfile, ModelProfile, RunProfile, profile_model
from costmodel.onnx_io.model import Model, read_model
from costmodel.runtimes.base import KernelTime, ProfiledRun, Runtime, get_runtime
from costmodel.store.store import Store
from tests.conftest import LIGHT
from tests.fakes import FakeRuntime, elementwise, fake_sessions, fake_system, measured
from tests.synthetic import SYSTEM, trained_home

TEXT = "(float[1000] x) => (float[1000] z) { y = Relu(x) z = Tanh(y) }"


@pytest.fixture
def model(parse: Callable[..., ModelProto], tmp_path: Path) -> Model:
    """A model of two layers, in a file."""
    path = tmp_path / "pair.onnx"
    path.write_bytes(parse(TEXT).SerializeToString())
    return read_model(path)


@pytest.fixture
def profile(store: Store, runtime: FakeRuntime, model: Model, tmp_path: Path) -> Callable[..., ModelProfile]:
    """Function that profiles the model in simulated time; its options are those of the job."""
    return partial(
        profile_model, store, fake_system(runtime=runtime), runtime, model, cache=tmp_path / "cache",
        bundles=tmp_path / "bundles", here=True, bench=fake_sessions(runtime),
    )  # fmt: skip


def bench(store: Store, runtime: FakeRuntime, model: Model, cache: Path) -> None:
    """Measures the layers of the model."""
    bench_target(
        store, fake_system(runtime=runtime), runtime, str(model.path), cache, repeated_sequences=0,
        bench=fake_sessions(runtime),
    )  # fmt: skip


def test_a_model_that_was_never_measured_has_times_in_place_only(profile: Callable[..., ModelProfile]) -> None:
    """The sum of the layers is that of their kernels; the profiler's own time is in the run, not in the layers."""
    found = profile(runs=4)
    assert [(layer.name, layer.in_model_us, layer.kernels) for layer in found.layers] == [
        ("y", pytest.approx(3.0), ("Relu",)),
        ("z", pytest.approx(3.0), ("Tanh",)),
    ]
    assert found.run is not None
    assert len(found.run.runs) == 4
    assert found.in_model_us == pytest.approx(6.0)
    assert found.run.profiled_us == pytest.approx(7.0)
    assert (found.alone_us, found.predicted_us) == (None, None)
    assert [layer.difference_us for layer in found.layers] == [None, None]
    assert "nothing is predicted: train a regressor with `costmodel train --system fake-1`" in found.notes


def test_runs_that_lost_the_cpu_do_not_count(profile: Callable[..., ModelProfile], runtime: FakeRuntime) -> None:
    """Half of the runs are enough: those that lost the least time to other processes."""
    runtime.noise = lambda number: 1.0 if number % 2 else 4.0
    found = profile(runs=6)
    assert found.run is not None
    assert (len(found.run.runs), found.run.num_disturbed) == (6, 0)
    assert found.in_model_us == pytest.approx(6.0)


def test_a_machine_that_is_never_quiet_is_said(profile: Callable[..., ModelProfile], runtime: FakeRuntime) -> None:
    """Where most runs lost the CPU, the notes warn that times in the model may be too long."""
    runtime.noise = lambda _: 6.0
    found = profile(runs=4)
    assert any("4 of 4 runs under the profiler lost the CPU to other processes" in note for note in found.notes)


def test_what_was_measured_alone_stands_beside(
    profile: Callable[..., ModelProfile], store: Store, runtime: FakeRuntime, model: Model, tmp_path: Path
) -> None:
    """Layers that the store has measurements of show them, and the layer whose costs differ most comes first."""
    bench(store, runtime, model, tmp_path / "cache")
    (relu, tanh) = profile().layers
    assert [layer.alone_us for layer in (relu, tanh)] == [pytest.approx(3.0, rel=0.2)] * 2
    slow = measured(store.sequences()[tanh.signature], [50.0, 50.0], at="2027-01-01", kind="layer")
    store.put_measurement("fake-1", slow)
    found = profile()
    assert [layer.name for layer in found.by_difference] == ["z", "y"]
    assert found.by_difference[0].difference_us == pytest.approx(
        max(found.layers[1].alone_us or 0.0, 3.0) - 3.0, abs=0.5
    )


def test_another_machine_is_not_run(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """Predicted costs and stored measurements are shown, and no layer has a time in the model."""
    home = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    found = profile_model(
        Store(home.store_url), SYSTEM, get_runtime(), read_model(LIGHT["squeezenet"]), cache=home.cache,
        bundles=home.bundles, here=False,
    )  # fmt: skip
    assert found.run is None
    assert found.in_model_us is None
    assert found.predicted_us is not None
    assert found.alone_us is not None
    assert all(layer.predicted_us and layer.alone_us and layer.sources for layer in found.layers if layer.sources)
    check_trace(trace_document(found), ["model", "layers, predicted", "layers, measured alone"])


class _Unprofiled:
    """The fake runtime without its profiler."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.name, self.version, self.fingerprint = runtime.name, runtime.version, runtime.fingerprint
        self.lower, self.open_sequence, self.open_model = runtime.lower, runtime.open_sequence, runtime.open_model


def test_a_runtime_without_a_profiler_is_refused(
    store: Store, runtime: FakeRuntime, model: Model, tmp_path: Path
) -> None:
    """Profiling is an optional part of a runtime."""
    unprofiled = _Unprofiled(runtime)
    assert isinstance(unprofiled, Runtime)
    with pytest.raises(MeasurementError, match="fake cannot time the layers of a running model: it has no profiler"):
        profile_model(
            store, fake_system(runtime=runtime), unprofiled, model, cache=tmp_path / "cache",
            bundles=tmp_path / "bundles", here=True, bench=fake_sessions(runtime),
        )  # fmt: skip


def check_trace(document: Any, tracks: list[str]) -> dict[str, list[TraceEvent]]:
    """Asserts that a trace follows the Trace Event Format; returns the complete events of each track.

    The format is described in Google's document "Trace Event Format": metadata events name processes and threads, and
    complete events have a start and a duration, and are nested within a thread.
    """
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    for event in events:
        assert {"name", "ph", "pid", "tid", "args"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
    metadata = [event for event in events if event["ph"] == "M"]
    assert {event["name"] for event in metadata} == {"process_name", "thread_name", "thread_sort_index"}
    assert len([event for event in metadata if event["name"] == "process_name"]) == 1
    names = {event["tid"]: event["args"]["name"] for event in metadata if event["name"] == "thread_name"}
    assert list(names.values()) == tracks
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in complete} == names.keys()
    for tid in names:
        begin_us, open_ends_us = 0.0, [float("inf")]
        for event in (event for event in complete if event["tid"] == tid):
            assert event["dur"] >= 0
            assert event["ts"] >= begin_us  # in order of time
            begin_us, end_us = event["ts"], event["ts"] + event["dur"]
            while begin_us > open_ends_us[-1] - 0.002:  # times are rounded to nanoseconds
                open_ends_us.pop()
            assert end_us <= open_ends_us[-1] + 0.002  # inside the event that contains it, or after it
            open_ends_us.append(end_us)
    return {name: [event for event in complete if event["tid"] == tid] for tid, name in names.items()}


def test_the_trace_has_a_track_for_each_level(
    profile: Callable[..., ModelProfile], store: Store, runtime: FakeRuntime, model: Model, tmp_path: Path
) -> None:
    """Costs are laid end to end, and each layer in the model contains its kernel."""
    bench(store, runtime, model, tmp_path / "cache")
    found = check_trace(
        trace_document(profile()), ["model", "layers, measured alone", "layers and kernels, in the model"]
    )
    assert [(event["name"], event["cat"]) for event in found["layers and kernels, in the model"]] == [
        ("y", "layer"), ("Relu", "kernel"), ("z", "layer"), ("Tanh", "kernel")
    ]  # fmt: skip
    first, second = found["layers, measured alone"]
    assert second["ts"] == pytest.approx(first["ts"] + first["dur"])
    assert found["model"][0]["args"]["sum_in_model_us"] == pytest.approx(6.0)


def test_bodies_and_threads_have_their_place_in_the_trace() -> None:
    """Kernels of a body are nested even where whole microseconds hide that; each thread has a track of its own."""
    kernels = (
        KernelTime("loop", "Loop", "CPU", 10, 20),
        KernelTime("loop", "If", "CPU", 11, 10, in_body=True),
        KernelTime("loop", "Add", "CPU", 12, 4, in_body=True),
        KernelTime("loop", "Mul", "CPU", 28, 4, in_body=True),
        KernelTime("", "Cast", "CPU", 40, 1),
        KernelTime("other", "Relu", "CPU", 12, 30, thread=1),
    )
    run = RunProfile(measured(elementwise(8), [45.0] * 5, kind="model"), (ProfiledRun(50.0, kernels),))
    layers = tuple(
        LayerProfile((name,), op_type, "sha256:1", (name,), us, None, run.in_model_us[name], run.kernels[name])
        for name, op_type, us in (("loop", "Loop", 20.0), ("other", "Relu", 10.0))
    )
    assert run.in_model_us == {"loop": 20, "": 1, "other": 30}
    found = check_trace(
        trace_document(ModelProfile("m", "s", 30.0, (20.0, 40.0), layers, run)),
        [
            "model",
            "layers, predicted",
            "layers and kernels, in the model",
            "layers and kernels, in the model, thread 1",
        ],
    )
    mul = found["layers and kernels, in the model"][4]
    assert (mul["name"], mul["ts"] + mul["dur"]) == ("Mul", 30)
