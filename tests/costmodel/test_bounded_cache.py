"""A bounded cache drops what was not used for longest, and never returns the value of another key."""

from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
from hypothesis import given

from costmodel.bounded_cache import BoundedCache

KEYS = st.lists(st.integers(0, 30), max_size=200)


@given(KEYS, st.integers(1, 40))
def test_what_is_found_is_what_was_kept_last(keys: list[int], most: int) -> None:
    """Under its key; and no more than the size is kept, whatever is asked for in between."""
    cache: BoundedCache[int, tuple[int, int]] = BoundedCache(most)
    kept: dict[int, tuple[int, int]] = {}
    for turn, key in enumerate(keys):
        assert cache.get(key) in (None, kept.get(key))
        cache.get(keys[turn // 2])
        kept[key] = key, turn
        cache.put(key, kept[key])
        assert cache.get(key) == kept[key]
        assert len(cache) <= most


@given(KEYS)
def test_what_was_used_last_is_kept(keys: list[int]) -> None:
    """The last values that were stored or found, as many as the size allows, are still there."""
    cache: BoundedCache[int, str] = BoundedCache(20)
    for turn, key in enumerate(keys):
        cache.put(key, str(key))
        for other in set(keys[max(0, turn - 8) : turn + 1]):
            assert cache.get(other) == str(other)


def test_sizes_are_those_of_what_is_kept() -> None:
    """A few large values fill the cache as many small ones do; one that is larger than the cache is not kept."""
    cache: BoundedCache[int, str] = BoundedCache(20, len)
    for key in range(100):
        cache.put(key, "x" * 10)
        assert len(cache) <= 2
    cache.put(99, "x" * 1000)
    assert cache.get(99) is None
    assert cache.get(98) == "x" * 10


def test_threads_may_share_it() -> None:
    """Each finds under a key what belongs there, or nothing."""
    cache: BoundedCache[int, str] = BoundedCache(50)

    def use(seed: int) -> bool:
        for turn in range(2000):
            key = (seed * 31 + turn * 7) % 97
            if cache.get(key) not in (None, str(key)):
                return False
            cache.put(key, str(key))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))
    assert len(cache) <= 50
