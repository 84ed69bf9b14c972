"""SecurityShare: the room for users, ACLs, SCRAM credentials and quotas of a cluster, and the share
of each holder in it.

Asked before one of them is added, by `declared_users`, `acl_changes`, `scram_changes` and
`quota_changes`; the operator's metrics show the pools. A holder is a namespace of User objects, or
all clients together: each client with the right to add one may also delete those of the others.
Super users and Users in the LogCluster's own namespace have no share, only the bound for all; what
they hold counts. A holder that exceeds its share keeps what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.security import DeclareUser, OnBehalf
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.quotas.state import BY_CLUSTER

USERS = "users"
ACLS = "acls"
CREDENTIALS = "credentials"
QUOTAS = "quotas"

USERS_MAX = 2_000
ACLS_MAX = 10_000
CREDENTIALS_MAX = 4_000
"""The most SCRAM credentials of a cluster: two thousand users with both mechanisms."""
QUOTAS_MAX = 10_000
"""The most entities with quotas in a cluster."""


class Bound(NamedTuple):
    """The bound on the entries of one kind. `floor`: the number that each holder may have while
    there is room. `words`: the entries in a sentence."""

    most: int
    floor: int
    words: str


BOUNDS = {
    USERS: Bound(USERS_MAX, 16, "declared users"),
    ACLS: Bound(ACLS_MAX, 256, "ACL rules"),
    CREDENTIALS: Bound(CREDENTIALS_MAX, 32, "SCRAM credentials"),
    QUOTAS: Bound(QUOTAS_MAX, 16, "entities with quotas"),
}

CLIENTS = "Clients"
"""The holder of all that clients have added. No namespace has a capital letter."""
OWNER = "LogCluster"
"""The holder of what a LogCluster declares."""


def pool_of(image: ClusterImage, kind: str) -> FairPool:
    """Return the committed entries of one kind, by holder."""
    bound = BOUNDS[kind]
    pool = FairPool(bound.most, floor=bound.floor)
    for holder, number in Counter(_holders(image, kind)).items():
        pool.take(holder, number)
    return pool


def _holders(image: ClusterImage, kind: str) -> Iterator[str]:
    """Yield the holder of each entry. An ACL that clients and an object have added counts to the
    object's namespace."""
    security = image.security
    if kind == USERS:
        return (user.object.namespace for user in security.users.values())
    spaces = {user.object.uid: user.object.namespace for user in security.users.values()}
    spaces[BY_CLUSTER] = OWNER
    if kind == ACLS:
        return (spaces.get(owners[-1], CLIENTS) for owners in security.acls.values())
    if kind == CREDENTIALS:
        return (spaces.get(one.owner, CLIENTS) for one in security.credentials.values())
    return (spaces.get(row.owner, CLIENTS) for row in image.quotas.rows.values())


class SecurityShare:
    """The room for entries of one kind that one request may add. The committed ones are counted
    once, when it adds the first. `holder`: None for one without a share."""

    def __init__(self, turn: DecisionContext, kind: str, holder: str | None) -> None:
        self._turn = turn
        self._kind = kind
        self._holder = holder
        self.freed = 0
        """The number of entries that the request has removed. It may add as many beyond the
        share."""
        self._pool: FairPool | None = None

    def refusal(self, added: int) -> Refusal | None:
        """Return a refusal if so many more entries would exceed the bound for all or the holder's
        share, or None."""
        if added <= 0:
            return None
        pool = self._pool = self._pool or pool_of(self._turn.image, self._kind)
        words = BOUNDS[self._kind].words
        if pool.used + added > pool.capacity:
            text = (
                f"A cluster can have at most {pool.capacity} {words}, and has {pool.used}; "
                f"{added} more are too many. Delete those that are not needed."
            )
            return Refusal(reason=Reason.InvalidRequest, message=text)
        if self._holder is None or added <= self.freed or pool.admits(self._holder, added):
            return None
        return Refusal(reason=Reason.PolicyViolation, message=self._beyond(pool, added, words))

    def _beyond(self, pool: FairPool, added: int, words: str) -> str:
        named = f"The Users of namespace {self._holder}"
        instead = "ask the LogCluster's owner to declare some in its own namespace"
        if self._holder == CLIENTS:
            named, instead = "Clients other than super users", "add them as a super user"
        return (
            f"{named} have {pool.held(self._holder or CLIENTS)} {words}, and {pool.free} of the "
            f"cluster's {pool.capacity} are free. They cannot add {added}, because they would then "
            "have more than they leave free for others. Delete those that are not needed, or "
            f"{instead}."
        )

    def changed(self, more: int) -> None:
        """Note that the request of a client has added (or removed, if negative) so many entries,
        after `refusal` has let it."""
        if self._pool is not None and more > 0:
            self._pool.take(CLIENTS, more)
        elif self._pool is not None:
            self._pool.give_back(CLIENTS, min(-more, self._pool.held(CLIENTS)))


def share_of_client(turn: DecisionContext, kind: str, behalf: OnBehalf | None) -> SecurityShare:
    """Return the room of the client that sent a request to its broker. A super user has no
    share."""
    known = behalf is not None and not turn.image.security.is_super_user(behalf.principal)
    return SecurityShare(turn, kind, CLIENTS if known else None)


def share_of_object(turn: DecisionContext, kind: str, request: DeclareUser) -> SecurityShare:
    return SecurityShare(turn, kind, request.object.namespace if request.tenant else None)
