"""When the internal authority is replaced, and by which steps: each is taken when it is proven that
it cuts nobody off, not when some time is over.

    made → (two thirds of its life, or asked for) → a next one is announced
    → (every broker that takes part trusts it) → it signs
    → (every broker that takes part shows a certificate of it) → the one before is trusted no more

A broker that is away finds both in its Secret when it returns.  Pure; the operator keeps what
`step` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from plimsoll_operator.pki.authority import INSIDE_CA_DAYS, describe, new_authority
from plimsoll_operator.pki.rotation import Authorities, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What is known of brokers.  `trusted`: fingerprints of authorities that all of them trust, and
    that all Secrets hold; `renewed`: all show a certificate of the authority that signs now.
    `asked`: what a user asks for another authority by; empty: nobody does."""

    trusted: frozenset[str]
    renewed: bool
    asked: str = ""


def step(known: Authorities | None, common_name: str, now_ms: int, proofs: Proofs) -> Authorities:
    """What is kept from now on; the same value while nothing is due.  Raises
    `authority.Unreadable`."""
    make = partial(new_authority, common_name, now_ms, INSIDE_CA_DAYS)
    if known is None:
        return Authorities(current=make(), since_ms=now_ms, served=proofs.asked)
    following = known.steps[-1]
    if not _may_be_taken(following, known, now_ms, proofs):
        return known
    taken = known.after(following, now_ms, make)
    return replace(taken, served=proofs.asked) if following is Step.ANNOUNCE else taken


def _may_be_taken(step: Step, known: Authorities, now_ms: int, proofs: Proofs) -> bool:
    match step:
        case Step.ANNOUNCE:
            asked = bool(proofs.asked) and proofs.asked != known.served
            return asked or describe(known.current.certificate).validity.due_ms() <= now_ms
        case Step.SIGN:
            assert known.announced is not None, "what is announced signs next"
            return describe(known.announced.certificate).sha256 in proofs.trusted
        case Step.END_FORMER:
            return proofs.renewed
