"""Composition rules: which layers' time the model's latency includes."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.composition import Cost
from costmodel.errors import RuleError
from costmodel.rules import Rule, critical_path, find_rule, parallel, rule_name, sequential, shares

Needs = list[tuple[int, ...]]
Dag = tuple[list[float], Needs]


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    """Latencies of up to 9 sequences, each reading from some earlier ones."""
    latencies = draw(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9))
    needs = [
        tuple(sorted(draw(st.sets(st.integers(0, position - 1), max_size=3)))) if position else ()
        for position in range(len(latencies))
    ]
    return latencies, needs


def costs(latencies: Sequence[float]) -> list[Cost]:
    """Measured ones of these latencies."""
    return [Cost(us, (us, us), "measured", "Relu") for us in latencies]


def latency(rule: Rule | str, dag: Dag) -> float:
    """What the model takes by a rule."""
    latencies, needs = dag
    found = find_rule(rule) if isinstance(rule, str) else rule
    return sum(share * us for share, us in zip(shares(found, costs(latencies), needs), latencies, strict=True))


def dearest_chain(dag: Dag) -> float:
    """By trying every chain."""
    latencies, needs = dag

    def ending_at(position: int) -> float:
        return latencies[position] + max((ending_at(before) for before in needs[position]), default=0.0)

    return max(ending_at(position) for position in range(len(latencies)))


class TestSequentialAndParallel:
    """The two ends."""

    @given(dags())
    def test_sequential_is_the_sum(self, dag: Dag) -> None:
        """Whatever reads from whatever, one thing happens after another."""
        assert latency("sequential", dag) == pytest.approx(sum(dag[0]))

    @given(dags())
    def test_parallel_is_the_dearest_chain(self, dag: Dag) -> None:
        """Branches may overlap; no sequence on the way can be skipped."""
        path = critical_path(*dag)
        assert all(before in dag[1][after] for before, after in pairwise(path))
        assert sum(dag[0][position] for position in path) == pytest.approx(dearest_chain(dag))
        assert latency("parallel", dag) == pytest.approx(dearest_chain(dag))

    def test_the_critical_path_of_two_branches(self) -> None:
        """Of a stem, a short and a long branch and their join, the short branch is left out."""
        assert critical_path([1, 2, 3, 1], [(), (0,), (0,), (1, 2)]) == [0, 2, 3]
        assert critical_path([], []) == []


class TestWorkers:
    """List scheduling."""

    @given(dags())
    def test_one_worker_does_one_thing_after_another(self, dag: Dag) -> None:
        """And leaves nothing out."""
        assert shares(find_rule("workers:1"), costs(dag[0]), dag[1]) == [1.0] * len(dag[0])

    @given(dags(), st.integers(0, 3))
    def test_enough_workers_leave_the_critical_path(self, dag: Dag, more: int) -> None:
        """With one for each sequence nothing waits but for its inputs."""
        assert latency(f"workers:{len(dag[0]) + more}", dag) == pytest.approx(dearest_chain(dag))

    @given(dags(), st.integers(1, 5))
    def test_grahams_bounds_hold(self, dag: Dag, count: int) -> None:
        """Neither faster than the critical path or all workers at work, nor slower than Graham (1966) proved."""
        found = latency(f"workers:{count}", dag)
        path, total = dearest_chain(dag), sum(dag[0])
        assert max(path, total / count) * (1 - 1e-9) <= found
        assert found <= (total / count + path * (1 - 1 / count)) * (1 + 1e-9)

    def test_two_workers_share_three_branches(self) -> None:
        """The third branch begins where the shortest ends, and the join waits for the last."""
        dag = [1.0, 4.0, 2.0, 3.0, 1.0], [(), (0,), (0,), (0,), (1, 2, 3)]
        assert shares(find_rule("workers:2"), costs(dag[0]), dag[1]) == [1.0, 0.0, 1.0, 1.0, 1.0]
        assert (latency("workers:2", dag), latency("workers:3", dag)) == (7.0, 6.0)

    def test_nothing_takes_no_time(self) -> None:
        """A model whose layers were all folded away."""
        assert shares(find_rule("workers:2"), [], []) == []


class TestRulesOfOnesOwn:
    """Functions of the user's."""

    @pytest.fixture
    def write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
        """Put a function into a module in the current folder; gives what to call it."""
        monkeypatch.chdir(tmp_path)

        def put(module: str, body: str) -> str:
            (tmp_path / f"{module}.py").write_text(f"def rule(costs, needs):\n    {body}\n")
            return f"{module}:rule"

        return put

    def test_it_is_found_in_the_current_folder(self, write: Callable[[str, str], str]) -> None:
        """And sees what each sequence is and reads from."""
        name = write("hidden_relus", "return [0.5 if c.kind == 'Relu' and n else 1.0 for c, n in zip(costs, needs)]")
        assert latency(name, ([10.0, 20.0], [(), (0,)])) == 10.0 + 0.5 * 20.0
        assert rule_name(find_rule(name)) == name

    @pytest.mark.parametrize(
        ("module", "body", "complaint"),
        [
            ("short_rule", "return [1.0]", "gave 1 shares for 2 sequences"),
            ("nan_rule", "return [1.0, float('nan')]", "gave the share nan"),
            ("negative_rule", "return [1.0, -0.5]", "gave the share -0.5"),
            ("infinite_rule", "return [1.0, float('inf')]", "gave the share inf"),
            ("failing_rule", "return 1 / 0", "failed .ZeroDivisionError"),
            ("silent_rule", "pass", "failed .TypeError"),
            ("wordy_rule", "return ['much', 'more']", "failed .ValueError"),
        ],
    )
    def test_what_it_gives_is_checked(
        self, write: Callable[[str, str], str], module: str, body: str, complaint: str
    ) -> None:
        """One sentence names the rule and what is wrong with it."""
        name = write(module, body)
        with pytest.raises(RuleError, match=f"the rule {name} {complaint}"):
            latency(name, ([10.0, 20.0], [(), (0,)]))

    @pytest.mark.parametrize(
        ("name", "complaint"),
        [
            ("fastest", "'fastest' is no composition rule: give sequential, parallel, workers:N or module:function"),
            ("workers", "no composition rule"),
            ("workers:0", "the number of workers must be 1 or more"),
            ("workers:two", "the number of workers must be 1 or more"),
            (":", "no composition rule"),
            ("no_such_module_here:rule", "cannot be imported .ModuleNotFoundError"),
            ("math:no_such_function", "cannot be imported .AttributeError"),
            ("math:pi", "is no function"),
        ],
    )
    def test_what_is_no_rule_is_refused(self, name: str, complaint: str) -> None:
        """Before anything is priced."""
        with pytest.raises(RuleError, match=complaint):
            find_rule(name)

    def test_a_broken_module_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever it raises while it is imported."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "broken_rule_module.py").write_text("raise OSError('no licence')")
        with pytest.raises(RuleError, match=r"cannot be imported .OSError: no licence"):
            find_rule("broken_rule_module:rule")

    def test_names(self) -> None:
        """Each rule has the name that it is found by."""
        assert [rule_name(find_rule(name)) for name in ("sequential", "parallel", "workers:3")] == [
            "sequential", "parallel", "workers:3",
        ]  # fmt: skip
        assert (rule_name(sequential), rule_name(parallel)) == ("sequential", "parallel")
        assert rule_name(math.hypot).startswith("math:")  # type: ignore[arg-type]  # any callable has a name
