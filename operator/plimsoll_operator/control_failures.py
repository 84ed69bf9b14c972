"""Bugs of ours in the operator, and what each costs: no loop and no task swallows one.

A request's bug costs the broker's connection.  A bug in what leads a cluster (its decisions, its
tasks) ends that cluster's leadership: all that it knows comes from the cluster's log, and is built
anew.  Anything else that passed through our code ends the process.
Source: docs/design/20261122-exceptions.md.
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


class ControlFailures:
    """Requests that met a bug, by kind.  `counts` only grow; the metrics read them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def met(self, kind: str, error: BaseException, costs: str = "one connection") -> None:
        self.counts[kind] += 1
        context = {"message": f"a bug in {kind} costs {costs}", "exception": error, COSTS: costs}
        asyncio.get_running_loop().call_exception_handler(context)


def surface(loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None]) -> None:
    """From now on no exception of a callback or a task of ours is swallowed by the loop.

    Libraries run tasks of their own here (watches, HTTP): what never passed through our code is
    logged, and theirs to handle."""

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = ends_process(context, OURS)
        message = context.get("message", "the event loop met an exception")
        if error is None:
            logger.error("%s", message, exc_info=context.get("exception"))
            return
        logger.critical("%s: the process ends", message, exc_info=error)
        end(error)

    loop.set_exception_handler(handle)
