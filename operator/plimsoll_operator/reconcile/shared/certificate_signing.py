"""Time by which certificates are made, and the authority that signs users' certificates.

A host with a clock years ahead would take every authority for expired and replace it at once, and
clients would trust no certificate shown to them. So a host's clock ahead of the API server's last
answer is ignored. Called wherever certificates are signed.

`reconcile.cluster.authorities` sets the authority that signs users' certificates, once brokers
trust its certificates; the User's reconciler reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.security.client_certificates import TLS_LOGIN
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

APART_MS = 300_000
"""Tolerated difference of the clocks plus age of an answer, in milliseconds."""
CLOCK_AHEAD = "ClockAhead"
_SAID = (
    "The leading operator's clock is more than 5 minutes ahead of the API server's; certificate "
    "times follow the API server. Fix the clock of the operator's node."
)


def certificate_ms(term: Term, result: PassResult) -> int:
    """Return milliseconds since 1970. If the host's clock is ahead of the API server's, use the
    latter and report it in the LogCluster. The caller has just read an object."""
    now_ms, server_ms = term.now_ms(), term.kube.answered_ms
    if server_ms is None or now_ms - server_ms <= APART_MS:
        result.unstall(StallSource.CLOCK)
        return now_ms
    result.stall(StallSource.CLOCK, Cause(reason=CLOCK_AHEAD, message=_SAID))
    return server_ms


@dataclass(slots=True)
class ClientSigning:
    """The authority that signs users' certificates, as this term knows it."""

    # None if not known yet, or not needed.
    authority: KeyPair | None = None
    # Why there is none, and the remedy; "" if it will be known soon.
    unusable: str = ""


def client_signing(term: Term) -> ClientSigning:
    return term.kept(ClientSigning, ClientSigning)


def clients_show_certificates(cluster: LogCluster) -> bool:
    """Return True if a listener asks for certificates."""
    return any(TLS_LOGIN in (one.authentication or ()) for one in cluster.listeners)
