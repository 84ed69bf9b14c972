"""The clock by which certificates are made, and the CA that signs users' certificates.

An operator with a clock years ahead would consider every CA expired and replace it at once, and
clients would trust none of the new certificates. So a host's clock that is far ahead of the API
server's is ignored. Called wherever certificates are signed.

`reconcile.cluster.authorities` sets the CA that signs users' certificates, once brokers trust its
certificates; the User's reconciler reads it.
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
"""Milliseconds by which the host's clock may be ahead of the API server's time in its last answer.
They include the age of that answer."""
CLOCK_AHEAD = "ClockAhead"
_SAID = (
    "The leading operator's clock is more than 5 minutes ahead of the API server's; certificate "
    "times follow the API server. Fix the clock of the operator's node."
)


def certificate_ms(term: Term, result: PassResult) -> int:
    """Return the time for making and checking certificates, in milliseconds since 1970. That is the
    host's clock. If it is too far ahead of the API server's, return the API server's time instead
    and report that in the LogCluster. The caller has just read an object, so that the API server's
    time is known."""
    now_ms, server_ms = term.now_ms(), term.kube.answered_ms
    if server_ms is None or now_ms - server_ms <= APART_MS:
        result.unstall(StallSource.CLOCK)
        return now_ms
    result.stall(StallSource.CLOCK, Cause(reason=CLOCK_AHEAD, message=_SAID))
    return server_ms


@dataclass(slots=True)
class ClientSigning:
    """The CA that signs users' certificates, as this term knows it."""

    # The CA's certificate and key; None if not known yet, not needed or unusable.
    authority: KeyPair | None = None
    # A sentence on why there is no CA, with the remedy; "" if there is one or it will be known
    # soon.
    unusable: str = ""


def client_signing(term: Term) -> ClientSigning:
    return term.kept(ClientSigning, ClientSigning)


def clients_show_certificates(cluster: LogCluster) -> bool:
    """Return True if a listener of the cluster lets clients log in by certificate."""
    return any(TLS_LOGIN in (one.authentication or ()) for one in cluster.listeners)
