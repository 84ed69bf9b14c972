"""RecordRate: the rate at which each principal's groups may have a coordinator write records.

One request may cause a record of up to `max.message.bytes`: a static member that joins again, of
some hundred bytes, has the whole generation written. So the coordinator charges all records of a
group to the group's owner, by their encoded size, and `groups.step` refuses joins and commits while
the owner has exceeded its rate. Everything else that a group writes follows from these, or removes
something. Pure: the caller gives the time.
"""

from __future__ import annotations

BYTES_PER_S = 8 * 2**20
"""The rate in bytes a second: three times what commits of one coordinator at its limit take."""
BURST_BYTES = 64 * 2**20
"""Bytes that a principal may have written at once."""
REJOIN_BYTES_PER_S = 2**20
"""The rate in bytes a second at which returning static members have one group's generation
written."""
_NAMES_MIN = 1_000


class RecordRate:
    """The bytes that a broker has written for each principal, less what its rate allows since. The
    times are on the monotonic clock."""

    __slots__ = ("_level", "_purge_at", "refused")

    def __init__(self) -> None:
        # By principal: the bytes above zero, and when they were so many, in ms.
        self._level: dict[str, tuple[int, int]] = {}
        self._purge_at = _NAMES_MIN
        self.refused = 0

    def charge(self, principal: str, size: int, now_ms: int) -> None:
        """Add `size` bytes that were written for this principal."""
        self._level[principal] = self.charged(principal, now_ms) + size, now_ms
        if len(self._level) >= self._purge_at:
            # Principals are users or addresses: only those that wrote lately are kept.
            self._level = {
                name: level for name, level in self._level.items() if self.charged(name, now_ms)
            }
            self._purge_at = max(2 * len(self._level), _NAMES_MIN)

    def admits(self, principal: str, now_ms: int) -> bool:
        """Return True if the principal has not exceeded its rate. Otherwise count a refusal."""
        if self.charged(principal, now_ms) <= BURST_BYTES:
            return True
        self.refused += 1
        return False

    def charged(self, principal: str, now_ms: int) -> int:
        """Return the bytes that the principal has been charged, less what its rate allowed
        since."""
        level, at_ms = self._level.get(principal, (0, now_ms))
        return max(level - (now_ms - at_ms) * BYTES_PER_S // 1000, 0)
