"""Composition rules: which layers' time counts in the model's latency."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.errors import RuleError
from costmodel.estimate.cost import Cost
from costmodel.estimate.rules import Rule, critical_path, find_rule, parallel, rule_name, sequential, shares

Needs = list[tuple[int, ...]]
Dag = tuple[list[float], Needs]


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    """Strategy for latencies of up to 9 sequences, each with earlier sequences that it reads."""
    latencies = draw(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9))
    needs = [
        tuple(sorted(draw(st.sets(st.integers(0, position - 1), max_size=3)))) if position else ()
        for position in range(len(latencies))
    ]
    return latencies, needs


def costs(latencies: Sequence[float]) -> list[Cost]:
    """Returns measured costs of these latencies."""
    return [Cost(us, (us, us), "measured", "Relu") for us in latencies]


def latency(rule: Rule | str, dag: Dag) -> float:
    """Returns the model's latency by a rule."""
    latencies, needs = dag
    found = find_rule(rule) if isinstance(rule, str) else rule
    return sum(share * us for share, us in zip(shares(found, costs(latencies), needs), latencies, strict=True))


def longest_path(dag: Dag) -> float:
    """Returns the longest path by trying all paths."""
    latencies, needs = dag

    def ending_at(position: int) -> float:
        return latencies[position] + max((ending_at(before) for before in needs[position]), default=0.0)

    return max(ending_at(position) for position in range(len(latencies)))


class TestSequentialAndParallel:
    """The rules `sequential` and `parallel`."""

    @given(dags())
    def test_sequential_is_the_sum(self, dag: Dag) -> None:
        """`sequential` is the sum, whatever the edges."""
        assert latency("sequential", dag) == pytest.approx(sum(dag[0]))

    @given(dags())
    def test_parallel_is_the_slowest_chain(self, dag: Dag) -> None:
        """`parallel` is the longest path."""
        path = critical_path(*dag)
        assert all(before in dag[1][after] for before, after in pairwise(path))
        assert sum(dag[0][position] for position in path) == pytest.approx(longest_path(dag))
        assert latency("parallel", dag) == pytest.approx(longest_path(dag))

    def test_the_critical_path_of_two_branches(self) -> None:
        """The shorter of two branches does not count in `parallel`."""
        assert critical_path([1, 2, 3, 1], [(), (0,), (0,), (1, 2)]) == [0, 2, 3]
        assert critical_path([], []) == []


class TestWorkers:
    """The rule `workers:N`, list scheduling."""

    @given(dags())
    def test_one_worker_does_one_thing_after_another(self, dag: Dag) -> None:
        """One worker gives the sum."""
        assert shares(find_rule("workers:1"), costs(dag[0]), dag[1]) == [1.0] * len(dag[0])

    @given(dags(), st.integers(0, 3))
    def test_enough_workers_leave_the_critical_path(self, dag: Dag, more: int) -> None:
        """As many workers as sequences give the critical path."""
        assert latency(f"workers:{len(dag[0]) + more}", dag) == pytest.approx(longest_path(dag))

    @given(dags(), st.integers(1, 5))
    def test_grahams_bounds_hold(self, dag: Dag, count: int) -> None:
        """The latency lies between the lower bounds and the upper bound of Graham (1966)."""
        found = latency(f"workers:{count}", dag)
        path, total = longest_path(dag), sum(dag[0])
        assert max(path, total / count) * (1 - 1e-9) <= found
        assert found <= (total / count + path * (1 - 1 / count)) * (1 + 1e-9)

    def test_two_workers_share_three_branches(self) -> None:
        """The third branch begins where the shortest ends, and the join waits for the last."""
        dag = [1.0, 4.0, 2.0, 3.0, 1.0], [(), (0,), (0,), (0,), (1, 2, 3)]
        assert shares(find_rule("workers:2"), costs(dag[0]), dag[1]) == [1.0, 0.0, 1.0, 1.0, 1.0]
        assert (latency("workers:2", dag), latency("workers:3", dag)) == (7.0, 6.0)

    def test_nothing_takes_no_time(self) -> None:
        """A model without layers takes no time."""
        assert shares(find_rule("workers:2"), [], []) == []


class TestRulesOfOnesOwn:
    """Rules defined by the user."""

    @pytest.fixture
    def write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
        """Function that writes a rule into a module in the current folder and returns its name."""
        monkeypatch.chdir(tmp_path)

        def put(module: str, body: str) -> str:
            (tmp_path / f"{module}.py").write_text(f"def rule(costs, needs):\n    {body}\n")
            return f"{module}:rule"

        return put

    def test_it_is_found_in_the_current_folder(self, write: Callable[[str, str], str]) -> None:
        """A rule in the current folder is found, and gets kinds and predecessors of the sequences."""
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
        """An invalid result is one sentence with the rule and the fault."""
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
        """An invalid rule is refused before anything is priced."""
        with pytest.raises(RuleError, match=complaint):
            find_rule(name)

    def test_a_broken_module_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module that raises on import is refused."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "broken_rule_module.py").write_text("raise OSError('no licence')")
        with pytest.raises(RuleError, match=r"cannot be imported .OSError: no licence"):
            find_rule("broken_rule_module:rule")

    def test_names(self) -> None:
        """Each rule has the name by which it is found."""
        assert [rule_name(find_rule(name)) for name in ("sequential", "parallel", "workers:3")] == [
            "sequential", "parallel", "workers:3",
        ]  # fmt: skip
        assert (rule_name(sequential), rule_name(parallel)) == ("sequential", "parallel")
        assert rule_name(math.hypot).startswith("math:")  # type: ignore[arg-type]  # any callable has a name
