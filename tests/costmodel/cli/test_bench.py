"""`costmodel bench` on this machine: one small model, for seconds, without assertions on times."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from costmodel.cli.context import Tools
from costmodel.jobs.benchmark_session import BenchmarkSession
from costmodel.paths import Home
from costmodel.store.store import Store
from costmodel.training.corpus import corpus_models
from tests.shell import Run
from tests.synthetic import copied

MODEL = "light_squeezenet"
NAMED = ("--system", "this.one")
CHAIN = """(float[64,4096] x) => (float[64,4096] y) {
    a = Relu(x)  b = Tanh(a)  c = Exp(b)  d = Sqrt(c)  e = Sigmoid(d)  y = Softmax(e)
}"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home that the first bench fills; the tests of this file continue with it in their order."""
    return Home(tmp_path_factory.mktemp("bench") / "home")


@pytest.fixture
def benched(run: Run, shared: Home) -> Home:
    """That home, with the model benchmarked."""
    if not shared.root.exists():
        document = run(shared, "bench", MODEL, *NAMED, "--budget", "5m", "--json").document
        assert document["measured"] > 0
    return shared


@pytest.fixture
def unique(run: Run, benched: Home) -> int:
    """Number of unique layers of the model on this host."""
    return int(run(benched, "decompose", MODEL, "--json").document["unique"])


def test_a_bench_measures_every_sequence_and_the_model(run: Run, benched: Home, unique: int) -> None:
    """Every sequence and the model are measured; a second run reuses all of them."""
    document = run(benched, "bench", MODEL, *NAMED, "--json").document
    assert list(document) == [
        "system",
        "measured",
        "reused",
        "unstable",
        "failed",
        "left",
        "dropped",
        "repeated",
        "seconds",
        "waiting_seconds",
    ]
    assert (document["system"], document["measured"], document["left"]) == ("this.one", 0, 0)
    assert document["failed"] == {}
    assert document["reused"] == unique + 1
    store = Store(benched.store_url)
    assert len(store.latencies_us("this.one")) == unique + 1
    assert all(us > 0 for us in store.latencies_us("this.one").values())


def test_people_read_a_line(run: Run, benched: Home, unique: int) -> None:
    """The summary is on standard output, progress bars on standard error."""
    done = run(benched, "bench", MODEL, *NAMED)
    assert done.out.startswith("this.one: 0 measured in ")
    assert f"{unique + 1} known before" in done.out
    assert len(done.out.splitlines()) == 1


def test_what_looks_wrong_can_be_measured_again(run: Run, benched: Home, tmp_path: Path) -> None:
    """Only suspect sequences are measured again, and no earlier measurement is lost."""
    own = copied(benched, tmp_path / "home")  # the number of suspects depends on the machine
    store = Store(own.store_url)
    before = len(list(store.measurements("this.one")))
    document = run(own, "bench", MODEL, *NAMED, "--recheck", "--json").document
    assert set(document["suspects"]) >= {"unstable", "outlier", "not_monotonic"}
    assert document["measured"] <= sum(document["suspects"].values())
    assert len(list(store.measurements("this.one"))) == before + document["measured"]


def test_models_are_measured_on_another_day_without_their_layers(run: Run, benched: Home, tmp_path: Path) -> None:
    """`--models-only --passes 2` measures the model once more, and nothing when it is said again."""
    own = copied(benched, tmp_path / "home")
    store = Store(own.store_url)
    before = Counter(one.kind for one in store.measurements("this.one"))
    options = ("bench", MODEL, *NAMED, "--models-only", "--passes", 2, "--json")
    document = run(own, *options).document
    assert (document["measured"], document["repeated"], document["left"]) == (0, 1, 0)
    assert Counter(one.kind for one in store.measurements("this.one")) - before == Counter(model=1)
    assert run(own, *options).document["repeated"] == 0
    refused = run(own, "bench", MODEL, "--models-only", "--samples", "3")
    assert refused.code == 2
    assert "--models-only" in refused.err


def test_what_was_benched_is_priced_from_measurements(run: Run, benched: Home) -> None:
    """A benchmarked model needs no regressor; `--measure` adds its measured latency."""
    document = run(benched, "predict", MODEL, *NAMED, "--measure", "--json").document
    assert document["coverage"] == {"measured": 1.0, "predicted": 0.0, "extrapolated": 0.0}
    assert document["predictor"] == {"name": "none", "version": "none"}
    assert document["measured_us"] > 0
    assert document["ratio"] == pytest.approx(document["latency_us"] / document["measured_us"])
    low, high = document["measured_interval_us"]
    assert low <= document["measured_us"] <= high
    assert isinstance(document["measured_stable"], bool)
    quantiles = document["quantiles_us"]
    assert document["latency_us"] <= quantiles["p50"] <= quantiles["p90"] <= quantiles["p99"]


def test_several_models_are_measured_together(
    run: Run, benched: Home, light_models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Each model is shown beside its estimate, with the geometric mean of the ratios."""
    shutil.copy(light_models["squeezenet"], tmp_path / "twin.onnx")
    arguments = ("predict", MODEL, tmp_path / "twin.onnx", *NAMED, "--measure")
    document = run(benched, *arguments, "--json").document
    assert [d["model"] for d in document["models"]] == [MODEL, "twin"]
    first, second = (d["ratio"] for d in document["models"])
    assert document["geometric_mean_ratio"] == pytest.approx((first * second) ** 0.5)
    table = run(benched, *arguments).out
    assert "geometric mean of the ratios: " in table
    assert max(map(len, table.splitlines())) <= 80


def test_results_travel(run: Run, benched: Home, unique: int, tmp_path: Path) -> None:
    """Exported measurements can be imported in another home; a second import adds nothing."""
    count = unique + unique  # each layer is measured twice for the noise floor; the whole model is not exported
    exported = run(benched, "export", tmp_path / "results.parquet", *NAMED, "--json").document
    assert (exported["system"], exported["measurements"]) == ("this.one", count)
    file = tmp_path / "results.parquet"
    (imported,) = run(tmp_path / "new", "import", file, "--json").document["files"]
    assert imported == {"file": str(file), "system": "this.one", "added": count, "known": 0}
    (again,) = run(tmp_path / "new", "import", file, "--json").document["files"]
    assert again == {"file": str(file), "system": "this.one", "added": 0, "known": count}
    document = run(tmp_path / "new", "predict", MODEL, *NAMED, "--json").document
    assert document["coverage"]["measured"] == 1
    here = run(benched, "predict", MODEL, *NAMED, "--json").document
    assert document["latency_us"] == pytest.approx(here["latency_us"], rel=1e-5)


def test_a_file_that_is_no_export_is_refused(run: Run, benched: Home, tmp_path: Path) -> None:
    """A file that is no export is refused in one sentence, and nothing is imported."""
    (tmp_path / "results.parquet").write_bytes(b"hello")
    assert "results.parquet" in run(benched, "import", tmp_path / "results.parquet").sentence
    assert "does not exist" in run(benched, "import", tmp_path / "absent.parquet").sentence
    assert "cannot be written" in run(benched, "export", tmp_path / "no" / "where.parquet", *NAMED).sentence


def test_a_name_belongs_to_the_system_that_was_measured(run: Run, benched: Home) -> None:
    """Other settings under a system's name are refused, and so is a catalogued name of another host."""
    done = run(benched, "bench", MODEL, *NAMED, "--level", "basic")
    assert done.code == 1
    assert "optimisation level all there, basic here" in done.err.splitlines()[-1]
    assert "this host is not a c5.xlarge" in run(benched, "bench", MODEL, "--system", "c5.xlarge").sentence


def test_a_model_is_run_as_its_system_runs_it(run: Run, benched: Home) -> None:
    """`--measure` uses the settings of the system, not the default ones."""
    assert run(benched, "bench", MODEL, "--system", "basic.one", "--level", "basic", "--budget", "0s").code == 0
    document = run(benched, "predict", MODEL, "--system", "basic.one", "--partial", "--measure", "--json").document
    assert document["measured_us"] > 0
    assert {layer["source"] for layer in document["layers"]} == {"unpriced"}


def test_a_system_may_run_layers_at_the_same_time(run: Run, benched: Home) -> None:
    """Inter-op threads are part of the default name and are used for estimates and whole models."""
    twice = ("--inter-threads", "2")
    name = run(benched, "bench", MODEL, *twice, "--budget", "0s", "--json").document["system"]
    assert name.endswith("-1t-2inter")
    assert Store(benched.store_url).system(name).settings.inter_threads == 2
    document = run(benched, "predict", MODEL, *twice, "--partial", "--measure", "--json").document
    assert document["system"] == name
    assert document["measured_us"] > 0


def test_a_suite_is_measured_without_its_models(run: Run, benched: Home, unique: int, tmp_path: Path) -> None:
    """A benchmark suite can be a target, and known measurements are reused."""
    run(benched, "decompose", MODEL, "--out", tmp_path / "suite")
    document = run(benched, "bench", tmp_path / "suite", *NAMED, "--json").document
    assert (document["measured"], document["reused"]) == (0, unique)


def test_layers_alone_can_be_measured_briefly(run: Run, unique: int, tmp_path: Path) -> None:
    """With --quick each layer is measured once for sums, and no whole model; other measurements are refused."""
    home = Home(tmp_path / "new")
    document = run(home, "bench", MODEL, *NAMED, "--quick", "--json").document
    assert (document["quick"], document["measured"], document["repeated"], document["failed"]) == (True, unique, 0, {})
    measurements = list(Store(home.store_url).measurements("this.one"))
    assert {(m.kind, len(m.pass_times_us), m.environment["for_sums"]) for m in measurements} == {("layer", 1, True)}
    assert run(home, "predict", MODEL, *NAMED, "--json").document["coverage"]["measured"] == 1
    refused = run(home, "bench", MODEL, "--quick", "--samples", "3")
    assert (refused.code, refused.out) == (2, "")
    assert "--quick" in refused.err


def test_a_spent_budget_says_to_go_on(run: Run, tmp_path: Path) -> None:
    """When the budget is spent, the rest is counted, and the next run continues there."""
    done = run(tmp_path / "new", "bench", MODEL, *NAMED, "--budget", "0s")
    assert "0 measured" in done.out
    assert re.search(r"[1-9]\d* left", done.out)
    assert done.out.splitlines()[-1] == "The budget is spent: run the same command again to go on."


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Restores the handling of Ctrl-C in child processes, which shells disable for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_with_a_sentence_and_loses_nothing(tmp_path: Path, interruptible: None) -> None:
    """Ctrl-C ends with exit code 130 and no traceback; finished models are stored and the lock is free."""
    folder = tmp_path / "models"
    folder.mkdir()
    for model in corpus_models("light"):
        if "inception" in model.name or "shufflenet" in model.name:
            shutil.copy(model.path, folder)
    home = Home(tmp_path / "home")
    home.data.mkdir(parents=True)
    store = Store(home.store_url)
    environment = {**os.environ, "COSTMODEL_HOME": str(home.root), "TMPDIR": str(tmp_path), "COLUMNS": "80"}
    command = [sys.executable, "-m", "costmodel", "bench", str(folder), *NAMED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as bench:
        while bench.poll() is None and len(store.latencies_us("this.one")) < 3:
            time.sleep(0.05)
        assert bench.poll() is None, bench.communicate()[1]
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=60)
    assert (bench.returncode, out) == (130, "")
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last == "costmodel: stopped; what was stored is kept, run the same command again"
    assert len(store.latencies_us("this.one")) >= 3
    assert not list(tmp_path.glob("*.holder"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_destructor_is_not_lost(
    run_with: Callable[[Tools], Run], tmp_path: Path, interruptible: None, number: int, code: int
) -> None:
    """A signal that arrives where Python ignores exceptions ends the command a moment later."""

    class Signalled:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def bench(*_: object) -> BenchmarkSession:
        Signalled()
        time.sleep(30)
        raise AssertionError("the signal was lost")

    before = signal.getsignal(signal.SIGTERM)
    done = run_with(Tools(bench=bench))(tmp_path, "bench", MODEL, *NAMED)
    signal.signal(signal.SIGTERM, before)
    assert (done.code, done.out) == (code, "")
    assert done.err.splitlines()[-1] == "costmodel: stopped; what was stored is kept, run the same command again"


def test_layers_are_chosen_by_a_regressor(run: Run, tmp_path: Path) -> None:
    """Without a regressor nothing predicts the other layers; single layers are chosen, and nothing else."""
    assert "run `costmodel bench" in run(tmp_path, "bench", MODEL, *NAMED, "--error", "0.01").sentence
    refused = run(tmp_path, "bench", MODEL, *NAMED, "--error", "0.01", "--samples", "3")
    assert (refused.code, "leave out --samples" in " ".join(refused.err.split())) == (2, True)


def test_the_expected_error_of_chosen_layers_is_said(
    run: Run, own: Home, parse: Callable[..., ModelProto], tmp_path: Path
) -> None:
    """Layers are chosen for an expected error, before any is measured; a smaller error takes more of them."""
    onnx.save(parse(CHAIN), tmp_path / "chain.onnx")
    arguments = (
        "bench", tmp_path / "chain.onnx", "--system", "made.up", "--assert-system", "--quick", "--budget", "0s",
    )  # fmt: skip
    few = run(own, *arguments, "--error", "0.5", "--json").document
    many = run(own, *arguments, "--error", "0.02", "--json").document
    assert few["measured"] == many["measured"] == 0
    assert many["left"] > few["left"]
    assert many["expected_error"] <= 0.02 < few["expected_error"] <= 0.5
    said = run(own, *arguments, "--error", "0.02").said
    assert f"{many['left']} layers were chosen" in said
    assert f"is {many['expected_error']:.1%} (root mean square)" in said
    assert "(chain)" in said


def test_one_bad_model_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    """A bad model is named with its reason, and the rest of the folder is measured."""
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(corpus_models("light_squeezenet")[0].path, folder / "good.onnx")
    (folder / "bad.onnx").write_bytes(b"no model")
    document = run(tmp_path, "bench", folder, *NAMED, "--budget", "1s", "--json").document
    assert "bad.onnx is not an ONNX file" in document["failed"]["bad"]
    assert document["measured"] > 0
    (folder / "good.onnx").unlink()
    refused = run(tmp_path, "bench", folder, *NAMED)
    assert (refused.code, "bad.onnx is not an ONNX file" in refused.err) == (1, True)


def test_open_dimensions_are_given(simulated_run: Run, tmp_path: Path, parse: Callable[..., ModelProto]) -> None:
    """A model with open dimensions is refused with the option that gives them, and measured at the sizes it gives."""
    path = tmp_path / "relu.onnx"
    onnx.save(parse("(float[N, 16, T] x) => (float[N, 16, T] z) { y = Relu(x) z = Tanh(y) }"), path)
    home = tmp_path / "home"
    assert "--shape x=1,16,?" in simulated_run(home, "bench", path).err
    measured = simulated_run(home, "bench", path, "--shape", "x=2,16,50", "--json").document
    assert measured["measured"] > 0
    assert simulated_run(home, "bench", path, "--shape", "x=2,16,50", "--json").document["measured"] == 0
    assert simulated_run(home, "bench", path, "--shape", "x=2,16,60", "--json").document["measured"] > 0
    priced = simulated_run(home, "predict", path, "--shape", "x=2,16,50", "--json").document
    assert priced["coverage"]["measured"] == 1
    assert "--shape" in simulated_run(home, "bench", path, "--shape", "x=2,16,50", "--recheck").err


def test_a_batch_is_given(simulated_run: Run, tmp_path: Path, parse: Callable[..., ModelProto]) -> None:
    """A symbolic batch is 1, or what the option says."""
    path = tmp_path / "relu.onnx"
    onnx.save(parse("(float[N, 16] x) => (float[N, 16] z) { y = Relu(x) z = Tanh(y) }"), path)
    home = tmp_path / "home"
    assert simulated_run(home, "bench", path, "--json").document["measured"] > 0
    assert simulated_run(home, "bench", path, "--batch", "8", "--json").document["measured"] > 0
    priced = simulated_run(home, "predict", path, "--batch", "8", "--json").document
    assert priced["coverage"]["measured"] == 1
