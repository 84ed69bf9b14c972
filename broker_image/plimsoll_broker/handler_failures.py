"""Bugs of ours on the way from a request to its answer, and where they end.

A handler's bug costs the connection of the request that met it.  A bug where records are written,
cut or committed ends the process: what is in memory and what is on the disk may not agree any more.
Source: docs/design/009-exceptions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from plimsoll_core.unhandled_errors import COSTS, ends_process
from plimsoll_wire.api_versions import ApiKey

logger = logging.getLogger("plimsoll.failures")

TRACEBACK_EVERY_S = 1.0
"""A client that repeats what meets the bug must not fill the log with it."""


class CommitPathFailed(Exception):
    """An unexpected error while records were written, cut or committed: the process must end."""


class HandlerFailures:
    """Counts and logs the requests that met a bug, by API. `counts` only grow; the metrics read
    them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._said: dict[str, float] = {}

    def met(self, api_key: int, error: BaseException) -> None:
        """Count a request of this API that met a bug. Report the error with its traceback to the
        event loop's exception handler, for each API at most once in TRACEBACK_EVERY_S seconds."""
        api = ApiKey(api_key).name if api_key in SERVED else str(api_key)
        self.counts[api] += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._said.get(api, -TRACEBACK_EVERY_S) >= TRACEBACK_EVERY_S:
            self._said[api] = now
            text = (
                f"an internal error in a request {api}, for which the broker closed the client's "
                f"connection ({self.counts[api]} such errors since the start)"
            )
            context = {"message": text, "exception": error, COSTS: "one connection"}
            loop.call_exception_handler(context)


SERVED = frozenset(int(key) for key in ApiKey)


class Answerable(Protocol):
    """The part of a future that `Answering` needs."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...


class Answering:
    """A context manager for the code that makes a waiting request's answer. An error that the code
    raises is set on the request's future and not raised to the caller: a bug in one answer must not
    stop the commit or truncation that caused it."""

    __slots__ = ("_future",)

    def __init__(self, future: Answerable) -> None:
        self._future = future

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if not self._future.done():
            self._future.set_exception(error)
        return True


def set_answer(future: Answerable, make: Callable[..., Any], *arguments: Any) -> None:
    """Set what `make` returns for these arguments on a waiting request's future, as in a block of
    `Answering`. This is faster."""
    try:
        future.set_result(make(*arguments))
    except Exception as error:  # noqa: BLE001 - as `Answering`
        if not future.done():
            future.set_exception(error)


def surface(loop: asyncio.AbstractEventLoop, end: Callable[[BaseException], None]) -> None:
    """Set the event loop's exception handler: it logs each exception that a callback or task does
    not handle, and calls `end` with it if the process must end."""

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = ends_process(context)
        message = context.get("message", "the broker met an exception that it did not handle")
        if error is None:
            level = logging.ERROR if COSTS in context else logging.WARNING
            logger.log(
                level,
                "the broker met an error and continues to run; please report it with this "
                "traceback: %s",
                message,
                exc_info=context.get("exception"),
            )
            return
        logger.critical(
            "the broker exits because of an internal error, and is started again; please report "
            "this bug: %s",
            message,
            exc_info=error,
        )
        end(error)

    loop.set_exception_handler(handle)
