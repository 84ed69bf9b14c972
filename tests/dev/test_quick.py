"""`make quick` leaves out what its file names, and nothing that somebody is editing."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from dev import quick, slow_tests
from dev.tier_lanes import MARKED, TIERS

ROOT = Path(__file__).parents[2]


def test_slow_function_is_left_out_with_all_its_cases_and_no_other() -> None:
    every = [
        "tests/a.py::slow[1-x::y]",
        "tests/a.py::slow",
        "tests/a.py::slow_too",
        "tests/b.py::c",
    ]
    slow = {"tests/a.py::slow"}
    assert slow_tests.left_out(every, slow, ()) == set(every[:2])


def test_slow_tests_of_an_edited_file_are_run() -> None:
    slow = ["tests/a.py::one", "tests/b.py::two"]
    assert slow_tests.left_out(slow, slow, {"tests/a.py"}) == {"tests/b.py::two"}


def test_written_file_names_functions_over_the_limit_and_is_read_as_such() -> None:
    limit = slow_tests.SLOW_S
    text = slow_tests.written(Counter({"b.py::x": limit + 1, "a.py::y": limit, "a.py::z": 99.0}))
    assert slow_tests.listed(text) == {"b.py::x", "a.py::z"}
    assert text.index("a.py::z") < text.index("b.py::x")


def test_measuring_some_files_leaves_what_is_known_of_others() -> None:
    barely = slow_tests.SLOW_S + 0.01
    before = slow_tests.written({"a.py::gone": 3.0, "a.py::x": 2.0, "b.py::y": barely})
    after = slow_tests.told_anew(before, ["a.py"], {"a.py::x": 4.0, "a.py::quick": 0.1})
    assert slow_tests.seconds_of(after) == {"a.py::x": 4.0, "b.py::y": slow_tests.SLOW_S}
    assert slow_tests.seconds_of(slow_tests.told_anew(before, [], {"c.py::z": 5.0})) == {
        "c.py::z": 5.0
    }


def test_file_that_is_kept_names_tests_that_exist() -> None:
    """After a slow test was renamed: `make slow-tests`, or edit the line."""
    for name in slow_tests.listed(slow_tests.FILE.read_text()):
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), name


def test_measured_seconds_count_every_case_of_a_function() -> None:
    measured = slow_tests.Measured()

    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid = nodeid

    for case in ("1", "2"):
        steps = measured.pytest_runtest_protocol(Item(f"a.py::busy[{case}]"))
        next(steps)
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        assert list(steps) == []
    assert set(measured.seconds) == {"a.py::busy"}
    # The kernel counts in hundredths of a second.
    assert measured.seconds["a.py::busy"] > 0.07


def test_quick_runs_the_unit_tier() -> None:
    assert [tier.selection(long=False) for tier in TIERS if tier.name == "unit"] == [
        slow_tests.UNIT
    ]
    assert slow_tests.UNIT in quick.UNIT_TESTS
    # Of the two lanes one takes what the other leaves out; tidy is a gate.
    assert [one for one in quick.OTHERS if not one.startswith("--ignore=")] == ["tests"]
    left_out = {one.removeprefix("--ignore=") for one in quick.OTHERS if one != "tests"}
    assert left_out == {*quick.FOLDERS, *MARKED, "tests/test_tidy.py"}


@pytest.mark.parametrize(("gates", "tests", "code"), [(0, 0, 0), (1, 0, 1), (0, 3, 3), (1, 3, 3)])
def test_lane_that_begins_with_the_gates_fails_when_they_do_and_goes_on_to_the_tests(
    tmp_path: Path, gates: int, tests: int, code: int
) -> None:
    script = tmp_path / "dev" / "check.sh"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nexit {gates}\n")
    script.chmod(0o755)
    then = ["sh", "-c", f"touch came; exit {tests}"]
    done = subprocess.run([*quick.BEHIND, *then], cwd=tmp_path, check=False)
    assert done.returncode == code
    assert (tmp_path / "came").exists()


def test_step_that_does_not_end_is_killed_and_has_failed() -> None:
    process = quick.started([sys.executable, "-c", "import signal; signal.pause()"])
    began = time.monotonic()
    assert quick.ended(process, 0.1) == quick.TIMED_OUT
    assert process.returncode == -signal.SIGKILL
    assert time.monotonic() - began < 30


def test_any_failed_step_fails_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert quick.verdict({"unit tests": 0, "check": 0}, 9.0) == 0
    assert quick.verdict({"unit tests": 0, "check": 2}, 9.0) == 1
    assert capsys.readouterr().out.splitlines()[1] == "make quick: check failed (9 s)"
