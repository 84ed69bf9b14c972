"""Splits the work on a long message into parts, between which its thread may let others run.

Called by `decoding` and `encoding` for long arrays. A thread that works on a message of thousands
of items sets `BETWEEN_PARTS`, a function, for its own context; the default does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

PART = 100
"""Number of items that are read or written without a break, which takes about a millisecond."""


def _go_on() -> None:
    """Do nothing: the default of `BETWEEN_PARTS`."""


BETWEEN_PARTS: ContextVar[Callable[[], None]] = ContextVar("between parts", default=_go_on)


def in_parts(items: Iterable[T]) -> Iterator[T]:
    """Yield each item, and call the context's `BETWEEN_PARTS` after every `PART` items."""
    give_way = BETWEEN_PARTS.get()
    for number, item in enumerate(items, 1):
        yield item
        if number % PART == 0:
            give_way()
