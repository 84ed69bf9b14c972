"""`make test` leaves nothing out: every test is of one tier, and lies where that tier looks."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dev import tier_lanes, tiers
from dev.tier_lanes import ALERTS, KILLING, MARKED, TIERS, UNMARKED, USING, Lane, Tier, named
from dev.tier_summary import Outcome, judge, progress, summary
from dev.tiers import ROOT, TIMED_OUT, Run, beside

MARK = re.compile(r"pytest\.mark\.(\w+)")
KILLS = re.compile(r"kill(?:ed)?_operator|KillOperator|rollout|deployment/plimsoll")
"""How a test has one pod of the operator end: another leads within seconds."""
DISTURBS = re.compile(
    r"no_api_server|hung_api_server|stopped_operator|scale\", \"deployment|\bfired\("
    r"|\"helm\"|\bupgrade\(|install_present|customresourcedefinition"
)
"""What a test does to all of the operator's pods, the API server or the release that others use;
or how it would notice that another test kills an operator."""
REPORT = """<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">
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
    assert {name for _, name in found} == {tier.marker for tier in TIERS} - {UNMARKED}
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
    (tmp_path / "a/b/test_c.py").write_text("@pytest.mark." + "long\n")
    (tmp_path / "a/test_d.py").write_text('MARK = "pytest.mark.' + 'long"\n')
    tier = Tier(name="", about="", marker="", limit_s=1, lane=Lane.COMPUTING, paths=("a",))
    assert tier.has_long_tests()
    assert not replace(tier, ignored=("a/b",)).has_long_tests()
    assert replace(tier, paths=("a/b/test_c.py",)).has_long_tests()
    assert not replace(tier, paths=("a/test_d.py",)).has_long_tests()


def test_end_to_end_tests_have_one_tier() -> None:
    on_node = [tier for tier in TIERS if tier.marker == "e2e"]
    for path in sorted((ROOT / "tests" / "e2e").glob("test_*.py")):
        inside = [tier.name for tier in on_node if tier.looks_at(path.relative_to(ROOT))]
        assert len(inside) == 1, (path, inside)


@pytest.mark.parametrize("path", USING)
def test_shared_end_to_end_tests_leave_operator_alone(
    path: str,
) -> None:
    text = (ROOT / path).read_text()
    assert KILLS.findall(text) == DISTURBS.findall(text) == []


@pytest.mark.parametrize("path", KILLING)
def test_operator_killing_tests_do_nothing_worse(path: str) -> None:
    text = (ROOT / path).read_text()
    assert KILLS.search(text)
    assert DISTURBS.findall(text) == []


@pytest.mark.parametrize("name", ["installing", "upgrade", "outages", "prometheus"])
def test_disturbing_tests_are_recognised_by_calls(
    name: str,
) -> None:
    assert DISTURBS.search((ROOT / "tests" / "e2e" / f"test_{name}.py").read_text())


def test_tier_prefix_names_all_its_tiers() -> None:
    assert [tier.name for tier in named(["e2e"])] == [*("e2e-using", "e2e-killing", "e2e-alone")]
    assert [tier.name for tier in named(["node", "e2e-alone"])] == ["e2e-alone", "node"]
    assert [tier.name for tier in named(["unit"])] == ["unit", "unit-alerts"]
    assert named(["e2"]) == named([]) == []


def test_unit_tier_takes_the_rest() -> None:
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    others = {tier.marker for tier in TIERS} - {unit.marker}
    default = Tier(name="", about="", marker="", limit_s=1, lane=Lane.COMPUTING)
    assert unit.paths == default.paths == ("tests",)
    assert unit.ignored == (*MARKED, *ALERTS)
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


@pytest.mark.parametrize("code", [1, 2, 4, 124, -9])
def test_tier_without_a_report_has_failed(tmp_path: Path, code: int) -> None:
    outcome = Outcome(name="unit")
    judge(outcome, code, tmp_path / "report.xml", 9)
    assert outcome.failed == 1
    assert outcome.note


def test_summary_fails_on_failure_or_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = Outcome(name="unit", passed=2, tests=[(3.0, "slow"), (1.0, "quick")])
    assert summary([good], 4.0) == 0
    shown = capsys.readouterr().out
    assert shown.index("slow") < shown.index("quick")
    assert shown.endswith("2 passed, 0 failed, 0 skipped\n")
    assert summary([good, Outcome(name="e2e", failed=1)], 4.0) == 1
    assert summary([Outcome(name="unit")], 4.0) == 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(tiers, "LOGS", tmp_path)
    return Run(live=False)


def test_children_keep_bytecode_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert run.child([sys.executable, "-c", code], 60, None)[0] == 0


def test_child_is_measured_with_what_it_waited_for(run: Run) -> None:
    counts = f"{sys.executable} -c 'sum(range(10**7))'; exit 3"
    code, used = run.child(["bash", "-c", counts], 60, None)
    assert code == 3
    assert used > 0.05


def test_child_is_killed_at_its_limit(run: Run) -> None:
    assert run.child(["bash", "-c", "sleep 1000; true"], 0.1, None)[0] == TIMED_OUT


def test_failing_step_ends_its_commands(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run.step("x", "three commands", ["echo", "told"], ["false"], ["echo", "never"])
    (outcome,) = run.outcomes
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert outcome.failures[0].reason.strip() == "told"
    assert "x: 0 passed, 1 failed" in capsys.readouterr().out
    assert run.under_way == {}


def test_progress_is_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("collecting ...\ntests/a.py::test_b PASSED [ 12%]\n\n")
    assert progress(log) == ", tests/a.py::test_b PASSED [ 12%]"
    log.write_text("")
    assert progress(log) == ""


class RecordedRun(Run):
    """Runs nothing; remembers what it was asked for. `fails`: the step that does."""

    def __init__(self, *, fails: str = "") -> None:
        super().__init__(live=False)
        self.fails = fails
        self.asked: list[str] = []

    def step(self, name: str, about: str, *commands: list[str]) -> bool:
        self.asked.append(name)
        return name != self.fails

    def tier(self, tier: Tier) -> None:
        self.wait_for_helm(tier)
        self.asked.append(tier.name)


def test_full_run_takes_every_tier_once() -> None:
    run = RecordedRun()
    beside(run, list(TIERS), everything=True)
    steps = ["kubernetes", "release", "check"]
    assert sorted(run.asked) == sorted([*steps, *(tier.name for tier in TIERS)])
    order = ("kubernetes", "release", "e2e-using", "e2e-killing", "e2e-alone")
    places = [run.asked.index(name) for name in order]
    assert places == sorted(places)
    assert run.asked.index("kubernetes") < run.asked.index("node")
    assert run.asked.index("kubernetes") < run.asked.index("unit"), "it brings helm"


def test_tidy_is_part_of_unit_tier() -> None:
    text = (ROOT / "dev" / "check.sh").read_text()
    assert 'gate "tidy" .venv/bin/python -m pytest' in text.partition("--but-tidy ]")[2]
    (unit,) = [tier for tier in TIERS if tier.name == "unit"]
    assert unit.looks_at(Path("tests/test_tidy.py"))
    marks = set(MARK.findall((ROOT / "tests" / "test_tidy.py").read_text()))
    assert marks <= {"parametrize"}


def command_of(run: Run, tier: Tier, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[list[str]] = []

    def child(command: list[str], *_: object, **__: object) -> tuple[int, float]:
        asked.append(command)
        return 0, 0.0

    monkeypatch.setattr(run, "child", child)
    run.tier(tier)
    return asked[0]


def test_release_tier_keeps_the_release(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = Tier(name="x", about="", marker="e2e", limit_s=1, lane=Lane.RELEASE, workers=2)
    command = command_of(run, tier, monkeypatch)
    assert command[:2] == ["env", "KEEP_RELEASE=1"]
    assert "-n 2 --dist loadfile" in " ".join(command)
    bare = replace(tier, lane=Lane.BARE_NODE, workers=0)
    assert {"env", "-n"} & set(command_of(run, bare, monkeypatch)) == set()


ON_NODE = {"e2e-using", "e2e-killing", "e2e-alone", "node"}


@pytest.mark.parametrize(
    ("step", "left_out"), [("kubernetes", ON_NODE), ("release", ON_NODE - {"node"})]
)
def test_run_without_node_skips_its_tiers(step: str, left_out: set[str]) -> None:
    run = RecordedRun(fails=step)
    beside(run, list(TIERS), everything=True)
    assert {tier.name for tier in TIERS} - set(run.asked) == left_out


def test_run_without_node_builds_helm_alone() -> None:
    run = RecordedRun()
    beside(run, [tier for tier in TIERS if tier.name == "unit"], everything=False)
    assert run.asked == ["helm", "unit"]


def test_run_of_one_tier_of_processes_builds_nothing() -> None:
    run = RecordedRun()
    beside(run, [tier for tier in TIERS if tier.name == "integration"], everything=False)
    assert run.asked == ["integration"]
