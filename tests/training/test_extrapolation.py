"""Extrapolation to systems that nobody has measured, from the synthetic system and facts about processors."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from costmodel.errors import UnknownSystemError
from costmodel.store.store import Store
from costmodel.systems.host import Host
from costmodel.systems.system import System
from costmodel.training.adaptation import Adaptation, AdaptationState, load_adaptation
from costmodel.training.extrapolation import (
    extrapolated_half_width,
    extrapolated_state,
    extrapolation_bases,
    guess_capabilities,
    similar_systems,
)
from tests.synthetic import SYSTEM

assert SYSTEM.host is not None


def _with(microarchitecture: str, vendor: str = "GenuineIntel") -> System:
    """The synthetic system with another processor."""
    assert SYSTEM.host is not None
    host = replace(SYSTEM.host, vendor=vendor, microarchitecture=microarchitecture)
    return replace(SYSTEM, host=host)


def _host(microarchitecture: str, vendor: str = "GenuineIntel") -> Host:
    host = _with(microarchitecture, vendor).host
    assert host is not None
    return host


MEASURED = _with("cascade-lake")
AMD = replace(_with("zen3", "AuthenticAMD"), name="made.amd")


def test_systems_of_the_same_maker_are_similar() -> None:
    """Systems of other makers are used only if there is none of the same, and then intervals are wider."""
    assert similar_systems(_host("skylake-x"), [AMD, MEASURED]) == [MEASURED]
    assert similar_systems(_host("skylake-x"), [AMD]) == [AMD]
    of_same, of_other = (extrapolated_half_width(_host("skylake-x"), [system], 1) for system in (MEASURED, AMD))
    assert 0 < of_same < of_other


def test_unknown_processors_are_not_guessed() -> None:
    """An unknown processor is an error that says what to do, and unknown systems are no bases."""
    with pytest.raises(UnknownSystemError, match="predict --probe"):
        similar_systems(Host(model_name="Made Up 1"), [MEASURED])
    with pytest.raises(UnknownSystemError, match="costmodel bench"):
        similar_systems(_host("skylake-x"), [SYSTEM])


def test_a_newer_processor_is_quicker_in_everything() -> None:
    """With the years all rates rise and all times fall; a wider one also multiplies quicker."""
    same = guess_capabilities(_host("cascade-lake"), [MEASURED], 1)
    assert same == pytest.approx({name: MEASURED.capabilities[name] for name in same})
    newer = guess_capabilities(_host("icelake-sp"), [MEASURED], 1)
    assert all(newer[name] > same[name] for name in ("gemm_gflops", "memory_gbps"))
    assert all(newer[name] < same[name] for name in ("scalar_ns", "layer_us", "reference_us"))
    narrow, wide = (guess_capabilities(_host(slug), [MEASURED], 1) for slug in ("broadwell-ep", "skylake-x"))
    assert wide["gemm_gflops"] > 2 * narrow["gemm_gflops"]
    assert wide["memory_gbps"] < 2 * narrow["memory_gbps"]


def test_a_base_that_was_busy_does_not_count() -> None:
    """Of the guesses from two systems of a maker, the quicker one counts for all capabilities."""
    rates = ("gemm_gflops", "memory_gbps")
    slower = {name: value / 2 if name in rates else value * 2 for name, value in MEASURED.capabilities.items()}
    busy = replace(_with("icelake-sp"), name="made.busy", capabilities=slower)
    host = _host("sapphire-rapids")
    quiet = guess_capabilities(host, [MEASURED], 1)
    assert guess_capabilities(host, [busy, MEASURED], 1) == guess_capabilities(host, [MEASURED, busy], 1) == quiet


def _on(system: System, threads: int, name: str = "") -> System:
    """The host of a system with another number of threads."""
    settings = replace(system.settings, threads=threads)
    return replace(system, settings=settings, name=name or f"{system.name}.{threads}")


def test_the_next_smaller_number_of_threads_is_that_of_the_bases() -> None:
    """Without systems with the same number of threads, those with the next smaller one are bases, or the smallest."""
    two, eight = (_on(MEASURED, threads) for threads in (2, 8))
    other = _on(_with("icelake-sp"), 2, "made.other")
    known = [eight, two, other]
    bases = {threads: extrapolation_bases(_on(_with("skylake-x"), threads), known) for threads in (1, 2, 4, 8, 16)}
    assert bases == {1: [two, other], 2: [two, other], 4: [two, other], 8: [eight], 16: [eight]}


def test_more_threads_reach_higher_rates() -> None:
    """Rates grow with the threads."""
    one = guess_capabilities(_host("cascade-lake"), [MEASURED], 1)
    four = guess_capabilities(_host("cascade-lake"), [MEASURED], 4)
    assert four["gemm_gflops"] == pytest.approx(4 * one["gemm_gflops"])
    assert four["reference_us"] < one["reference_us"]


@pytest.fixture
def bases(store: Store) -> list[System]:
    """The synthetic system, with a known processor."""
    return [replace(store.system(SYSTEM.name), host=MEASURED.host)]


def _state(store: Store, adaptation: Adaptation, bases: Sequence[System]) -> AdaptationState:
    return extrapolated_state(adaptation, bases, store.sequences(adaptation.dataset.signatures))


def test_the_same_processor_has_the_same_costs(store: Store, bases: list[System]) -> None:
    """A system with the processor of the base has the costs of the base, and none of them is measured."""
    adaptation = load_adaptation(store, [SYSTEM.name], replace(bases[0], name="made.twin"))
    state = _state(store, adaptation, bases)
    assert state.costs_us == pytest.approx(adaptation.anchors_us)
    assert not state.measured.any()
    assert (state.spread > 0).all()


def test_a_narrower_processor_is_slower_where_it_multiplies(store: Store, bases: list[System]) -> None:
    """Layers that multiply most suffer most from an older processor with half the operations in a cycle."""
    adaptation = load_adaptation(store, [SYSTEM.name], _with("haswell-ep"))
    state = _state(store, adaptation, bases)
    ratios = state.costs_us / adaptation.anchors_us
    assert (ratios > 1.4).all()
    assert (ratios < 2 * 1.6).all()
    kinds = np.array(adaptation.dataset.kinds)
    assert np.median(ratios[kinds == "Conv"]) > 1.3 * np.median(ratios[kinds == "Relu"])


@pytest.mark.parametrize(("ratio", "expected"), [(2.0, 1.0), (0.5, 0.5)])
def test_the_quickest_guess_counts(store: Store, bases: list[System], ratio: float, expected: float) -> None:
    """Of two bases with one processor, that on which everything takes less time tells the costs."""
    other = replace(bases[0], name="made.other")
    one = load_adaptation(store, [SYSTEM.name], replace(bases[0], name="made.twin"))
    ratios = np.full((len(one.anchors_us), 1), np.log(ratio))
    both = replace(one, bases=(*one.bases, other.name), ratios=ratios)
    state = _state(store, both, [*bases, other])
    assert state.costs_us == pytest.approx(one.anchors_us * expected)


def test_layers_gain_from_threads_what_their_kernels_divide(store: Store, bases: list[System]) -> None:
    """Four threads make large layers quicker, by less than four times, and small ones not."""
    adaptation = load_adaptation(store, [SYSTEM.name], _on(bases[0], 4, "made.four"))
    state = _state(store, adaptation, bases)
    quicker = adaptation.anchors_us / state.costs_us
    large = adaptation.anchors_us > np.quantile(adaptation.anchors_us, 0.9)
    assert quicker.max() < 4
    assert np.median(quicker[large]) > 1.5
    assert quicker.min() < 1.1
    assert extrapolated_half_width(_host("cascade-lake"), bases, 4) > extrapolated_half_width(
        _host("cascade-lake"), bases, 1
    )
