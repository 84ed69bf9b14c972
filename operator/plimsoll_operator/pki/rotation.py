"""Rotates an authority of listeners or clients: each one is trusted before it signs.

    made → (two thirds of its life) → a next one is announced → (`OVERLAP_MS`) → it signs
    → (`OVERLAP_MS`) → the former one is trusted no more

Clients trust the announced authority for `OVERLAP_MS` before a broker shows a certificate of it,
and the former authority for `OVERLAP_MS` afterwards. The former authority of clients' certificates
stays trusted longer: until every certificate that it signed has expired. An authority that expired
while no operator ran is replaced at once, since none of its certificates is valid any more.

If a user requests it, the next of these steps is taken at once: the user knows when all clients
have the announced authority, or a certificate of it. A request within `AGAIN_MS` after a step
counts as a repetition of that step, so that brokers learn of each step before the next. Pure; the
operator stores what `step` returns.
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
"""For how many milliseconds the former authority of users' certificates stays trusted after the
next one has begun to sign."""
AGAIN_MS = 600_000


class Step(Enum):
    """A step of the rotation. The operator writes its Secrets after each one."""

    ANNOUNCE = "a new authority is trusted"
    SIGN = "the announced authority signs"
    END_FORMER = "the one that signed before is trusted no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """The authorities of one kind at one step of their rotation. `current`: signs; `announced`:
    trusted, and signs next; `former`: in PEM, signed before and still trusted (empty: none).
    `since_ms`: time of the last step, in milliseconds since 1970."""

    current: KeyPair
    announced: KeyPair | None = None
    former: bytes = b""
    since_ms: int
    served: str = ""
    """The text of the user's last request that was carried out; empty: none."""

    @property
    def trusted(self) -> bytes:
        """Return the certificates of all authorities that peers must trust, in PEM; that of
        `current` first."""
        announced = b"" if self.announced is None else self.announced.certificate
        return self.current.certificate + announced + self.former

    @property
    def under_way(self) -> bool:
        """Return True if a rotation has begun and is not finished: an authority is announced, or a
        former one still trusted. The next step of that rotation needs no user's request."""
        return self.announced is not None or bool(self.former)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps that can be taken next. The first of them that is due is taken; a user's
        request takes the last one. There are two while a former authority is still trusted, since
        the present authority may need a successor meanwhile."""
        if self.announced is not None:
            return (Step.SIGN,)
        return (Step.ANNOUNCE, Step.END_FORMER) if self.former else (Step.ANNOUNCE,)

    def after(self, step: Step, now_ms: int, make: Callable[[], KeyPair]) -> Authorities:
        """Return the authorities after `step`, which must be one of `steps`, taken at `now_ms`.
        `make` creates the authority that ANNOUNCE announces, and is not called for other steps."""
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
    """Return the authorities after all steps that are due at `now_ms` (wall clock), or `known`
    itself if none is. `known` None: create the first authority, named `common_name`. `former_ms`:
    for how long the former authority stays trusted (None: `OVERLAP_MS`). `asked`: the text of the
    user's request for the next step, which is carried out once; empty: none. Raises
    `authority.Unreadable` if `known` cannot be decoded."""
    make = partial(new_authority, common_name, now_ms)
    if known is None:
        return Authorities(current=make(), since_ms=now_ms, served=asked)
    # Several steps are due if an authority expired while no operator ran.
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
