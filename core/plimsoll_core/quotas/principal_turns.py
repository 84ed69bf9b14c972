"""PrincipalTurns: serves the waiters of many principals in turn, one of each.

No principal waits for more than one waiter of each other principal, however many waiters that one
has. The waiters of a principal keep the order in which they came.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class PrincipalTurns(dict[str, dict[K, V]], Generic[K, V]):
    """Queues of waiters by principal, which are served in rotation. The dictionary's first key is
    the principal to serve next; no queue in it is empty."""

    __slots__ = ()

    def add(self, principal: str, waiter: K, value: V) -> bool:
        """Queue a waiter of the principal, or replace the value of a queued one. Return True if the
        waiter was not queued before."""
        waiting = self.setdefault(principal, {})
        is_new = waiter not in waiting
        waiting[waiter] = value
        return is_new

    def take(self, principal: str | None = None) -> tuple[str, K]:
        """Remove and return the first waiter of `principal` (None: of the principal to serve next)
        with its principal, and move that principal to the end of the rotation. There must be such a
        waiter."""
        principal = next(iter(self)) if principal is None else principal
        waiting = self.pop(principal)
        waiter = next(iter(waiting))
        del waiting[waiter]
        if waiting:
            self[principal] = waiting
        return principal, waiter

    def forget(self, waiter: K, *principals: str) -> None:
        """Remove a waiter from the queues of these principals, or of all principals if none is
        given. Do nothing if it is not queued."""
        for principal in principals or tuple(self):
            waiting = self.get(principal, {})
            waiting.pop(waiter, None)
            if not waiting:
                self.pop(principal, None)
