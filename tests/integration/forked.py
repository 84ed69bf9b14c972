"""Processes of local clusters, forked from one that has imported what they run.

A broker needs two thirds of a second of a processor for its imports, and a test run starts some
four hundred: that was half of what the tests cost.  A process that is forked is otherwise like one
that was started: a process of its own with its arguments, environment and files, brokers with a
session of their own and children of their controller, which it waits for, and by whose end they
die.  A controller is forked with a process of its own beside it that forks its brokers, while there
is neither a thread nor an event loop.  Tests about starting and stopping run the real command
(`LocalCluster(…, forked=False)`), and so does everything outside of pytest.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = "plimsoll_operator.cli"
BROKER = "plimsoll_broker.__main__"
PLUGIN = "plimsoll_operator.kubectl_plugin.app"
ANSWER_S = 60.0


class Forked:
    """One that was forked; as much of `subprocess.Popen` as tests use."""

    def __init__(self, pid: int, ended: socket.socket, stdout: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        # Where its parent says how it ended.
        self._ended = ended

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            readable, _, _ = select.select([self._ended], [], [], timeout)
            if not readable:
                assert timeout is not None
                raise subprocess.TimeoutExpired("forked", timeout)
            said = self._ended.recv(64)
            self._ended.close()
            assert said, "the process that everything is forked from has ended"
            self.returncode = int(said)
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """As `Popen.send_signal`: who has just ended, and has not been heard of yet, gets none."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forker:
    """The process that has imported everything, and asks for forks of it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, socket.socket]:
        """Its pid, and where how it ended is said."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(os.environ if environment is None else environment),
            "directory": os.getcwd(),
        }
        with theirs:
            fds = [stdout, stderr, theirs.fileno()]
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
        self._socket.settimeout(ANSWER_S)
        answer = self._socket.recv(64)
        assert answer, "the process that everything is forked from has ended"
        return int(answer), ours

    def end(self) -> None:
        self._socket.close()
        self._process.wait(ANSWER_S)


@cache
def forker() -> Forker:
    made = Forker()
    atexit.register(made.end)
    return made


def end() -> None:
    """So that what its children used is counted as this process's children's."""
    if forker.cache_info().currsize:
        made = forker()
        forker.cache_clear()
        atexit.unregister(made.end)
        made.end()


def begin(
    command: list[str], stderr: IO[bytes], *, forked: bool
) -> subprocess.Popen[bytes] | Forked:
    """`python -m plimsoll_operator.cli …` itself, or a fork that does what it does."""
    if not forked:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
    assert command[1:3] == ["-m", OPERATOR]
    return start(OPERATOR, command[3:], stderr)


def start(module: str, arguments: Sequence[str], stderr: IO[bytes]) -> Forked:
    """With its standard output in a pipe, as `Popen` has it."""
    reading, writing = os.pipe()
    try:
        pid, ended = forker().start(module, arguments, stdout=writing, stderr=stderr.fileno())
    finally:
        os.close(writing)
    return Forked(pid, ended, os.fdopen(reading, "rb"))


def run(
    module: str,
    arguments: Sequence[str],
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` with `capture_output`.  Raises subprocess.TimeoutExpired."""
    with _memory() as stdout, _memory() as stderr:
        pid, ended = forker().start(
            module,
            arguments,
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            environment=environment,
        )
        process = Forked(pid, ended, None)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read())
    return subprocess.CompletedProcess([module, *arguments], code, *said)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("output"), "w+b")
