"""The times of a backup, by clocks that may jump.

The host's clock may be years wrong for a while, and what a backup deletes by it is gone. So a
host's clock that is far ahead of the API server's is ignored, ages of what is deleted grow no
faster than the monotonic clock, and durations use the monotonic clock alone.
"""

from __future__ import annotations

from collections.abc import Callable

AHEAD_MS = 300_000
"""Milliseconds by which the host's clock may be ahead of the API server's time in its last answer.
They include the age of that answer."""


class BackupClock:
    """The clocks of one operator's process, in milliseconds. `host_ms`: its wall clock;
    `monotonic_ms`: a clock that never steps; `server_ms`: returns the API server's wall clock in
    its last answer, None if there was none."""

    def __init__(
        self,
        host_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        server_ms: Callable[[], int | None],
    ) -> None:
        self._host_ms = host_ms
        self._server_ms = server_ms
        self.monotonic_ms = monotonic_ms
        # How far the wall clock is ahead of the monotonic clock, at its least; None before the
        # first look.
        self._ahead_ms: int | None = None

    def now_ms(self) -> int:
        """Return the wall-clock time to store, in milliseconds since 1970: the host's, or the API
        server's if the host's is too far ahead of it."""
        host_ms, server_ms = self._host_ms(), self._server_ms()
        if server_ms is None or host_ms - server_ms <= AHEAD_MS:
            return host_ms
        return server_ms

    def deletion_ms(self) -> int:
        """Return the time by which to judge what is old enough to be deleted, in milliseconds since
        1970. It is no later than `now_ms`, and a jump ahead does not move it: it counts on from the
        earliest reading of the wall clock in this process."""
        monotonic_ms = self.monotonic_ms()
        ahead_ms = self.now_ms() - monotonic_ms
        if self._ahead_ms is None or ahead_ms < self._ahead_ms:
            self._ahead_ms = ahead_ms
        return monotonic_ms + self._ahead_ms
