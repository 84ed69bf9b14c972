"""Time by which certificates and authorities are made, renewed and replaced.

A host with a clock years ahead would take every authority for expired and replace it at once, and
clients would trust no certificate shown to them. So a host's clock ahead of the API server's last
answer is ignored. Called wherever certificates are signed.
"""

from __future__ import annotations

from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

APART_MS = 300_000
"""Tolerated difference of the clocks plus age of an answer, in milliseconds."""
CLOCK_AHEAD = "ClockAhead"
_SAID = (
    "The leading operator's clock is more than 5 minutes ahead of the API server's; certificate "
    "times follow the API server. Fix the clock of the operator's node."
)


def certificate_ms(term: Term) -> int:
    """Return milliseconds since 1970. If the host's clock is ahead of the API server's, use the
    latter and report it in the LogCluster. The caller has just read an object."""
    now_ms, server_ms = term.now_ms(), term.kube.answered_ms
    if server_ms is None or now_ms - server_ms <= APART_MS:
        term.unstall(StallSource.CLOCK)
        return now_ms
    term.stall(StallSource.CLOCK, Cause(reason=CLOCK_AHEAD, message=_SAID))
    return server_ms
