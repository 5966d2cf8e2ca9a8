"""A bounded memory: it forgets what was not used for long, and never mixes things up."""

from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
from hypothesis import given

from costmodel.recent import Recent

KEYS = st.lists(st.integers(0, 30), max_size=200)


@given(KEYS, st.integers(1, 40))
def test_what_is_found_is_what_was_kept_last(keys: list[int], most: int) -> None:
    """Under its key; and no more than the size is kept, whatever is asked for in between."""
    recent: Recent[int, tuple[int, int]] = Recent(most)
    kept: dict[int, tuple[int, int]] = {}
    for turn, key in enumerate(keys):
        assert recent.get(key) in (None, kept.get(key))
        recent.get(keys[turn // 2])
        kept[key] = key, turn
        recent.put(key, kept[key])
        assert recent.get(key) == kept[key]
        assert len(recent) <= max(2, most)


@given(KEYS)
def test_what_is_used_is_not_forgotten(keys: list[int]) -> None:
    """What was asked for among the last half of the size is there still."""
    recent: Recent[int, str] = Recent(20)
    for turn, key in enumerate(keys):
        recent.put(key, str(key))
        for other in set(keys[max(0, turn - 8) : turn + 1]):
            assert recent.get(other) == str(other)


def test_sizes_are_those_of_what_is_kept() -> None:
    """A few large things fill it as many small ones do; one that is too large is kept until the next comes."""
    recent: Recent[int, str] = Recent(20, len)
    for key in range(100):
        recent.put(key, "x" * 10)
        assert len(recent) <= 2
    recent.put(-1, "x" * 1000)
    assert recent.get(-1) == "x" * 1000
    for key in range(4):
        recent.put(key, "x" * 10)
    assert recent.get(-1) is None


def test_threads_may_share_it() -> None:
    """Each finds under a key what belongs there, or nothing."""
    recent: Recent[int, str] = Recent(50)

    def use(seed: int) -> bool:
        for turn in range(2000):
            key = (seed * 31 + turn * 7) % 97
            if recent.get(key) not in (None, str(key)):
                return False
            recent.put(key, str(key))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))
    assert len(recent) <= 60
