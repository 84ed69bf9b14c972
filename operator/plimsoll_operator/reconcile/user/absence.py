"""Proof that a User object was deleted on purpose.

Called for users with an object that is not among those last seen. A deletion along with its CRD,
its namespace or its cluster does not count.
"""

from __future__ import annotations

import logging
from enum import Enum

from plimsoll_core.security.state import DeclaredUser
from plimsoll_operator.api.labels import USERS_CRD
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import LOG_CLUSTERS, NAMESPACES, USERS
from plimsoll_operator.reconcile import crd_age
from plimsoll_operator.reconcile.reconcile_term import Term

logger = logging.getLogger("plimsoll.absence")

CRD_NAME = "users.plimsoll.dev"


class Fate(Enum):
    """State of an object. STANDS: it exists, or nothing proves that it does not; REPLACED: another
    one has its name."""

    STANDS = "Stands"
    GONE = "Gone"
    REPLACED = "Replaced"


async def note_crd(term: Term) -> None:
    """Note the CRD before any object is absent; after a failure a later pass notes it."""
    try:
        await crd_age.note(term, CRD_NAME, USERS_CRD)
    except ApiError as error:
        logger.info("cannot read the User CRD yet: %s", error)


async def fate(term: Term, row: DeclaredUser) -> Fate:
    """Return an object's state by fresh reads alone. Raises the API server's errors."""
    namespace, name = row.object.namespace, row.object.name
    since = await crd_age.counts_since(term, CRD_NAME, USERS_CRD)
    cluster = await term.kube.get(LOG_CLUSTERS, *term.key)
    around = await term.kube.get(NAMESPACES, None, namespace)
    going = any(one["metadata"].get("deletionTimestamp") for one in (cluster, around))
    if since is None or going:
        return Fate.STANDS
    try:
        found = await term.kube.get(USERS, namespace, name)
    except NotFound:
        if term.seen_uids.get(row.object.uid, "") < since:
            logger.warning(
                "user %s kept: the User CRD was recreated since its object was seen", row.user_name
            )
            return Fate.STANDS
        return Fate.GONE
    return Fate.STANDS if found["metadata"]["uid"] == row.object.uid else Fate.REPLACED
