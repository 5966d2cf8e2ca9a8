"""Composition rules: how much of each sequence's latency is included in the latency of the model.

Where sequences run one after the other, all of them count; where branches run at the same time, those off the critical
path do not. A user whose runtime overlaps layers in another way writes a rule for it: see docs/how-to/rules.md.
"""

import heapq
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial

from costmodel.errors import RuleError
from costmodel.estimate.cost import Cost

__all__ = ["Rule", "critical_path", "find_rule", "parallel", "rule_name", "sequential", "shares", "workers"]

# Takes the costs of all sequences, in execution order, and for each the positions of those that it reads from; gives
# for each the share of its latency that the model's latency includes: 0 where it is hidden behind others, 1 where it is
# not, more than 1 where it is slowed down by them. A rule gives no sum, so that intervals and tables
# hold for any rule.
Rule = Callable[[Sequence[Cost], Sequence[Sequence[int]]], Sequence[float]]


def sequential(costs: Sequence[Cost], predecessors: Sequence[Sequence[int]]) -> list[float]:
    """Gives every sequence a share of 1 in the model's latency, because the sequences run one after the other."""
    return [1.0] * len(costs)


def parallel(costs: Sequence[Cost], predecessors: Sequence[Sequence[int]]) -> list[float]:
    """Gives the sequences on the critical path a share of 1 in the model's latency, and the others a share of 0.

    The model's latency is then that on a runtime with a core for every branch.
    """
    return _only(critical_path([cost.latency_us for cost in costs], predecessors), len(costs))


def workers(count: int, costs: Sequence[Cost], predecessors: Sequence[Sequence[int]]) -> list[float]:
    """Gives a share of 1 to the sequences that determine how long `count` equal workers take, and 0 to the others.

    An idle worker takes the first sequence, in execution order, that is ready. This is list scheduling (Graham, 1966),
    as in a pool of inter-op threads. The sequences with a share of 1 form a chain: the last of them ends when the model
    ends, and each begins when the one before it in the chain ends.

    Args:
        count: Number of workers, at least 1; the result is that of `sequential` for 1 worker, and that of `parallel`
            for as many workers as there are branches.
        costs: Cost of each sequence, in execution order.
        predecessors: For each sequence, the positions of the sequences whose outputs it reads.
    """
    readers: list[list[int]] = [[] for _ in costs]
    for position, needed in enumerate(predecessors):
        for other in set(needed):
            readers[other].append(position)
    waiting = [len(set(needed)) for needed in predecessors]
    ready = [position for position, number in enumerate(waiting) if not number]
    running: list[tuple[float, int]] = []
    begun_after: dict[int, int | None] = {}
    now_us, ended = 0.0, None
    while ready or running:
        while ready and len(running) < count:
            position = heapq.heappop(ready)
            begun_after[position] = ended
            heapq.heappush(running, (now_us + costs[position].latency_us, position))
        now_us, ended = heapq.heappop(running)
        for reader in readers[ended]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    chain = []
    while ended is not None:
        chain.append(ended)
        ended = begun_after[ended]
    return _only(chain, len(costs))


def critical_path(latencies_us: Sequence[float], predecessors: Sequence[Sequence[int]]) -> list[int]:
    """Returns the positions of the sequences on the critical path, in execution order.

    The critical path is the chain of sequences, each of which reads from the one before it, that takes longest.

    Args:
        latencies_us: Latency of each sequence in microseconds, in execution order.
        predecessors: For each sequence, the positions of the sequences whose outputs it reads, all of them before it.
    """
    if not latencies_us:
        return []
    finish: list[float] = []
    before: list[int | None] = []
    for latency, needed in zip(latencies_us, predecessors, strict=True):
        last = max(needed, key=finish.__getitem__, default=None)
        before.append(last)
        finish.append(latency + (finish[last] if last is not None else 0.0))
    position: int | None = max(range(len(finish)), key=finish.__getitem__)
    path = []
    while position is not None:
        path.append(position)
        position = before[position]
    return path[::-1]


def _only(chosen: Sequence[int], count: int) -> list[float]:
    counted = set(chosen)
    return [1.0 if position in counted else 0.0 for position in range(count)]


def find_rule(text: str) -> Rule:
    """Returns the composition rule with a given name.

    Args:
        text: "sequential", "parallel", "workers:4" for any number of workers, or "module:function" for a function of
            the user, whose module is looked for in the current folder, too.

    Raises:
        RuleError: There is no such rule, or the user's module cannot be imported.
    """
    if text in _BY_NAME:
        return _BY_NAME[text]
    before, colon, after = text.partition(":")
    if not (before and colon and after):
        raise RuleError(
            f"{text!r} is no composition rule: give sequential, parallel, workers:N or module:function of your own"
        )
    if before == "workers":
        if not after.isdecimal() or not int(after):
            raise RuleError(
                f"{text!r} is no composition rule: the number of workers must be 1 or more, as in workers:4"
            )
        return partial(workers, int(after))
    return _of_user(before, after)


_BY_NAME: dict[str, Rule] = {"sequential": sequential, "parallel": parallel}


def _of_user(module: str, function: str) -> Rule:
    sys.path.insert(0, "")
    try:
        rule = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever the user's own module does while it is imported
        raise RuleError(f"the rule {module}:{function} cannot be imported ({type(error).__name__}: {error})") from error
    finally:
        sys.path.remove("")
    if not callable(rule):
        raise RuleError(f"the rule {module}:{function} is no function: give one that takes costs and predecessors")
    return rule  # type: ignore[no-any-return]  # what it gives is checked by `shares`


def rule_name(rule: Rule) -> str:
    """Returns the name under which `find_rule` finds a rule; for a user's function "module:function"."""
    for name, known in _BY_NAME.items():
        if rule is known:
            return name
    if isinstance(rule, partial) and rule.func is workers:
        return f"workers:{rule.args[0]}"
    return f"{getattr(rule, '__module__', '?')}:{getattr(rule, '__qualname__', type(rule).__qualname__)}"


def shares(rule: Rule, costs: Sequence[Cost], predecessors: Sequence[Sequence[int]]) -> list[float]:
    """Returns the share of each sequence's latency that the model's latency includes: the checked result of `rule`.

    Raises:
        RuleError: The rule failed, or did not give one finite number of 0 or more for each sequence.
    """
    try:
        found = [float(share) for share in rule(costs, predecessors)]
    except Exception as error:  # the user's own code
        raise RuleError(f"the rule {rule_name(rule)} failed ({type(error).__name__}: {error})") from error
    if len(found) != len(costs):
        raise RuleError(
            f"the rule {rule_name(rule)} gave {len(found)} shares for {len(costs)} sequences: give one for each"
        )
    wrong = next((share for share in found if not (math.isfinite(share) and share >= 0)), None)
    if wrong is not None:
        raise RuleError(f"the rule {rule_name(rule)} gave the share {wrong}: give finite numbers of 0 or more")
    return found
