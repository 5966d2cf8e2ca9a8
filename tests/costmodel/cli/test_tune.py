"""`costmodel tune`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.jobs.tuning.tune import Tuner
from costmodel.paths import Home
from costmodel.store.store import Store
from tests.shell import Run
from tests.synthetic import SYSTEM
from tests.tuned import TunedRuntime, fill_systems, tuner_of


@pytest.fixture
def path(parse: Callable[..., ModelProto], tmp_path: Path) -> Path:
    """A model whose batch is open."""
    path = tmp_path / "small.onnx"
    onnx.save(parse("(float[N, 64] x) => (float[N, 64] z) { y = Relu(x) z = Tanh(y) }"), path)
    return path


@pytest.fixture
def tuned(run_with: Callable[[Tools], Run], path: Path, tmp_path: Path) -> Iterator[Run]:
    """Function that runs a command on the simulated host with four CPUs, of which two systems are measured."""
    runtime, home = TunedRuntime(), Home(tmp_path / "home")
    home.data.mkdir(parents=True)
    store = Store(home.store_url)
    fill_systems(store, runtime, path, {1: 1.0, 2: 0.6}, batches=(1, 2))

    def tuner(store: Store, *_: object, **__: object) -> Tuner:
        return tuner_of(store, runtime, tmp_path)

    run = run_with(Tools(runtime, tuner=tuner))
    yield lambda *arguments: run(home, *arguments)
    store.close()


def test_the_document_has_the_setting_and_what_it_saves(tuned: Run, path: Path) -> None:
    """`--json` prints the best setting, the default one, their measurements, all settings and the snippet."""
    document = tuned(
        "tune", path, "--objective", "throughput", "--max-batch", "2", "--price", "0.36", "--json"
    ).document
    assert (document["model"], document["objective"], document["cpus"]) == ("small", "throughput", 4)
    best = document["best"]
    assert best["setting"] == {
        "runtime": "fake", "precision": "float32", "threads": 1, "level": "all", "spinning": True, "batch": 2,
        "sessions": 4,
    }  # fmt: skip
    assert best["description"] == "fake, 1 thread, level all, batch 2, 4 sessions"
    assert best["measured"]["rounds"] >= 4
    assert best["measured"]["usd_per_million"] == pytest.approx(0.1 / best["measured"]["throughput_per_s"] * 1e3)
    assert document["default"]["setting"]["threads"] == 4
    assert document["gain"] == pytest.approx(
        best["measured"]["throughput_per_s"] / document["default"]["measured"]["throughput_per_s"]
    )
    assert document["saved_usd_per_million"] > 0
    assert document["measurement"]["settings"] >= 3
    assert document["settings"][0] == best
    assert {one["reason"] for one in document["left_out"]} >= {"the same layers are executed as at level all"}
    assert document["snippet"].startswith("# Start 4 processes")


def test_the_answer_is_read_by_people(tuned: Run, path: Path) -> None:
    """The best setting, the default and the sentences about what loses are printed, and the lines of Python."""
    done = tuned("tune", path, "--slo", "p90=10ms")
    assert done.code == 0, done.err
    assert "best fake, 3 threads, level all" in done.said
    assert "default fake, 4 threads, level all: 1.80 ms" in done.said
    assert "gain 1.60 times the default" in done.said
    assert "More threads lose: 4 threads a session take 1.80 ms at best, 3 threads" in done.said
    assert "get_runtime('fake').open_model" in done.said
    alone = tuned("tune", path, "--no-measure")
    assert "measured nothing: these are predictions" in alone.said
    assert "default the same: there is nothing to set" in alone.said
    assert "* priced from a system with other settings" in alone.said


def test_predictions_of_a_regressor_are_enough(run: Run, ready: Home) -> None:
    """On another machine, settings are ranked by its regressor; measuring them here is refused in a sentence."""
    asked = ("tune", "light_squeezenet", "--system", SYSTEM.name)
    document = run(ready, *asked, "--no-measure", "--json").document
    assert document["best"]["setting"]["runtime"] == "onnxruntime"
    assert {one["system"] for one in document["settings"]} == {SYSTEM.name}
    assert document["best"]["setting"]["threads"] == 2
    assert any("openvino" in one["settings"] for one in document["left_out"]) or "openvino" not in str(document)
    assert "add --no-measure" in run(ready, *asked).sentence
    costs = run(ready, *asked, "--no-measure", "--objective", "cost")
    assert "give it, in dollars an hour" in costs.sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--objective", "speed"), "is not one of latency, throughput, cost"),
        (("--within", "reason"), "is not one of accuracy-safe, quantised"),
        (("--slo", "50ms"), "write it like p99=50ms"),
        (("--budget", "soon"), "90s, 10m, 1h or 30d"),
        (("--max-batch", "2000"), "2000 is more than 1024"),
    ],
)
def test_wrong_usage_says_how_to_write_it(run: Run, ready: Home, arguments: tuple[str, ...], words: str) -> None:
    """Wrong usage has exit code 2 and shows the right form."""
    done = run(ready, "tune", "light_squeezenet", "--no-measure", *arguments)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_bad_input_is_one_sentence(run: Run, ready: Home, tmp_path: Path) -> None:
    """An unknown system, an absent file and a file that is not quantised are one sentence each."""
    asked = ("tune", "light_squeezenet", "--no-measure")
    assert "nowhere" in run(ready, *asked, "--system", "nowhere").sentence
    assert "absent.onnx" in run(ready, "tune", tmp_path / "absent.onnx").sentence
    model = run(ready, "tune", "light", "--no-measure")
    assert (model.code, "give one" in model.err) == (2, True)
