"""What a LogCluster states of authorization: committed, and whether the cluster is secure.

Called for each pass over a LogCluster, and for its status.
"""

from __future__ import annotations

import secrets

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareAuthorization
from plimsoll_core.security.state import Authorization, Mode
from plimsoll_operator.api.authorization import committed
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource

DISGUISE_BYTES = 32


async def declare(term: Term, cluster: LogCluster) -> None:
    """A refusal stands until the metadata version is newer, or the spec another one."""
    if "authorization" in term.missing:
        return  # it was stated, and cannot be read
    known = term.image.security.authorization
    declared = cluster.spec.authorization
    asks = any(listener.authentication for listener in term.image.listeners)
    if declared is None and known == Authorization() and not asks:
        term.unstall(StallSource.AUTHORIZATION)
        return
    disguise = known.disguise or secrets.token_bytes(DISGUISE_BYTES)
    wanted = committed(declared, disguise)
    if wanted != known:
        answer = await term.ask(DeclareAuthorization(authorization=wanted))
        if isinstance(answer, Refused):
            why = Cause(reason=answer.reason, message=answer.message)
            term.stall(StallSource.AUTHORIZATION, why)
            return
    term.unstall(StallSource.AUTHORIZATION)


def secure_condition(image: ClusterImage) -> Condition | None:
    """What is open, the widest first; None: nobody asked for anything to be closed."""
    mode = image.security.authorization.mode
    asks = [one.name for one in image.listeners if one.authentication]
    if mode is Mode.OFF and not asks:
        return None
    open_to_all = [one.name for one in image.listeners if not one.authentication]
    if open_to_all or not image.listeners:
        names = ", ".join(open_to_all) or "the only one"
        text = f"Whoever reaches a listener that asks nobody for a name ({names}) is anonymous."
        return condition("Secure", False, "AnonymousListener", text)
    if mode is not Mode.ENFORCE:
        text = f"spec.authorization.mode is {mode.value}: whoever logs in may do all."
        return condition("Secure", False, "AuthorizationOff", text)
    text = (
        "Clients log in and need rights; what brokers and the operator say to each other is not"
        " encrypted, and proves no identity."
    )
    return condition("Secure", False, "PlaintextInside", text)
