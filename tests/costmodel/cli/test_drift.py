"""The table of `costmodel drift`."""

from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.paths import Home
from costmodel.serving.observations.observations import Observations
from tests.serving.observations.test_drift import OBSERVED
from tests.shell import Run

LONG_CHAIN_LAYERS = "intel-xeon-platinum-8259cl-cascade-lake-4c-ort1.31-2t"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_drifted_systems_are_marked_on_any_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """State and numbers are complete on any terminal width, followed by what to do."""
    (tmp_path / "data").mkdir()
    observations = Observations(Home(tmp_path).store_url)
    observations.put([replace(OBSERVED, system=LONG_CHAIN_LAYERS, latency_us=1.3 * OBSERVED.predicted_us)] * 30)
    observations.put([replace(OBSERVED, system="fine", latency_us=OBSERVED.predicted_us)] * 30)
    observations.put([replace(OBSERVED, system="new", latency_us=9 * OBSERVED.predicted_us)])
    observations.close()
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run(tmp_path, "drift")
    head, fine, drifted, new = done.out.splitlines()[:4]
    assert head.split()[:3] == ["system", "state", "drift"]
    assert fine.split()[:3] == ["fine", "ok", "1.000"]
    assert drifted.split()[1:4] == ["drifted", "1.300", "30.0%"]
    assert new.split()[:3] == ["new", "too", "few"]
    assert "it takes 10 observations of one token to tell" in done.said
    assert max(map(len, (head, fine, drifted, new))) <= columns
    assert "drift: observed over predicted latency; error: its distance from 1" in done.said
    assert done.said.endswith(f" {LONG_CHAIN_LAYERS} has drifted: measure it and train again")
