"""FairPool: one bounded pool that is shared fairly by principals.

Used by the broker for all that clients hold: bytes of requests and replies, groups, offsets,
partitions, connections, waiting work. Pure; the caller chooses the units.

Rule: a principal may hold at most as much as stays free after the admission. One principal alone
gets half of the pool, two get a third each, n get 1/(n + 1) each, and a newcomer always finds room.
The number of principals need not be known. Source: dynamic thresholds for shared-memory switches
(Choudhury and Hahne, 1998) with a factor of one.

A principal may always hold `floor` units while the pool has room at all: without that, a crowd of
principals would leave none of them enough for one request.
"""

from __future__ import annotations


class FairPool:
    """A pool of units (bytes, groups, connections, …) that principals share fairly. A principal is
    a user ("User:alice"), or an address on a listener without login.

    `capacity`: units of all principals together. `floor`: units that each principal may hold
    regardless of what the others hold.
    """

    __slots__ = ("_held", "capacity", "floor", "refused", "used")

    def __init__(self, capacity: int, *, floor: int = 0) -> None:
        assert 0 <= floor <= capacity, "the floor exceeds the pool"
        self.capacity = capacity
        self.floor = floor
        self.used = 0
        self.refused = 0
        """The number of refused admissions, for a metric."""
        # Only principals that hold something: bounded by `capacity`, whatever names clients invent.
        self._held: dict[str, int] = {}

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)

    @property
    def principals(self) -> int:
        """Return the number of principals that hold something of the pool."""
        return len(self._held)

    def held(self, principal: str) -> int:
        return self._held.get(principal, 0)

    def admits(self, principal: str, size: int) -> bool:
        """Return True if `size` more units fit the pool and the principal's share. Take nothing."""
        left = self.capacity - self.used - size
        if left < 0:
            return False
        held = self._held.get(principal, 0) + size
        return held <= left or held <= self.floor

    def admit(self, principal: str, size: int) -> bool:
        """Take `size` units for the principal and return True if they fit. Otherwise count a
        refusal and return False."""
        if not self.admits(principal, size):
            self.refused += 1
            return False
        self.take(principal, size)
        return True

    def take(self, principal: str, size: int) -> None:
        """Take `size` units for the principal, even above the capacity. Called for units that are
        already in use, such as groups loaded from a log."""
        if size:
            self.used += size
            held = self._held
            held[principal] = held.get(principal, 0) + size

    def give_back(self, principal: str, size: int) -> None:
        if not size:
            return
        held = self._held
        left = held[principal] - size
        self.used -= size
        if left > 0:
            held[principal] = left
        else:
            assert not left, "given back twice"
            del held[principal]

    def largest(self) -> str | None:
        """Return the principal that holds most, or None if the pool is empty. Of equals, return the
        name that sorts first. Callers free units of this principal first when room is needed."""
        if not self._held:
            return None
        return min(self._held, key=lambda principal: (-self._held[principal], principal))
