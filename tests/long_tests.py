"""Prints where a test is that takes long.

pytest does it too (`faulthandler_timeout`), with a thread for each test, for whose end it waits:
0.8 ms of a processor for each of eleven thousand tests, and more time than most of them take where
others keep the processors busy.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

ARMED_AGAIN_S = 10
"""How late stacks may be: tests that begin within it share a thread."""


class LongTests:
    """`after_s`: seconds that a test may take before the stacks of all threads are printed."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        # Tests' own output is captured.
        self._output = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
        # Monotonic seconds.
        self._armed_s = -ARMED_AGAIN_S

    def begin(self) -> None:
        """A test begins."""
        now_s = time.monotonic()
        if now_s - self._armed_s >= ARMED_AGAIN_S:
            self._armed_s = now_s
            faulthandler.dump_traceback_later(self._after_s + ARMED_AGAIN_S, file=self._output)

    def end(self) -> None:
        """No more tests."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._output)
