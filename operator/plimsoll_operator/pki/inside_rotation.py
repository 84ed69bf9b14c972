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

from plimsoll_operator.pki.authority import INSIDE_CA_DAYS, describe, new_authority
from plimsoll_operator.pki.rotation import Authorities


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
    if known is None:
        made = new_authority(common_name, now_ms, INSIDE_CA_DAYS)
        return Authorities(current=made, since_ms=now_ms, served=proofs.asked)
    if known.announced is not None:
        if describe(known.announced.certificate).sha256 not in proofs.trusted:
            return known
        former = known.current.certificate
        return replace(
            known, current=known.announced, announced=None, former=former, since_ms=now_ms
        )
    if known.former:
        return replace(known, former=b"", since_ms=now_ms) if proofs.renewed else known
    asked = bool(proofs.asked) and proofs.asked != known.served
    if asked or describe(known.current.certificate).validity.due_ms() <= now_ms:
        announced = new_authority(common_name, now_ms, INSIDE_CA_DAYS)
        return replace(known, announced=announced, since_ms=now_ms, served=proofs.asked)
    return known


def is_under_way(known: Authorities) -> bool:
    """Whether another step follows by itself."""
    return known.announced is not None or bool(known.former)
