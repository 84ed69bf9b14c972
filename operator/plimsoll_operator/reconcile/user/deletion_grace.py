"""Users with deleted objects: first a grace, and a halt if many vanish at once.

Called once an absence is proven. The time of each deletion, and the users deleted within an hour,
are committed in the API server's time: the grace continues under the next leader, whatever its
host's clock shows. Deletions are counted per namespace, so that one tenant's do not hold up
another's.
"""

from __future__ import annotations

from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import UserObjectSeen
from plimsoll_core.security.state import REMOVALS_KEPT_MS, DeclaredUser
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
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence

NAMES_MAX = 5
LOOK_AGAIN_MS = 30_000


async def is_back(term: Term, row: DeclaredUser) -> None:
    """End the grace: the object exists again, another has replaced it, or the deletion is void."""
    if row.gone_since_ms is not None:
        await _note(term, row, None)
        settle(term)


async def wait_ms(term: Term, cluster: LogCluster, row: DeclaredUser) -> int:
    """Return for how many milliseconds the user may still log in after its object's proven
    deletion; 0 ends its logins now."""
    now_ms, since_ms = term.server_ms(), row.gone_since_ms
    grace_ms_of_all = grace_ms(cluster)
    if since_ms is None or now_ms < since_ms:  # a clock that went back restarts the grace
        await _note(term, row, now_ms)
        since_ms = now_ms
        text = (
            f"{row.object} was deleted: the user {row.user_name} can log in for "
            f"{grace_ms_of_all // 1000} s more."
        )
        key = f"user-gone-{row.object.uid}"
        term.tell(Occurrence(key=key, reason="UserPendingDeletion", message=text))
        settle(term)
    left_ms = since_ms + grace_ms_of_all - now_ms
    if left_ms > 0:
        return min(left_ms, LOOK_AGAIN_MS)
    where = row.object.namespace
    if where in settle(term) and since_ms > users_acknowledged(cluster).get(where, -1):
        return LOOK_AGAIN_MS
    return 0


def grace_ms(cluster: LogCluster) -> int:
    """Return how long a user may log in after its object's deletion, in milliseconds."""
    grace_s = _deletion(cluster).grace_seconds
    return 1000 * (GRACE_SECONDS_DEFAULT if grace_s is None else grace_s)


async def _note(term: Term, row: DeclaredUser, gone_since_ms: int | None) -> None:
    answer = await term.ask(UserObjectSeen(object=row.object, gone_since_ms=gone_since_ms))
    if isinstance(answer, Refused):
        raise Retry(answer.message)


def settle(term: Term) -> dict[str, str]:
    """Report namespaces that lost too many objects within an hour; return the sentences by
    namespace."""
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
    security, now_ms = term.image.security, term.server_ms()
    until = users_acknowledged(cluster)
    stated = _deletion(cluster).max_per_hour
    most = REMOVALS_PER_HOUR_DEFAULT if stated is None else stated
    waiting: dict[str, list[tuple[int, str]]] = {}
    for row in security.users.values():
        where, since_ms = row.object.namespace, row.gone_since_ms
        if since_ms is None or row.disabled:
            continue  # a user that is cut off needs no grace
        if since_ms > until.get(where, -1):
            waiting.setdefault(where, []).append((since_ms, row.user_name))
    found = {}
    for namespace, users in sorted(waiting.items()):
        until_ms = until.get(namespace, -1)
        removed = sum(
            one.namespace == namespace and one.at_ms > max(until_ms, now_ms - REMOVALS_KEPT_MS)
            for one in security.removals
        )
        count = len(users) + removed
        if count > most:
            names = ", ".join(name for _, name in sorted(users)[:NAMES_MAX])
            more = len(users) - NAMES_MAX
            found[namespace] = (
                f"{count} User objects of namespace {namespace} disappeared within an hour "
                f"({names}{(f' and {more} more' if more > 0 else '')}). More than {most} look "
                "like an accident, so no user is cut off. Re-apply them (disabled: true cuts "
                "one off at once), or acknowledge these alone: "
                f"{users_way_out(cluster, namespace, max(users)[0])} Or set "
                f"spec.users.deletion.maxPerHour to {count} or more for good."
            )
    return found


def _deletion(cluster: LogCluster) -> UserDeletion:
    return (cluster.spec.users or ClusterUsers()).deletion or UserDeletion()
