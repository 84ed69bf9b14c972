"""The demos' own parts: what they wait for, print and judge; what the local one leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dev import demo, demo_kubernetes, demo_steps
from dev.demo_steps import Steps, Story, View
from dev.kubectl import ROOT, GaveUp
from tests.integration.local_cluster import wait_for

PARTITIONS = range(3)
COUNTS = {"sent": 9, "acked": 9, "read": 9, "lost": 0, "duplicated": 0, "outOfOrder": 0}
PASSED = {"phase": "Completed", "verdict": "Passed", "counts": COUNTS}
STALLS = dict.fromkeys(PARTITIONS, 400.0)


def a_view(leader: int | None, isr: tuple[int, ...] = (0, 1, 2), at: float = 0.0) -> View:
    return View(
        at=at,
        leaders=dict.fromkeys(PARTITIONS, leader),
        isr={p: list(isr) for p in PARTITIONS},
        replicas={p: [0, 1, 2] for p in PARTITIONS},
    )


def writing(acked: int) -> dict[str, Any]:
    return {"phase": "Producing", "counts": {"acked": acked}}


class Scripted:
    """`DemoCluster`: answers in turn, the last one for good."""

    def __init__(self, views: list[View | None], statuses: list[dict[str, Any]]) -> None:
        self.views = views
        self.statuses = statuses
        self.killed = 0
        self.stalls: dict[str, float] = {str(p): stall for p, stall in STALLS.items()}

    def view(self) -> View | None:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def verification(self) -> dict[str, Any]:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def kill_broker(self) -> None:
        self.killed += 1

    def restarted_at(self, killed_at: float) -> float | None:
        return killed_at + 1

    def report(self) -> dict[str, str]:
        timing = {"stallMillisecondsByPartition": self.stalls}
        return {"verdict.json": json.dumps({"timing": timing})}


def a_run(**changes: Any) -> Scripted:
    before, survived = a_view(0), a_view(1, (1, 2))
    views: list[View | None] = [None, before, before, a_view(None), survived, a_view(1)]
    statuses = [{}, writing(0), writing(5_000), PASSED | changes]
    return Scripted(views, statuses)


@pytest.fixture(autouse=True)
def without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dev.kubectl.time.sleep", lambda _: None)


def test_broker_is_killed_once_during_passing_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, story = a_run(), Story()
    demo_steps.kill_and_judge(cluster, story, Steps(7))
    assert cluster.killed == 1
    assert story.shortfalls == []
    assert story.exit_code == 0
    assert story.during is not None
    assert story.during.leaders == dict.fromkeys(PARTITIONS, 1)
    said = capsys.readouterr().out
    assert "SHORT" not in said
    assert said.count("400 ms") == len(PARTITIONS) + 1


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"verdict": "Violated"}, "verdict Violated"),
        ({"counts": COUNTS | {"lost": 2}}, "2 acked records lost"),
        ({"counts": COUNTS | {"duplicated": 3}}, "3 duplicated"),
        ({"counts": COUNTS | {"outOfOrder": 4}}, "4 out of order"),
    ],
    ids=["verdict", "lost", "duplicated", "order"],
)
def test_run_that_falls_short_says_in_what(changed: dict[str, Any], sentence: str) -> None:
    story = Story()
    demo_steps.kill_and_judge(a_run(**changed), story, Steps())
    assert story.shortfalls == [sentence]
    assert story.exit_code == 1


@pytest.mark.parametrize(
    ("stalls", "sentence", "code"),
    [
        ({"0": 1.0, "1": 1.0}, "stalls of 2 partitions are known", 1),
        ({"0": 1.0, "1": 1.0, "2": 2_001.0}, "worst stall of writes", 2),
    ],
    ids=["unknown", "too long"],
)
def test_unknown_or_long_stall_fails_the_demo(
    stalls: dict[str, float], sentence: str, code: int
) -> None:
    cluster, story = a_run(), Story()
    cluster.stalls = stalls
    demo_steps.kill_and_judge(cluster, story, Steps())
    (shortfall,) = story.shortfalls
    assert shortfall.startswith(sentence)
    assert story.exit_code == code


def test_slow_run_with_lost_record_fails() -> None:
    cluster, story = a_run(counts=COUNTS | {"lost": 1}), Story()
    cluster.stalls = {"0": 1.0, "1": 1.0, "2": 2_001.0}
    demo_steps.kill_and_judge(cluster, story, Steps())
    assert len(story.shortfalls) == 2
    assert story.exit_code == 1


def test_verification_ended_before_kill_ends_demo() -> None:
    cluster = Scripted([a_view(0)], [PASSED])
    with pytest.raises(GaveUp, match="ended before the kill"):
        demo_steps.kill_and_judge(cluster, Story(), Steps())
    assert cluster.killed == 0


def test_refused_verification_names_what_to_install() -> None:
    condition = {"type": "Ready", "reason": "VerificationDisabled", "message": "Install Java."}
    cluster = Scripted([a_view(0)], [{"phase": "Pending", "conditions": [condition]}])
    with pytest.raises(GaveUp, match=r"Install Java\."):
        demo_steps.kill_and_judge(cluster, Story(), Steps())


def test_long_wait_repeats_what_it_awaits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(100))
    monkeypatch.setattr("dev.kubectl.time.monotonic", lambda: float(next(seconds)))
    looks = iter([None] * 20)
    demo_steps.wait("a leader", lambda: next(looks, True), 90)
    assert capsys.readouterr().out.count("still waiting for a leader") >= 5


# --- the local demo -------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a `plimsoll local` over the directory."""
    code = "import signal; print('runs', flush=True); signal.pause()"
    words = [sys.executable, "-c", code, "local", "--data", str(tmp_path / "demo")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def show_pid(directory: Path, pid: int) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "pids.json").write_text(json.dumps({"0": 1, "controller": pid}))


def test_cluster_that_an_earlier_demo_kept_is_stopped(
    tmp_path: Path, kept: subprocess.Popen[bytes]
) -> None:
    directory = tmp_path / "demo"
    show_pid(directory, kept.pid)
    assert demo.kept_before(directory) == kept.pid
    demo.clear(directory)
    assert kept.wait(30) == -signal.SIGTERM
    assert not directory.exists()


@pytest.mark.parametrize("runs", [False, True], ids=["stopped", "running"])
def test_cluster_with_user_topics_is_kept(
    tmp_path: Path, kept: subprocess.Popen[bytes], runs: bool
) -> None:
    directory = tmp_path / "demo"
    if runs:
        show_pid(directory, kept.pid)
    for name in ("orders-0", "__consumer_offsets-3", "__cluster_metadata"):
        (directory / "broker-0" / name).mkdir(parents=True)
    demo.check_nothing_is_lost(directory)
    (directory / "broker-1" / "mine-14").mkdir(parents=True)
    with pytest.raises(GaveUp, match=r"not the demo's: mine\.") as refused:
        demo.run(demo.LocalDemo(directory, keep=False), Story(), keep=False)
    assert (f"kill {kept.pid}" in str(refused.value)) is runs
    assert f"rm -r {directory}" in str(refused.value)
    assert kept.poll() is None
    assert directory.exists()


def test_foreign_process_under_old_pid_is_spared(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    show_pid(directory, os.getpid())
    assert demo.kept_before(directory) is None
    demo.clear(directory)
    assert not directory.exists()


SLOW_TO_STOP = """
import os, pathlib, signal, sys
from dev import demo

class Slow(demo.LocalDemo):
    is_running = True

    def stop(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        print("stopped all the same", flush=True)

def run(*_, **__):
    os.kill(os.getpid(), signal.{first})

demo.LocalDemo, demo.run = Slow, run
sys.argv = ["demo"]
sys.exit(demo.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_repeated_interrupt_does_not_break_stopping(first: str) -> None:
    words = [sys.executable, "-c", SLOW_TO_STOP.replace("{first}", first)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == ""
    interrupted, stopping, *already, stopped = done.stdout.splitlines()
    assert (interrupted, stopped) == ("interrupted", "stopped all the same")
    assert "stopping Spark" in stopping
    assert ["stopping already" in line for line in already] == [True, True]


def test_unkept_demo_dies_with_its_process(tmp_path: Path) -> None:
    ends, stays = (demo.LocalDemo(tmp_path, keep=keep).command for keep in (False, True))
    assert ends[2:4] == ["plimsoll_process.parent", str(os.getpid())]
    assert "plimsoll_process.parent" not in stays
    assert [word for word in ends if word.endswith(".yaml")] == [
        str(ROOT / "examples" / name) for name in demo.EXAMPLES
    ]


@pytest.mark.parametrize("keep", [False, True])
def test_files_to_apply_exist(keep: bool) -> None:
    cluster = demo.LocalDemo(demo.DIRECTORY, keep=keep)
    metrics = {"0": "http://127.0.0.1:3/metrics", "controller": "http://127.0.0.1:4/metrics"}
    cluster.ready = {"bootstrap": "127.0.0.1:1,127.0.0.1:2", "metrics": metrics}
    if keep:
        cluster._process = subprocess.Popen(["true"])
        wait_for("its end", lambda: cluster._process is not None and cluster._process.poll() == 0)
    lines = demo.what_next(cluster, demo.DIRECTORY / "report.html", keep=keep)
    named = [word for line in lines for word in line.split() if word.startswith("examples/")]
    assert len(named) == len(demo.EXAMPLES) + 1
    assert all((ROOT / name).exists() for name in named)
    assert ("runs on" in " ".join(lines)) is keep
    assert "  http://127.0.0.1:3/metrics  (broker 0)" in lines
    assert "  http://127.0.0.1:4/metrics  (the controller)" in lines


def test_kubernetes_demo_ends_with_a_node_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named the command that removes the node, and not the one that stops it."""
    monkeypatch.delenv("USE_CURRENT_CONTEXT", raising=False)
    demo_kubernetes.what_next()
    said = capsys.readouterr().out
    assert 0 < said.index("dev/node.sh down") < said.index("dev/node.sh destroy")


def test_report_opens_only_with_a_screen() -> None:
    assert not demo.has_browser({"BROWSER": "lynx"})
    assert demo.has_browser({"DISPLAY": ":0"})
