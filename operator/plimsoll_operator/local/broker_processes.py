"""Starts, watches, restarts and stops the broker processes of a local cluster.

`broker_pods` owns one `BrokerProcess` for each pod of a broker. A process dies with its parent (it
requests that from the kernel), so none is left behind however the parent ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio import create_subprocess_exec
from collections.abc import Callable
from pathlib import Path

from plimsoll_operator.local.layout import DirectoryLayout
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.local")

BACKOFF_MS = 100
BACKOFF_MS_MAX = 5_000
STEADY_MS = 10_000
"""A process that ran this long is restarted without delay."""
STOP_MS_MAX = 30_000
FINAL_CODES = (2, 3)
"""A bad config, or another broker's volume: a restart would end the same."""
TAKEN_STARTS_MAX = 5
"""Consecutive starts that find a port taken before the broker is given up. An outgoing connection
uses a port briefly; another process that listens there keeps it."""
LOG_BYTES_MAX = 16 * 1024 * 1024


class BrokerProcess:
    """One pod's broker. `run` is the task that keeps it alive; its config has been written
    before."""

    def __init__(
        self,
        broker_id: int,
        layout: DirectoryLayout,
        *,
        restart: bool,
        changed: Callable[[], None],
        port_taken: Callable[[], str],
    ) -> None:
        """`port_taken`: returns a sentence about a port of the broker that another process uses,
        else ""."""
        self.broker_id = broker_id
        # The running process's pid; None between two processes.
        self.pid: int | None = None
        # True if it is not restarted although no stop was requested.
        self.ended = False
        # The number of restarts.
        self.restarts = 0
        # Why the last process ended; empty before that.
        self.why = ""
        self._layout = layout
        self._restart = restart
        self._changed = changed
        self._port_taken = port_taken
        # Consecutive exits that found a port taken.
        self._taken = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Return True if it was asked to stop."""
        return self._stopping.is_set()

    @property
    def last_words(self) -> str:
        """The last line of its log, for the user."""
        path = self._layout.broker_log(self.broker_id)
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return lines[-1] if lines else "no output"

    async def run(self) -> None:
        """Run until stopped; with `restart`, restart the process after any exit."""
        backoff_ms = BACKOFF_MS
        while not self._stopping.is_set():
            started = time.monotonic()
            code = await self._run_once()
            # A killed process wrote no reason; otherwise its last line is the reason.
            self.why = self.last_words if code > 0 else _signal_name(-code)
            if self._stopping.is_set() or not self._restart or self._is_final(code):
                self.ended = not self._stopping.is_set()
                logger.info("broker %d exited with %d", self.broker_id, code)
                self._changed()
                return
            self._changed()
            ran_ms = (time.monotonic() - started) * 1000
            backoff_ms = BACKOFF_MS if ran_ms > STEADY_MS else min(backoff_ms * 2, BACKOFF_MS_MAX)
            logger.warning("broker %d exited (%s); restarting it", self.broker_id, self.why)
            await set_within(self._stopping, backoff_ms / 1000)
            self.restarts += 1

    def _is_final(self, code: int) -> bool:
        """Return True if a restart would end the same; log it if a port is the reason."""
        taken = self._port_taken() if code > 0 else ""
        self._taken = self._taken + 1 if taken else 0
        if self._taken >= TAKEN_STARTS_MAX:
            self.why = taken
            logger.error("broker %d is not restarted until the next run: %s", self.broker_id, taken)
            return True
        return code in FINAL_CODES

    async def _run_once(self) -> int:
        log_path = self._layout.broker_log(self.broker_id)
        _rotate(log_path)
        with log_path.open("ab") as log:
            process = await create_subprocess_exec(
                sys.executable,
                *("-m", "plimsoll_broker"),
                *("--config", str(self._layout.broker_config(self.broker_id))),
                *("--die-with-parent", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process, self.pid = process, process.pid
        self._changed()
        if self._stopping.is_set():
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._process, self.pid = None, None

    async def stop(self, grace_ms: int = STOP_MS_MAX) -> None:
        """Ask the process to stop and wait; kill it only after the grace period."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await process.wait()
        except TimeoutError:
            logger.warning("broker %d did not stop in time; killing it", self.broker_id)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name if number else "cleanly"
    except ValueError:
        return f"signal {number}"


def _rotate(path: Path) -> None:
    """Rotate a large log; one older log is kept."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))
