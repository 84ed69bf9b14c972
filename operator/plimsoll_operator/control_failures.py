"""Counts and logs errors that only a bug in the operator can cause, and says what each one ends.

A bug while a broker's request is handled ends that broker's connection. A bug in a cluster's
leadership (its decisions, its tasks) ends that leadership: all its state comes from the cluster's
log and is rebuilt. A bug in reconciling one object, or in computing its status, affects that object
alone (`is_of_one_object`). Any other bug ends the process. Source: docs/design/009-exceptions.md.
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
"""Shortest time between two logged tracebacks of one kind, in seconds. An error that is retried, or
that concerns a thousand objects, must not fill the log."""


class DecisionFailed(Exception):
    """Raised to the caller of a decision that failed by a bug, in the decision itself or in
    queueing its records for the metadata log. The controller's term has already ended."""


def is_of_one_object(error: Exception) -> bool:
    """Judge an unexpected exception that ended the pass over one object. Return False if it is a
    `DecisionFailed`, which must end the leadership of the cluster; True for any other, which costs
    that object's pass alone.

    A pass changes state only by complete decisions of the controller and complete requests to the
    API server, and none depends on a later one. So a bug between two of them leaves nothing half
    done, except in the pass's own memory.
    """
    return not isinstance(error, DecisionFailed)


class ControlFailures:
    """Counts and logs the errors that only a bug can cause. `counts`: their numbers since the
    start, by kind of request or work; the metrics read them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # When the traceback of each kind was logged last (the loop's clock, seconds).
        self._said: dict[str, float] = {}

    def met(self, kind: str, error: BaseException, costs: str = "one connection") -> None:
        """Add 1 to `counts[kind]`, and log the error with its traceback by the running loop's
        exception handler, at most once a second for each kind. `costs`: what the error ended, in
        words for the log line."""
        self.counts[kind] += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._said.get(kind, -TRACEBACK_EVERY_S) < TRACEBACK_EVERY_S:
            return
        self._said[kind] = now
        text = (
            f"an internal error in {kind}, which ended {costs} ({self.counts[kind]} such errors "
            "since the start)"
        )
        loop.call_exception_handler({"message": text, "exception": error, COSTS: costs})


def surface(loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None]) -> None:
    """Install an exception handler on the loop: an unhandled exception that passed through the
    product's code is logged and passed to `end`, which ends the process. Without it the loop would
    only log.

    An exception from the tasks of libraries alone (watches, HTTP) is only logged; handling it is up
    to the library.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = ends_process(context, OURS)
        message = context.get("message", "the operator met an exception that it did not handle")
        if error is None:
            logger.error(
                "the operator met an error and continues to run; please report it with this "
                "traceback: %s",
                message,
                exc_info=context.get("exception"),
            )
            return
        logger.critical(
            "the operator exits because of an internal error, and Kubernetes starts it again; "
            "please report this bug: %s",
            message,
            exc_info=error,
        )
        end(error)

    loop.set_exception_handler(handle)
