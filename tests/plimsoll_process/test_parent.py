"""A program that was asked to end with its parent does, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

PROGRAM = "import signal; print('runs', flush=True); signal.pause()"
PARENT = f"""
import os, subprocess, sys
words = [sys.executable, "-m", "plimsoll_process.parent", str(os.getpid())]
child = subprocess.Popen([*words, sys.executable, "-c", {PROGRAM!r}])
child.wait()
"""
WITHIN_S = 30


def test_program_is_killed_when_its_parent_is() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"runs\n"
        os.kill(parent.pid, signal.SIGKILL)
        # The program has the other end of the pipe, until it ends.
        readable, _, _ = select.select([parent.stdout], [], [], WITHIN_S)
        assert readable
        assert parent.stdout.read() == b""


def test_program_with_dead_parent_does_not_start() -> None:
    words = [sys.executable, "-m", "plimsoll_process.parent", "1", sys.executable, "-c", PROGRAM]
    ended = subprocess.run(words, capture_output=True, timeout=WITHIN_S, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
