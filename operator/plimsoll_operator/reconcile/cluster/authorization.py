"""What a LogCluster states of authorization: committed, and whether the cluster is secure.

Called for each pass over a LogCluster, and for its status.
"""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareAuthorization
from plimsoll_core.security.inside import InsideMode
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


def secure_condition(image: ClusterImage, waits: str = "") -> Condition | None:
    """What is open, the widest first; None: nobody asked for anything to be closed.  `waits`: why
    brokers and controllers are not in the mode that is declared."""
    found = _widest(image, waits)
    if found is None or found.status == "True" or not waits:
        return found
    return replace(found, message=f"{found.message} {waits}")


def _widest(image: ClusterImage, waits: str) -> Condition | None:
    access = image.security.authorization
    asks = [one.name for one in image.listeners if one.authentication]
    closed_inside = image.inside.mode is InsideMode.REQUIRED
    if access.mode is Mode.OFF and not asks and image.inside.mode is InsideMode.OFF and not waits:
        return None
    open_to_all = [one.name for one in image.listeners if not one.authentication]
    if open_to_all or not image.listeners:
        names = ", ".join(open_to_all) or "the default one"
        text = f"Listeners without authentication ({names}) accept anonymous clients."
        return condition("Secure", False, "AnonymousListener", text)
    if access.mode is not Mode.ENFORCE:
        text = f"spec.authorization.mode is {access.mode.value}: every user may do everything."
        return condition("Secure", False, "AuthorizationOff", text)
    if not closed_inside:
        text = (
            "Clients must log in and need rights, but connections among brokers and the "
            "operator are not authenticated (spec.certificates.internal.mode is "
            f"{image.inside.mode.value} so far)."
        )
        return condition("Secure", False, "PlaintextInside", text)
    if plaintext := [one.name for one in image.listeners if not one.tls]:
        text = f"Traffic of listeners without tls ({', '.join(plaintext)}) is not encrypted."
        return condition("Secure", False, "PlaintextListener", text)
    if access.allow_everyone_if_no_acl:
        text = "Every user has all rights on resources that no rule names (allowEveryoneIfNoAcl)."
        return condition("Secure", False, "AllowEveryone", text)
    text = (
        "Clients log in over TLS and need rights; brokers and the operator authenticate each other."
    )
    return condition("Secure", True, "Closed", text)
