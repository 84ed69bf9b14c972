"""An event loop whose time goes on only when nothing else is left to do: a test of what follows
from time alone says the same however long its process is stopped.

Nothing outside the process is waited for, and threads are none of its tests' business: it would
let the time of a timeout pass before an answer of theirs is there.
"""

from __future__ import annotations

import asyncio
import selectors


class _Selector(selectors.DefaultSelector):
    """What would be waited for has passed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.passed_s += timeout
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time begins at 0."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.passed_s


class VirtualTimePolicy(asyncio.DefaultEventLoopPolicy):
    """For a module's fixture `event_loop_policy`."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()
