"""Commits the authorities that clients' certificates are verified by.  Called for
DeclareClientAuthorities.

One record states all authorities, and brokers verify certificates by it. An authority that the next
record does not name is removed, and clients that logged in by its certificates are cut off.
"""

from __future__ import annotations

from plimsoll_core.cluster.records import ClientAuthoritiesConfigured
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.security.security_version import too_old
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.messages.security import DeclareClientAuthorities
from plimsoll_core.security.client_certificates import ClientAuthority

AUTHORITIES_MAX = 9
CERTIFICATES_MAX = 16
BYTES_MAX = 128 * 1024
"""The greatest size of all certificates together, in bytes. They are one record, which each broker
reads at every change."""
NAME_CHARACTERS_MAX = 512


def declare_client_authorities(
    turn: DecisionContext, request: DeclareClientAuthorities
) -> Answer | Refusal:
    if request.authorities == turn.image.security.authorities:
        return Done()
    if refusal := too_old(turn):
        return refusal
    if text := malformed(request.authorities):
        return Refusal(reason=Reason.InvalidRequest, message=text)
    turn.add(ClientAuthoritiesConfigured(cause="declared", authorities=request.authorities))
    return Done()


def malformed(authorities: tuple[ClientAuthority, ...]) -> str:
    """Return a sentence that says why the authorities cannot be committed, or "" if they can."""
    names = [one.name for one in authorities]
    if len(names) > AUTHORITIES_MAX or len(set(names)) < len(names):
        return (
            f"A cluster can trust at most {AUTHORITIES_MAX} authorities of clients, each named "
            "once."
        )
    if sum(len(der) for one in authorities for der in one.certificates) > BYTES_MAX:
        return (
            f"The certificates of clients' authorities together can have at most {BYTES_MAX} bytes."
        )
    for one in authorities:
        if not 0 < len(one.name) <= NAME_CHARACTERS_MAX or len(one.source) > NAME_CHARACTERS_MAX:
            return f"The name of an authority must have 1 to {NAME_CHARACTERS_MAX} characters."
        if not 0 < len(one.certificates) <= CERTIFICATES_MAX:
            return f"Authority {one.name[:100]!r} must have 1 to {CERTIFICATES_MAX} certificates."
    return ""
