"""Users whose objects are gone: a grace first, and a halt where many go at once.

Called once an absence is proven.  What is known of it is of this term alone: another leader begins
the grace anew, which cuts nobody off earlier.  Disappearances are counted for each namespace, so
that one tenant's hold up no other's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.errors import Reason
from plimsoll_core.security.state import DeclaredUser
from plimsoll_operator.api.acknowledgement import users_acknowledged, users_way_out
from plimsoll_operator.api.cluster_users import (
    GRACE_SECONDS_DEFAULT,
    REMOVALS_PER_HOUR_DEFAULT,
    ClusterUsers,
    UserDeletion,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.status.occurrence import LENGTH_MAX, Occurrence

NAMES_MAX = 5
REMEMBERED_MAX = 4_000
LOOK_AGAIN_MS = 30_000


@dataclass(slots=True)
class AbsentUsers:
    """`since`: by uid, the user and when its object was first proven absent (wall clock);
    `removed`: namespace and time of those whose grace is over."""

    since: dict[str, tuple[DeclaredUser, int]] = field(default_factory=dict)
    removed: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_MAX))


def absences_of(term: Term) -> AbsentUsers:
    """Of this term."""
    return term.kept(AbsentUsers, AbsentUsers)


def is_back(term: Term, row: DeclaredUser) -> None:
    """The object is there, another has taken its place, or nobody waits for it any more."""
    if absences_of(term).since.pop(row.object.uid, None) is not None:
        settle(term)


def wait_ms(term: Term, cluster: LogCluster, row: DeclaredUser) -> int:
    """For how long the user, whose object is proven absent, may still log in; 0: it goes now."""
    known, now_ms = absences_of(term), term.now_ms()
    deletion = _deletion(cluster)
    grace_s = deletion.grace_seconds
    grace_ms = 1000 * (GRACE_SECONDS_DEFAULT if grace_s is None else grace_s)
    uid = row.object.uid
    if uid not in known.since:
        known.since[uid] = (row, now_ms)
        text = (
            f"{row.object} is gone: the user {row.user_name} may log in for"
            f" {grace_ms // 1000} s more."
        )
        term.tell(Occurrence(key=f"user-gone-{uid}", reason="UserPendingDeletion", message=text))
        settle(term)
    since_ms = known.since[uid][1]
    left_ms = since_ms + grace_ms - now_ms
    if left_ms > 0:
        return min(left_ms, LOOK_AGAIN_MS)
    where = row.object.namespace
    if where in settle(term) and since_ms > users_acknowledged(cluster).get(where, -1):
        return LOOK_AGAIN_MS
    return 0


def went(term: Term, row: DeclaredUser) -> None:
    """Its login has ended."""
    known = absences_of(term)
    known.since.pop(row.object.uid, None)
    known.removed.append((row.object.namespace, term.now_ms()))
    settle(term)


def settle(term: Term) -> dict[str, str]:
    """Say which namespaces lost too many objects within an hour; the sentences, by namespace."""
    cluster = term.cluster
    if cluster is None:
        return {}
    found = _too_many(term, cluster)
    if not found:
        term.unstall(StallSource.ABSENT_USERS)
        return found
    text, reason = " ".join(found.values()), Reason.MassDeletion.name
    if StallSource.ABSENT_USERS not in term.stall_causes:
        key = f"mass-deletion-users-{min(found)}"
        message = text[:LENGTH_MAX]
        term.tell(Occurrence(key=key, reason=reason, message=message, warning=True))
    term.stall(StallSource.ABSENT_USERS, Cause(reason=reason, message=text))
    return found


def _too_many(term: Term, cluster: LogCluster) -> dict[str, str]:
    known, now_ms = absences_of(term), term.now_ms()
    until = users_acknowledged(cluster)
    stated = _deletion(cluster).max_per_hour
    most = REMOVALS_PER_HOUR_DEFAULT if stated is None else stated
    waiting: dict[str, list[tuple[int, str]]] = {}
    for row, since_ms in known.since.values():
        where = row.object.namespace
        if since_ms > until.get(where, -1):
            waiting.setdefault(where, []).append((since_ms, row.user_name))
    found = {}
    for namespace, users in sorted(waiting.items()):
        until_ms = until.get(namespace, -1)
        removed = sum(
            1
            for where, at_ms in known.removed
            if where == namespace and at_ms > max(until_ms, now_ms - HOUR_MS)
        )
        count = len(users) + removed
        if count > most:
            names = ", ".join(name for _, name in sorted(users)[:NAMES_MAX])
            more = len(users) - NAMES_MAX
            found[namespace] = (
                f"{count} User objects of namespace {namespace} disappeared within an hour ({names}"
                f"{f' and {more} more' if more > 0 else ''}). More than {most} look like an"
                " accident: nobody is cut off. Re-apply them (disabled: true cuts one off at once),"
                " or acknowledge these alone:"
                f" {users_way_out(cluster, namespace, max(users)[0])} Or set"
                f" spec.users.deletion.maxPerHour to {count} or more for good."
            )
    return found


def _deletion(cluster: LogCluster) -> UserDeletion:
    return (cluster.spec.users or ClusterUsers()).deletion or UserDeletion()
