"""The process that keeps a continuous run's driver running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.local_cluster import wait_for

from plimsoll_spark import supervisor

DRIVER = """
import pathlib, sys
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
sys.exit(0 if len(runs.read_text()) == 3 else 1)
"""
SUPERVISED = """
import sys
from plimsoll_spark.supervisor import keep_running
code = "import os, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
sys.exit(keep_running([sys.executable, "-c", "import sys; " + code, sys.argv[1]]))
"""


def test_driver_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    monkeypatch.setattr(supervisor, "PAUSE_MAX_S", 0.01)
    words = [sys.executable, "-c", DRIVER, str(tmp_path / "runs")]
    assert supervisor.keep_running(words) == 0
    assert (tmp_path / "runs").read_text() == "xxx"


def test_refused_driver_is_not_started_again() -> None:
    assert supervisor.keep_running([sys.executable, "-c", "import sys; sys.exit(2)"]) == 2


def test_termination_ends_the_driver_too(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    watcher = subprocess.Popen([sys.executable, "-c", SUPERVISED, str(file)])
    wait_for("the driver", lambda: file.exists() and file.read_text(), 300)
    pid = int(file.read_text())
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(300) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
