"""Bugs of ours in the operator, and what each costs: no loop and no task swallows one.

A request's bug costs the broker's connection.  A bug in what leads a cluster (its decisions, its
tasks) ends that cluster's leadership: all that it knows comes from the cluster's log, and is built
anew; but one in a pass over an object, or in the making of its status, costs that object alone
(`is_of_one_object`).  Anything else that passed through our code ends the process.
Source: docs/design/009-exceptions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll_core.unhandled_errors import COSTS, ends_process

logger = logging.getLogger("plimsoll.failures")

OURS = "plimsoll_"
TRACEBACK_EVERY_S = 1.0
"""Of one kind: what is tried again, or by a thousand objects, must not fill the log."""


class DecisionFailed(Exception):
    """A bug in a decision, or where one is queued for the log: told to whoever asked for it, after
    the controller's term was ended by its cause."""


def is_of_one_object(error: Exception) -> bool:
    """Whether a bug that was met in looking after one object may be that object's matter alone.

    What a pass changes, it changes by whole decisions of the controller and by whole requests to
    the API server, each of which stands by itself.  So no bug between them leaves anything half
    done but what the pass remembers, and a bug inside a decision says so by its class."""
    return not isinstance(error, DecisionFailed)


class ControlFailures:
    """Bugs that were met, by kind of request or of work.  `counts` only grow; the metrics read
    them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # When the traceback of each kind was logged last (the loop's clock, seconds).
        self._said: dict[str, float] = {}

    def met(self, kind: str, error: BaseException, costs: str = "one connection") -> None:
        """Count it, and say it with its traceback, but not more often than once a second."""
        self.counts[kind] += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._said.get(kind, -TRACEBACK_EVERY_S) < TRACEBACK_EVERY_S:
            return
        self._said[kind] = now
        text = f"internal error in {kind} costs {costs} ({self.counts[kind]} so far)"
        loop.call_exception_handler({"message": text, "exception": error, COSTS: costs})


def surface(loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None]) -> None:
    """From now on no exception of a callback or a task of ours is swallowed by the loop.

    Libraries run tasks of their own here (watches, HTTP): what never passed through our code is
    logged, and theirs to handle."""

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = ends_process(context, OURS)
        message = context.get("message", "unhandled exception in the event loop")
        if error is None:
            logger.error("%s", message, exc_info=context.get("exception"))
            return
        logger.critical("%s; the process exits", message, exc_info=error)
        end(error)

    loop.set_exception_handler(handle)
