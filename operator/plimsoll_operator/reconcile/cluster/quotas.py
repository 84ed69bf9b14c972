"""What a LogCluster states of quotas: committed, for everybody who has none of his own.

Called for each pass over a LogCluster.
"""

from __future__ import annotations

from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareQuotas
from plimsoll_core.quotas.state import BY_CLUSTER
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.quotas import rows_of
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource


async def declare(term: Term, cluster: LogCluster) -> None:
    """A refusal stands until the metadata version is newer, or the spec another one."""
    if "quotas" in term.missing:
        return  # they were stated, and cannot be read
    wanted = rows_of(cluster.spec.quotas)
    if wanted != tuple(term.image.quotas.of_owner(BY_CLUSTER)):
        answer = await term.ask(DeclareQuotas(rows=wanted))
        if isinstance(answer, Refused):
            term.stall(StallSource.QUOTAS, Cause(reason=answer.reason, message=answer.message))
            return
    term.unstall(StallSource.QUOTAS)
