"""PrincipalTurns: serves the waiters of many principals in turn, one of each.

No principal waits for more than one waiter of each other principal, however many those have.  The
waiters of a principal keep the order in which they came.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class PrincipalTurns(dict[str, dict[K, V]], Generic[K, V]):
    """Waiters by principal, the next principal first; none has an empty queue."""

    __slots__ = ()

    def add(self, principal: str, waiter: K, value: V) -> bool:
        """Queue a waiter, or renew its value.  Return True if it did not wait before."""
        waiting = self.setdefault(principal, {})
        is_new = waiter not in waiting
        waiting[waiter] = value
        return is_new

    def take(self, principal: str | None = None) -> tuple[str, K]:
        """Remove the first waiter of the next principal, or of this one, and move that principal
        behind the others."""
        principal = next(iter(self)) if principal is None else principal
        waiting = self.pop(principal)
        waiter = next(iter(waiting))
        del waiting[waiter]
        if waiting:
            self[principal] = waiting
        return principal, waiter

    def forget(self, waiter: K, *principals: str) -> None:
        """Remove a waiter from the queues of these principals, or of all."""
        for principal in principals or tuple(self):
            waiting = self.get(principal, {})
            waiting.pop(waiter, None)
            if not waiting:
                self.pop(principal, None)
