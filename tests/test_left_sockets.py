"""What test processes leave behind: sockets of kafka-python, and ports that they hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dev.kubectl import ROOT

LEAVES_BOTH = """
import asyncio
import gc
import socket
from tests.kafka_python import LEFT_SOCKETS

pytestmark = LEFT_SOCKETS


def test_that_leaves_a_socket():
    gc.disable()
    left = [socket.socket()]
    left.append(left)


def test_that_leaves_a_transport():
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    loop.run_until_complete(loop.connect_accepted_socket(asyncio.Protocol, ours))
    loop.close()
    theirs.close()


def test_in_which_the_collector_comes():
    gc.collect()
"""


@pytest.mark.slow
def test_leftover_sockets_fail_no_run(tmp_path: Path) -> None:
    path = tmp_path / "test_last.py"
    path.write_text(LEAVES_BOTH)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", str(path)]
    done = subprocess.run(
        [sys.executable, *command, "-p", "tests.e2e.conftest"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_reserved_ports_are_released_at_end() -> None:
    held = "from tests.integration.listening import free_ports; print(free_ports(1))"
    done = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", held],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
