"""Rotates the authority of TLS between brokers and controller. Each step is taken once the brokers
prove that it breaks no connection, not after a fixed time.

    made → (two thirds of its life, or requested) → a next one is announced
    → (every active broker trusts it) → it signs
    → (every active broker shows a certificate of it) → the former one is trusted no more

A broker that is inactive meanwhile finds its new certificate and the trusted authorities in its
Secret when it returns. Pure; the operator stores what `step` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from plimsoll_operator.pki.authority import INSIDE_CA_DAYS, describe, new_authority
from plimsoll_operator.pki.rotation import Authorities, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Facts about the brokers that allow the next step of the rotation. `trusted`: SHA-256
    fingerprints, in hex, of the authorities that every active broker trusts and every broker's
    Secret holds. `renewed`: True if the present authority signed every broker's certificate, and
    every active broker shows it. `asked`: the user's request for another authority, any text that
    differs from the last one; empty: none."""

    trusted: frozenset[str]
    renewed: bool
    asked: str = ""


def step(known: Authorities | None, common_name: str, now_ms: int, proofs: Proofs) -> Authorities:
    """Return the authorities after one step, or `known` itself if `proofs` allow none yet. `known`
    None: create the first authority, named `common_name`. `now_ms`: the wall clock. Raises
    `authority.Unreadable` if `known` cannot be decoded."""
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
