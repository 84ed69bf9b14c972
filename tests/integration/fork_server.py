"""The process that those of local clusters are forked from (`tests.integration.forked` asks it).

It has imported what they run, and has neither a thread nor an event loop.  It waits for those it
forked, and tells how they ended.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tests.integration.forked import ANSWER_S, BROKER, OPERATOR

from plimsoll_operator.api_server import kinds

REQUEST_BYTES_MAX = 256 * 1024
LATE = ("typer._adapters",)
"""What a controller imports when it has begun."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def serve(control: socket.socket) -> None:
    """Until pytest has ended."""
    for module in (OPERATOR, BROKER, *LATE):
        importlib.import_module(module)
    kinds.shipped()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "nothing that a fork would not have"
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([control, woken], [], [])
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(running)
        if control in readable:
            message, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 3)
            if not message:
                return
            request = json.loads(message)
            importlib.import_module(request["module"])
            pid = os.fork()
            if pid == 0:
                _run(request, fds[0], fds[1])
            running[pid] = socket.socket(fileno=fds[2])
            for fd in fds[:2]:
                os.close(fd)
            control.send(b"%d" % pid)


def _reap(running: dict[int, socket.socket]) -> None:
    """Tell how those ended that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as ended, contextlib.suppress(OSError):
            ended.send(b"%d" % os.waitstatus_to_exitcode(status))


def _run(request: dict[str, Any], stdout: int, stderr: int) -> NoReturn:
    """Be the process that was asked for."""
    with _ending():
        _only(stdout, stderr)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        module = request["module"]
        if module == OPERATOR:
            _fork_brokers_of_this()
        _main(module, request["arguments"])
    raise AssertionError("it has ended")


def _main(module: str, arguments: Sequence[str]) -> None:
    found = sys.modules[module]
    sys.argv = [str(found.__file__), *arguments]
    sys.exit(found.main())


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """However the block ends, this process ends, as the interpreter ends one."""
    code = 1
    try:
        yield
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 of whatever kind
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _only(stdout: int, stderr: int, *kept: int) -> None:
    """These files and no others; signals as a program finds them."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    last = 2
    for fd in sorted(kept):
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# --- in a forked controller -----------------------------------------------------------------------


def _fork_brokers_of_this() -> None:
    """Fork the process that forks this controller's brokers, and have it asked."""
    from plimsoll_operator.local import broker_pods

    # Brokers are forked by another process, and become children of this one when that one ends.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()
    if os.fork() == 0:
        with _ending():
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            ours.close()
            _serve_brokers(theirs)
            sys.exit(0)
    theirs.close()

    async def fork(_: str, flag: str, module: str, *arguments: str, **files: Any) -> _Broker:
        assert (flag, module) == ("-m", "plimsoll_broker")
        socket.send_fds(ours, [json.dumps(arguments).encode()], [files["stdout"].fileno()])
        return _Broker(int(ours.recv(64)))

    broker_pods.create_subprocess_exec = fork  # type: ignore[assignment]


def _serve_brokers(control: socket.socket) -> None:
    while True:
        message, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 1)
        if not message:
            return
        pid = _fork_orphan(json.loads(message), fds[0])
        os.close(fds[0])
        control.send(b"%d" % pid)


def _fork_orphan(arguments: list[str], output: int) -> int:
    """A broker whose parent has ended already, so that it is the controller's; its pid."""
    # Read once this process has waited for the broker's parent.
    adopted, adopts = os.pipe()
    told, tells = os.pipe()
    parent = os.fork()
    if parent == 0:
        with _ending():
            pid = os.fork()
            if pid == 0:
                os.close(adopts)
                os.read(adopted, 1)
                os.setsid()
                _only(output, output)
                _main(BROKER, arguments)
            os.write(tells, b"%d" % pid)
            os._exit(0)
    os.waitpid(parent, 0)
    pid = int(os.read(told, 64))
    for fd in (adopted, adopts, told, tells):
        os.close(fd)
    return pid


class _Broker:
    """As much of asyncio's `Process` as `broker_pods` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._fd = os.pidfd_open(pid)
        self._loop.add_reader(self._fd, self._reap)

    def _reap(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.returncode = os.waitstatus_to_exitcode(status)
            self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
        # Those that are left end by themselves: nobody is there to tell.
        until = time.monotonic() + ANSWER_S
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until and os.waitpid(-1, os.WNOHANG) is not None:
                time.sleep(0.05)
