"""By which time certificates and authorities are made, renewed and replaced.

A host whose clock is years ahead would take every authority for one that is over, and replace it
at once: clients would trust nothing that they are shown.  So a host's clock that is ahead of the
API server's, as its last answer said it, does not count.  Called by whoever signs.
"""

from __future__ import annotations

from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

APART_MS = 300_000
"""Clocks may differ by so much, and an answer may be so old."""
CLOCK_AHEAD = "ClockAhead"
_SAID = (
    "The leading operator's clock is more than 5 minutes ahead of the API server's; certificate "
    "times follow the API server. Fix the clock of the operator's node."
)


def certificate_ms(term: Term) -> int:
    """Milliseconds since 1970: the API server's where the host's is ahead of it, which the
    LogCluster then says.  Who asks has just read an object."""
    now_ms, server_ms = term.now_ms(), term.kube.answered_ms
    if server_ms is None or now_ms - server_ms <= APART_MS:
        term.unstall(StallSource.CLOCK)
        return now_ms
    term.stall(StallSource.CLOCK, Cause(reason=CLOCK_AHEAD, message=_SAID))
    return server_ms
