"""What is forked for tests is what the command would have been (tests/integration/forked.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.integration import forked
from tests.integration.local_cluster import LocalCluster, runs, wait_for


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def files(pid: int) -> Mapping[int, str]:
    """By number, what a process has open."""
    links = {int(one.name): one for one in Path(f"/proc/{pid}/fd").iterdir()}
    return {number: os.readlink(link) for number, link in links.items()}


def test_forked_brokers_are_children_with_own_sessions(
    tmp_path: Path,
) -> None:
    with LocalCluster(tmp_path / "c", brokers=2) as cluster:
        pids = cluster.broker_pids
        assert [parent(pid) for pid in pids] == [cluster.controller_pid] * 2
        assert [os.getsid(pid) for pid in pids] == pids
        for broker, pid in enumerate(pids):
            log = str(cluster.directory / "logs" / f"broker-{broker}.log")
            assert [files(pid)[number] for number in range(3)] == [os.devnull, log, log]
        killed = cluster.kill_broker(0)
        cluster.wait_rejoined(0, killed)
        assert not runs(killed)
        assert "SIGKILL" in cluster.operator_log.read_text()
        assert cluster.stop() == 0
        assert not any(runs(pid) for pid in pids)


def test_killed_forked_controller_takes_brokers_along(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", brokers=2)
    cluster.start()
    pids = cluster.broker_pids
    os.kill(cluster.controller_pid, signal.SIGKILL)
    wait_for("the brokers are gone", lambda: not any(Path(f"/proc/{p}").exists() for p in pids))
    assert cluster.stop() == -signal.SIGKILL


def test_forked_command_has_arguments_output_and_code() -> None:
    done = forked.run(forked.OPERATOR, ["version"], timeout=60)
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, b"plimsoll", b"")
    refused = forked.run(forked.OPERATOR, ["local", "-f", "/nonexistent"], timeout=60)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"/nonexistent" in refused.stderr
    environment = {**os.environ, "KUBECONFIG": "/nonexistent"}
    words = ["status"]
    told = forked.run(forked.PLUGIN, words, timeout=60, environment=environment)
    assert told.returncode == 1
    assert b"Traceback" not in told.stderr
