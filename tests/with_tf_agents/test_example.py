"""The example that trains with TF-Agents does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import programs
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tf_agents_reinforce.py"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow alone takes ten seconds to import."""
    monkeypatch.setattr(programs, "PATIENCE_S", 110.0)


def test_reinforce_learns_in_its_short_form(tmp_path: Path) -> None:
    """Specs, seeds, drivers, replay buffer and rewards must all be right for an agent to get better."""
    finished = programs.run(EXAMPLE.read_text(), tmp_path, ["--iterations", 30, "--goal", 40])
    assert finished.returncode == 0, finished.stderr[-3000:]
    *progress, last = finished.stdout.splitlines()
    returns = [float(re.search(r"average return +(\S+)", line)[1]) for line in progress]
    assert len(returns) >= 2
    # A policy that has not learnt anything keeps the pole up for some 20 steps.
    assert 8 < returns[0] < 35
    assert re.fullmatch(r"final average return \d+\.\d, goal 40 reached", last)
    assert 40 <= returns[-1] <= 500


def test_exit_status_tells_that_the_goal_was_missed(tmp_path: Path) -> None:
    """A job that runs it must not take a run that failed for one that did not."""
    finished = programs.run(EXAMPLE.read_text(), tmp_path, ["--iterations", 1, "--goal", 400])
    assert finished.returncode == 1, finished.stderr[-3000:]
    assert finished.stdout.splitlines()[-1].endswith("goal 400 not reached")
