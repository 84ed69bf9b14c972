"""HeldOperations: operations for a loading shard, held in order until it is active, for a few
seconds.

Owned by a shard. Clients repeat a commit two or three times within a third of a second and then
give up; a load takes longer on a busy volume. Source: docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.timers import DeadlineTimer
from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import Operation

HELD_MS_MAX = 5_000
"""How long an operation waits for the load: less than any client's request timeout."""
HELD_MAX = 1_000
"""Held operations of one shard; more are refused at once."""

_LOADS = RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS)


class HeldOperations:
    """Owned by the event loop. `now_ms`: the monotonic clock."""

    __slots__ = ("_deadlines", "_now_ms", "_ops", "_timer")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        # In order of arrival. None: the operation has no asker.
        self._ops: dict[Asker, tuple[Operation, Asker | None]] = {}
        self._deadlines = Deadlines()
        self._timer = DeadlineTimer(self._deadlines, now_ms, self._waited_enough)

    def __bool__(self) -> bool:
        """True if any is held: later operations queue behind it."""
        return bool(self._ops)

    def add(self, op: Operation, asker: Asker | None) -> None:
        """Hold an operation. Its asker gets COORDINATOR_LOAD_IN_PROGRESS if it waits too long, or
        if too many wait. An operation without asker is about one that is held."""
        if asker is not None and len(self._ops) >= HELD_MAX:
            asker.answer(_LOADS)
            return
        key = Asker() if asker is None else asker
        self._ops[key] = op, asker
        self._deadlines.set(key, self._now_ms() + HELD_MS_MAX)
        self._timer.arm()

    def take(self) -> Iterator[tuple[Operation, Asker | None]]:
        """Yield and remove the operations in order, including those that arrive meanwhile."""
        while self._ops:
            key = next(iter(self._ops))
            self._deadlines.clear(key)
            yield self._ops.pop(key)
        self._timer.cancel()

    def refuse(self, code: Code) -> None:
        """Refuse all held operations: the load has failed."""
        for _, asker in self.take():
            if asker is not None:
                asker.answer(RefusedAsWhole(code))

    def _waited_enough(self, key: Hashable) -> None:
        assert isinstance(key, Asker)
        del self._ops[key]
        key.answer(_LOADS)
