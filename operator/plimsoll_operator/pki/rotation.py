"""When an authority is replaced, and by which steps: each trusts before it signs.

    made → (two thirds of its life) → a next one is announced → (`OVERLAP_MS`) → it signs
    → (`OVERLAP_MS`) → the one before is trusted no more

Clients have the announced authority for `OVERLAP_MS` before any broker shows a certificate of it,
and the one before for as long after that.  That of clients is trusted for longer after the next one
signs: until what it signed is over.  One that is over while no operator looked at it is replaced at
once: nothing that it signed is good any more.

Who asks for it has the next of these steps taken now, whichever it is: people know when all clients
have the announced one, or a certificate of it.  What is asked for within `AGAIN_MS` of a step is
that step asked for twice, and brokers have heard of each step before the next.  Pure; the operator
keeps what `step` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll_operator.pki.authority import (
    CLIENT_DAYS_MAX,
    DAY_MS,
    KeyPair,
    describe,
    new_authority,
)

OVERLAP_MS = 90 * DAY_MS
CLIENT_OVERLAP_MS = CLIENT_DAYS_MAX * DAY_MS
"""For so long clients' authority is trusted after the next one signs."""
AGAIN_MS = 600_000


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


def step(
    known: Authorities | None,
    common_name: str,
    now_ms: int,
    former_ms: int | None = None,
    asked: str = "",
) -> Authorities:
    """What is kept from now on; the same value while nothing is due.  `former_ms`: for how long the
    one before is trusted, None: `OVERLAP_MS`; `asked`: what a user asks for the next step by,
    empty: nobody does.  Raises `authority.Unreadable`."""
    if known is None:
        made = new_authority(common_name, now_ms)
        return Authorities(current=made, since_ms=now_ms, served=asked)
    due = _when_due(known, common_name, now_ms, former_ms)
    if not asked or asked == known.served:
        return due
    return replace(_next(due, common_name, now_ms), served=asked)


def _next(known: Authorities, common_name: str, now_ms: int) -> Authorities:
    """The next step, unless one was just taken."""
    under_way = known.announced is not None or bool(known.former)
    if under_way and 0 <= now_ms - known.since_ms < AGAIN_MS:
        return known
    if known.announced is not None:
        return _signs(known, known.announced, now_ms)
    if known.former:
        return replace(known, former=b"", since_ms=now_ms)
    return replace(known, announced=new_authority(common_name, now_ms), since_ms=now_ms)


def _signs(known: Authorities, announced: KeyPair, now_ms: int) -> Authorities:
    former = known.current.certificate
    return replace(known, current=announced, announced=None, former=former, since_ms=now_ms)


def _when_due(
    known: Authorities, common_name: str, now_ms: int, former_ms: int | None
) -> Authorities:
    validity = describe(known.current.certificate).validity
    over = validity.not_after_ms <= now_ms
    waited_ms = now_ms - known.since_ms
    if known.announced is not None:
        if waited_ms < OVERLAP_MS and not over:
            return known
        signs = _signs(known, known.announced, now_ms)
        return _when_due(signs, common_name, now_ms, former_ms)  # that one may be over, too
    if validity.due_ms() <= now_ms:
        announced = replace(known, announced=new_authority(common_name, now_ms), since_ms=now_ms)
        return _when_due(announced, common_name, now_ms, former_ms) if over else announced
    if known.former and waited_ms >= (OVERLAP_MS if former_ms is None else former_ms):
        return replace(known, former=b"", since_ms=now_ms)
    return known
