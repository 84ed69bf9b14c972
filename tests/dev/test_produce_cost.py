"""A produce costs no more than recorded: processor time beside the floor's, and functions called.

In a process of its own, where no other test has left threads or objects behind.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.peers import recorded

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_produce_costs_no_more_than_recorded() -> None:
    command = [sys.executable, "-m", "bench.peers.one_process"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_figure_worse_than_recorded_is_told(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    recorded.write({"a, times the floor": 10.0, "a, calls": 100.0, "a, µs": 10.0}, file)
    assert (
        recorded.worse({"a, times the floor": 11.4, "a, calls": 109, "a, µs": 99.0}, 0, file) == []
    )
    (told,) = recorded.worse({"a, times the floor": 11.6, "a, calls": 90}, 0.0, file)
    assert told.startswith("a, times the floor is 11.6, 16% more than recorded (10)")
    (told,) = recorded.worse({"a, calls": 111, "new, calls": 1}, 0.0, file)
    assert told.startswith("a, calls is 111, 11% more")


def test_figures_not_measured_stay_recorded(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    recorded.write({"a, calls": 1.0, "b, calls": 2.0}, file)
    recorded.write({"b, calls": 3.0}, file)
    assert recorded.worse({"a, calls": 1.05, "b, calls": 3.0}, 0.0, file) == []
    assert len(recorded.worse({"a, calls": 1.2, "b, calls": 3.5}, 0.0, file)) == 2


def test_multiple_is_judged_on_idle_machines(tmp_path: Path) -> None:
    """Of the recorded kind."""
    file = tmp_path / "recorded.json"
    recorded.write({"a, times the floor": 1.0, "a, calls": 1.0}, file)
    found = {"a, times the floor": 2.0, "a, calls": 2.0}
    assert len(recorded.worse(found, 0.05, file)) == 2
    (told,) = recorded.worse(found, 0.2, file)
    assert told.startswith("a, calls")
    file.write_text(file.read_text().replace(recorded.machine(), "another"))
    (told,) = recorded.worse(found, 0.05, file)
    assert told.startswith("a, calls")
