"""How much CPU time single callbacks of an asyncio loop use, for tests that must not be held up.

CPU time of the loop's thread, and not the clock on the wall: a busy machine proves nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from plimsoll_process.loop_watch import HELD_S_MAX


@dataclass
class Longest:
    """The callback that held the loop longest."""

    cpu_s: float = 0.0
    callback: str = "none"


@contextmanager
def nothing_holds_the_loop(held_s_max: float = HELD_S_MAX) -> Iterator[Longest]:
    """Fails when one callback or one step of a task used more CPU time than that.  The loop must be
    asyncio's own; collections of garbage count for whoever they interrupt."""
    longest = Longest()
    plain = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began_s = time.thread_time()
        plain(handle)
        used_s = time.thread_time() - began_s
        if used_s > longest.cpu_s:
            # A step of a task is known by its task only.
            whose = getattr(handle._callback, "__self__", None)
            text = repr(whose) if isinstance(whose, asyncio.Task) else repr(handle)
            longest.cpu_s, longest.callback = used_s, text

    # As the entry points do it: what was there before is never looked at again.  Nor is it after
    # the block: each test that comes here would go through all that pytest has collected.
    gc.collect()
    gc.freeze()
    asyncio.Handle._run = timed
    try:
        yield longest
    finally:
        asyncio.Handle._run = plain
    used_ms = longest.cpu_s * 1000
    assert longest.cpu_s <= held_s_max, f"held for {used_ms:.0f} ms by {longest.callback}"
