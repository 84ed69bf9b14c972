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

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

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


class Step(Enum):
    """What may change of the authorities; at each the operator's Secrets are written."""

    ANNOUNCE = "a new authority is trusted"
    SIGN = "the announced authority signs"
    END_FORMER = "the one that signed before is trusted no more"


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

    @property
    def under_way(self) -> bool:
        """Whether another step follows by itself."""
        return self.announced is not None or bool(self.former)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those that may follow.  The last one leads on from the step before: a request takes it.
        An authority may become due while the one before it is trusted still."""
        if self.announced is not None:
            return (Step.SIGN,)
        return (Step.ANNOUNCE, Step.END_FORMER) if self.former else (Step.ANNOUNCE,)

    def after(self, step: Step, now_ms: int, make: Callable[[], KeyPair]) -> Authorities:
        """`make`: the authority that is announced."""
        match step:
            case Step.ANNOUNCE:
                return replace(self, announced=make(), since_ms=now_ms)
            case Step.SIGN:
                assert self.announced is not None, "what is announced signs next"
                signs, former = self.announced, self.current.certificate
                return replace(self, current=signs, announced=None, former=former, since_ms=now_ms)
            case Step.END_FORMER:
                return replace(self, former=b"", since_ms=now_ms)


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
    make = partial(new_authority, common_name, now_ms)
    if known is None:
        return Authorities(current=make(), since_ms=now_ms, served=asked)
    # More than one where an authority ended while no operator looked at it.
    while (due := _due(known, now_ms, OVERLAP_MS if former_ms is None else former_ms)) is not None:
        known = known.after(due, now_ms, make)
    if not asked or asked == known.served:
        return known
    just_taken = known.under_way and 0 <= now_ms - known.since_ms < AGAIN_MS
    taken = known if just_taken else known.after(known.steps[-1], now_ms, make)
    return replace(taken, served=asked)


def _due(known: Authorities, now_ms: int, former_ms: int) -> Step | None:
    validity = describe(known.current.certificate).validity
    waited_ms = now_ms - known.since_ms
    is_due = {
        Step.ANNOUNCE: validity.due_ms() <= now_ms,
        Step.SIGN: waited_ms >= OVERLAP_MS or validity.not_after_ms <= now_ms,
        Step.END_FORMER: waited_ms >= former_ms,
    }
    return next((one for one in known.steps if is_due[one]), None)
