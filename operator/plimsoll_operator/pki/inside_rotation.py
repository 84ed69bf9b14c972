"""Rotates the internal authority. Each step is taken once brokers prove that it disconnects none of
them, not after a fixed time.

    made → (two thirds of its life, or requested) → a next one is announced
    → (every active broker trusts it) → it signs
    → (every active broker shows a certificate of it) → the former one is trusted no more

An inactive broker finds both in its Secret when it returns. Pure; the operator stores what `step`
returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from plimsoll_operator.pki.authority import INSIDE_CA_DAYS, describe, new_authority
from plimsoll_operator.pki.rotation import Authorities, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Evidence from the brokers. `trusted`: fingerprints of the authorities that all brokers trust
    and all Secrets hold. `renewed`: all brokers show a certificate of the authority that signs now.
    `asked`: the user's request for another authority; empty: none."""

    trusted: frozenset[str]
    renewed: bool
    asked: str = ""


def step(known: Authorities | None, common_name: str, now_ms: int, proofs: Proofs) -> Authorities:
    """Return the authorities to store; the same value while no step is due. Raises
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
