"""`make test` leaves nothing out: every test is of one tier, and lies where that tier looks."""

import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from dev import tier_lanes, tiers
from dev.tier_lanes import (
    KILLING_A,
    KILLING_B,
    MARKED,
    ON_RELEASE,
    TIERS,
    USING_A,
    USING_B,
    Lane,
    Tier,
    named,
)
from dev.tier_summary import Outcome, judge, progress, summary
from dev.tiers import ROOT, TIMED_OUT, Ended, Processes, Run, beside

MARK = re.compile(r"pytest\.mark\.(\w+)")
KILLS = re.compile(r"kill(?:ed)?_operator|rollout|deployment/plimsoll")
"""How a test has one pod of the operator end: another leads within seconds."""
DISTURBS = re.compile(
    r"no_api_server|hung_api_server|stopped_operator|scale\", \"deployment|\bfired\("
    r"|\"helm\"|\bupgrade\(|install_present|customresourcedefinition"
)
"""What a test does to all of the operator's pods, the API server or the release that others use;
or how it would notice that another test kills an operator."""
REPORT = """<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">
<properties><property name="processor_s" value="7"/></properties>
<testcase name="a" time="1.5"/><testcase name="b" time="0.1"/><testcase name="c" time="2.0"/>
</testsuite></testsuites>"""


def marked() -> list[tuple[Path, str]]:
    names = {tier.marker for tier in TIERS}
    return [
        (path.relative_to(ROOT), name)
        for path in (ROOT / "tests").rglob("*.py")
        for name in MARK.findall(path.read_text())
        if name in names
    ]


def test_tiers_look_where_tests_with_their_marker_lie() -> None:
    found = marked()
    assert {name for _, name in found} == {tier.marker for tier in TIERS if tier.name != "unit"}
    for path, name in found:
        assert any(tier.looks_at(path) for tier in TIERS if tier.marker == name), path


def test_long_tests_run_in_make_long_alone() -> None:
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    assert unit.selection(long=False) == f"({unit.marker}) and not long"
    assert unit.selection(long=True) == f"({unit.marker}) and long"


def test_tier_finds_its_long_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_lanes, "ROOT", tmp_path)
    for folder in ("a", "a/b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a/b/test_c.py").write_text("@pytest.mark.long\n")
    (tmp_path / "a/test_d.py").write_text("")
    tier = Tier(name="", about="", marker="", limit_s=1, lane=Lane.COMPUTING, paths=("a",))
    assert tier.has_long_tests()
    assert not replace(tier, ignored=("a/b",)).has_long_tests()
    assert replace(tier, paths=("a/b/test_c.py",)).has_long_tests()
    assert not replace(tier, paths=("a/test_d.py",)).has_long_tests()


def test_end_to_end_tests_are_each_of_one_tier() -> None:
    on_node = [tier for tier in TIERS if tier.marker == "e2e"]
    for path in sorted((ROOT / "tests" / "e2e").glob("test_*.py")):
        inside = [tier.name for tier in on_node if tier.looks_at(path.relative_to(ROOT))]
        assert len(inside) == 1, (path, inside)


@pytest.mark.parametrize("path", [*USING_A, *USING_B])
def test_end_to_end_tests_that_run_beside_others_leave_operator_and_release_alone(
    path: str,
) -> None:
    text = (ROOT / path).read_text()
    assert KILLS.findall(text) == DISTURBS.findall(text) == []


@pytest.mark.parametrize("path", [*KILLING_A, *KILLING_B])
def test_end_to_end_tests_beside_others_that_kill_operators_do_nothing_worse(path: str) -> None:
    text = (ROOT / path).read_text()
    assert KILLS.search(text)
    assert DISTURBS.findall(text) == []


@pytest.mark.parametrize("name", ["installing", "upgrade", "outages", "prometheus"])
def test_end_to_end_tests_that_disturb_every_cluster_are_recognised_by_what_they_call(
    name: str,
) -> None:
    assert DISTURBS.search((ROOT / "tests" / "e2e" / f"test_{name}.py").read_text())


def test_name_before_a_dash_names_all_tiers_that_begin_with_it() -> None:
    assert [tier.name for tier in named(["e2e"])] == [
        *("e2e-demo", "e2e-cli", "e2e-moves", "e2e-secured", "e2e-alone")
    ]
    assert [tier.name for tier in named(["unit", "e2e-cli"])] == ["e2e-cli", "unit"]
    assert named(["e2"]) == named([]) == []


def test_unit_tier_takes_everything_that_no_other_tier_takes() -> None:
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    others = [tier.marker for tier in TIERS if tier is not unit]
    default = Tier(name="", about="", marker="", limit_s=1, lane=Lane.COMPUTING)
    assert unit.paths == default.paths == ("tests",)
    assert unit.ignored == MARKED
    for folder in MARKED:
        conftest = (ROOT / folder / "conftest.py").read_text()
        assert "item.add_marker(pytest.mark." in conftest, folder
    for marker in others:
        assert marker in unit.marker


@pytest.mark.parametrize(
    ("code", "failed", "note"), [(0, 1, ""), (124, 1, "stopped at its limit of 9 s")]
)
def test_tier_counts_what_pytest_reports(tmp_path: Path, code: int, failed: int, note: str) -> None:
    outcome, report = Outcome(name="unit"), tmp_path / "report.xml"
    report.write_text(REPORT)
    judge(outcome, code, report, 9)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, failed, 1)
    assert outcome.note == note
    assert max(outcome.tests) == (2.0, "c")
    assert outcome.processor_s == 7


@pytest.mark.parametrize("code", [1, 2, 4, 124, -9])
def test_tier_without_a_report_has_failed(tmp_path: Path, code: int) -> None:
    outcome = Outcome(name="unit")
    judge(outcome, code, tmp_path / "report.xml", 9)
    assert outcome.failed == 1
    assert outcome.note


def test_summary_fails_when_one_test_failed_or_none_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = Outcome(name="unit", passed=2, tests=[(3.0, "slow"), (1.0, "quick")])
    assert summary([good], 4.0) == 0
    shown = capsys.readouterr().out
    assert shown.index("slow") < shown.index("quick")
    assert shown.endswith("2 passed, 0 failed, 0 skipped\n")
    assert summary([good, Outcome(name="e2e", failed=1)], 4.0) == 1
    assert summary([Outcome(name="unit")], 4.0) == 1


def test_tiers_children_keep_bytecode_where_the_machine_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with (tmp_path / "output").open("w") as output:
        code = "import sys; sys.exit(sys.dont_write_bytecode)"
        assert Processes().run([sys.executable, "-c", code], 60, output).code == 0


def test_child_is_measured_with_what_it_waited_for(tmp_path: Path) -> None:
    counts = f"{sys.executable} -c 'sum(range(10**7))'; exit 3"
    with (tmp_path / "output").open("w") as output:
        ended = Processes().run(["bash", "-c", counts], 60, output)
    assert ended.code == 3
    assert ended.processor_s > 0.05


def test_child_is_killed_at_its_limit_with_its_children(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w") as output:
        assert Processes().run(["bash", "-c", "sleep 1000; true"], 0.1, output).code == TIMED_OUT


def test_progress_names_the_test_that_ended_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("collecting ...\ntests/a.py::test_b PASSED [ 12%]\ntests/a.py::test_c[x-y] FAIL")
    assert progress(log) == ", 12 %, after test_b"
    log.write_text("")
    assert progress(log) == ""


class RecordedRun(Run):
    """Runs nothing; remembers what it was asked for.  `fails`: the step that does."""

    def __init__(self, *, fails: str = "") -> None:
        super().__init__(live=False)
        self.fails = fails
        self.asked: list[str] = []

    def _step(self, name: str, about: str, *commands: list[str]) -> bool:
        self.asked.append(name)
        return name != self.fails

    def _tier(self, tier: Tier) -> Outcome:
        if tier.needs_tools:
            assert self.tools.wait(timeout=10)
        self.asked.append(tier.name)
        return Outcome(name=tier.name, passed=1)


def test_run_of_everything_takes_every_tier_once_and_the_node_first() -> None:
    run = RecordedRun()
    beside(run, list(TIERS), everything=True)
    names = [tier.name for tier in TIERS]
    assert sorted(run.asked) == sorted(
        ["kubernetes", "release", "earlier", "tools", "check", *names]
    )
    assert run.asked.index("kubernetes") < min(map(run.asked.index, ("release", "node")))
    users = sorted(map(run.asked.index, ("e2e-demo", "e2e-cli")))
    assert run.asked.index("release") < users[0]
    kill = sorted(map(run.asked.index, ("e2e-moves", "e2e-secured")))
    assert users[1] < run.asked.index("earlier") < run.asked.index("e2e-secured")
    assert users[1] < kill[0]
    assert kill[1] < run.asked.index("e2e-alone")
    assert run.asked.index("tools") < run.asked.index("unit")


def test_tidy_is_left_out_of_the_gates_alone_and_is_a_part_of_the_unit_tier() -> None:
    class Steps(RecordedRun):
        def _step(self, name: str, about: str, *commands: list[str]) -> bool:
            assert name == "check"
            assert commands == ([str(ROOT / "dev" / "check.sh"), "--but-tidy"],)
            return True

    Steps().check()
    assert 'gate "tidy" .venv/bin/python -m pytest' in (ROOT / "dev" / "check.sh").read_text()
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    assert (ROOT / "tests" / "test_tidy.py").is_relative_to(ROOT / unit.paths[0])
    assert "pytest.mark" not in (ROOT / "tests" / "test_tidy.py").read_text().replace(
        "pytest.mark.parametrize", ""
    )


def test_tiers_of_one_stage_run_beside_each_other_and_stages_in_turn() -> None:
    both = threading.Barrier(2)

    class Meeting(RecordedRun):
        def _tier(self, tier: Tier) -> Outcome:
            if tier.lane is not Lane.RELEASE_ALONE:
                both.wait(timeout=30)
            return super()._tier(tier)

    run = Meeting()
    beside(run, named(["e2e"]), everything=False)
    assert run.asked[:2] == ["kubernetes", "release"]
    assert sorted(run.asked[2:4]) == ["e2e-cli", "e2e-demo"]
    assert sorted(run.asked[4:7]) == ["e2e-moves", "e2e-secured", "earlier"]
    assert run.asked[7:] == ["e2e-alone"]


@pytest.mark.parametrize("lane", ON_RELEASE)
def test_tier_on_the_release_keeps_it_as_it_is(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "LOGS", tmp_path)
    asked: list[list[str]] = []

    def run_command(command: list[str], *_: object, **__: object) -> Ended:
        asked.append(command)
        return Ended(0, 0.0)

    run = Run(live=False)
    monkeypatch.setattr(run.processes, "run", run_command)
    run.tiers([Tier(name="x", about="", marker="e2e", limit_s=1, lane=lane)])
    assert asked[0][:2] == ["env", "KEEP_RELEASE=1"]
    run.tiers([Tier(name="y", about="", marker="e2e", limit_s=1, lane=Lane.BARE_NODE)])
    assert "env" not in asked[1]


ON_NODE = {"e2e-demo", "e2e-cli", "e2e-moves", "e2e-secured", "e2e-alone", "node"}


@pytest.mark.parametrize(
    ("step", "left_out"), [("kubernetes", ON_NODE), ("release", ON_NODE - {"node"})]
)
def test_run_without_a_node_or_release_leaves_out_the_tiers_on_it_alone(
    step: str, left_out: set[str]
) -> None:
    run = RecordedRun(fails=step)
    beside(run, list(TIERS), everything=True)
    assert {tier.name for tier in TIERS} - set(run.asked) == left_out


def test_run_of_one_tier_of_processes_builds_nothing() -> None:
    run = RecordedRun()
    beside(run, [tier for tier in TIERS if tier.name == "integration"], everything=False)
    assert run.asked == ["integration"]
