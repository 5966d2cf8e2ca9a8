"""Figures of LoadGen beside those of the simulation, and how often they agree (loadgen.py)."""

from dataclasses import dataclass

import numpy as np

BAR_RATE, BAR_PERCENTILE = 0.10, 0.15


@dataclass(frozen=True)
class Compared:
    """One figure of LoadGen and of the simulation: a rate in samples a second, or a latency in microseconds.

    Attributes:
        model: Name of the model.
        scenario: Scenario of MLPerf.
        figure: Name of the figure.
        measured: Figure of all rounds of LoadGen.
        halves: The same of its even rounds and of its odd ones; None if there is one round.
        simulated: Figure that is simulated; in the scenario "server", of the same requests.
        other_arrivals: The same of arrivals of its own for a long time; None if nothing arrives.
        same_seconds: The same as `simulated` with run times of the same seconds; None if there are none.
        always_warm: The same as `simulated` without the effects of an idle time; None if it has none.
        others: Largest share of a CPU that other processes of this machine took meanwhile.
    """

    model: str
    scenario: str
    figure: str
    measured: float
    halves: tuple[float, float] | None
    simulated: float
    other_arrivals: float | None = None
    same_seconds: float | None = None
    always_warm: float | None = None
    others: float = 0.0

    @property
    def bar(self) -> float:
        """Largest relative difference at which the two agree."""
        return BAR_RATE if self.figure.endswith("rate") else BAR_PERCENTILE

    @property
    def repeats(self) -> float:
        """Figure of LoadGen's odd rounds over that of its even ones."""
        return _ratio(self.halves[1], self.halves[0]) if self.halves else float("nan")

    @property
    def simulations(self) -> dict[str, float | None]:
        """The simulated figures by what is simulated."""
        return {
            "simulated": self.simulated,
            "  other arrivals": self.other_arrivals,
            "  same seconds": self.same_seconds,
            "  no idle effects": self.always_warm,
        }

    @property
    def line(self) -> str:
        """The figures, and the ratios of the simulated ones to LoadGen's, and of LoadGen's halves."""
        ratios = (*(self.ratio(one) for one in self.simulations.values()), self.repeats)
        return (
            f"{self.model:<24}{self.scenario:<15}{self.figure:<14}{self.measured:>10.1f}{self.simulated:>10.1f}"
            + "".join(f"{ratio:>6.2f}" for ratio in ratios)
            + f"{self.others:>6.0%}"
        )

    def ratio(self, other: float | None) -> float:
        """Returns a figure over LoadGen's."""
        return float("nan") if other is None else _ratio(other, self.measured)


def _ratio(one: float, other: float) -> float:
    """Returns the ratio of two figures; infinite if LoadGen met the objective at no load, 1 if neither did."""
    if other:
        return one / other
    return float("inf") if one else 1.0


def summarise(found: list[Compared]) -> None:
    """Prints how far the simulation is from LoadGen, and LoadGen from LoadGen, by scenario and figure."""
    print(f"\n{'scenario':<15}{'figure':<14}{'compared with LoadGen':<24}{'median':>8}{'range':>14}{'within bar':>12}")
    for scenario, figure in dict.fromkeys((one.scenario, one.figure) for one in found):
        of_figure = [one for one in found if (one.scenario, one.figure) == (scenario, figure)]
        if scenario == "effects":
            print(f"{scenario:<15}{figure:<14}{np.median([one.simulated for one in of_figure]):>8.0f} us")
            continue
        kinds = {kind: [one.ratio(one.simulations[kind]) for one in of_figure] for kind in of_figure[0].simulations} | {
            "LoadGen, odd over even": [one.repeats for one in of_figure]
        }
        for kind, ratios in kinds.items():
            if np.isnan(ratios).all():
                continue
            within = sum(abs(ratio - 1) <= of_figure[0].bar for ratio in ratios)
            print(
                f"{scenario:<15}{figure:<14}{kind:<24}{np.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>6.2f}"
                f"{within:>7} of {len(ratios)}"
            )
