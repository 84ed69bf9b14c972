"""When an authority is replaced, and by which steps: each trusts before it signs.

    made → (two thirds of its life) → a next one is announced → (`OVERLAP_MS`) → it signs
    → (`OVERLAP_MS`) → the one before is trusted no more

Clients have the announced authority for `OVERLAP_MS` before any broker shows a certificate of it,
and the one before for as long after that.  Pure; the operator keeps what `step` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_operator.pki.authority import KeyPair, describe, new_authority

DAY_MS = 24 * 3_600_000
OVERLAP_MS = 90 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """`current` signs; `announced` is trusted and signs later; `former` (PEM, maybe empty) signed
    before and is trusted still.  `since_ms`: when the last step was taken, by the operator's wall
    clock."""

    current: KeyPair
    announced: KeyPair | None = None
    former: bytes = b""
    since_ms: int
    # The last request of a user for another authority that was served.
    served: str = ""

    @property
    def trusted(self) -> bytes:
        """PEM: all that clients are to believe, the one that signs first."""
        announced = b"" if self.announced is None else self.announced.certificate
        return self.current.certificate + announced + self.former


def step(known: Authorities | None, common_name: str, now_ms: int) -> Authorities:
    """What is kept from now on; the same value while nothing is due.  Raises
    `authority.Unreadable`."""
    if known is None:
        return Authorities(current=new_authority(common_name, now_ms), since_ms=now_ms)
    waited = now_ms - known.since_ms >= OVERLAP_MS
    if known.announced is not None:
        if not waited:
            return known
        former = known.current.certificate
        return Authorities(current=known.announced, former=former, since_ms=now_ms)
    if describe(known.current.certificate).validity.due_ms() <= now_ms:
        return replace(known, announced=new_authority(common_name, now_ms), since_ms=now_ms)
    if known.former and waited:
        return replace(known, former=b"", since_ms=now_ms)
    return known
