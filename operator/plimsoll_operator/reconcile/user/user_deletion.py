"""Follows a user after its User object was deleted: proof of the deletion, a grace period, then
another object takes the user over or the user is removed.

Only a deletion on purpose counts: not one along with the CRD, the namespace or the cluster. After
it the user may still log in for a grace period, and no user is removed if many objects disappear at
once. The time of each deletion, and the users deleted within an hour, are committed in the API
server's time: the grace period continues under the next leader, whatever its host's clock shows.
Deletions are counted per namespace, so that one tenant's do not hold up another's.

A user that a live object of its namespace declares is handed over with its login and its rules, and
never removed. An object of another namespace does not take the login over: it gets the name once
the user is removed. Called by the User's reconciler.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import UserObjectGone, UserObjectSeen
from plimsoll_core.security.state import (
    NO_OBJECT,
    REMOVALS_KEPT_MS,
    DeclaredUser,
    UserObject,
)
from plimsoll_operator.api.acknowledgement import users_acknowledged, users_way_out
from plimsoll_operator.api.cluster_users import (
    GRACE_SECONDS_DEFAULT,
    REMOVALS_PER_HOUR_DEFAULT,
    ClusterUsers,
    UserDeletion,
)
from plimsoll_operator.api.labels import USERS_CRD
from plimsoll_operator.api.load import Unreadable, from_object
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import LOG_CLUSTERS, NAMESPACES, USERS
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared import object_absence
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.user import tenants
from plimsoll_operator.reconcile.user.tenants import object_of
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence

logger = logging.getLogger("plimsoll.user_deletion")

CRD_NAME = "users.plimsoll.dev"
NAMES_MAX = 5
LOOK_AGAIN_MS = 30_000


def former_of(term: Term, user: User) -> DeclaredUser | None:
    """Return the committed user that `user` declares, if another object of the same namespace
    declared it before and the watches no longer see that object. Return None otherwise."""
    row = term.image.security.users.get(user.user_name)
    if row is None or row.object == object_of(user) or user.metadata.deletion_timestamp:
        return None
    where = row.object.namespace
    if where != user.metadata.namespace or user.cluster_key != term.key:
        return None
    holder = term.objects.users.get((where, row.object.name))
    return None if holder is not None and holder.metadata.uid == row.object.uid else row


async def forget(term: Term, result: PassResult, row: DeclaredUser) -> None:
    """Remove a committed user with an object that was deleted or replaced: hand it over to another
    object that declares it, or remove it after the grace period. Keep it if the object exists, or
    was deleted along with its CRD or its cluster. A tenant's user with a deleted namespace is cut
    off, and kept while there is room."""
    cluster = term.cluster
    if row.object.uid == NO_OBJECT:
        return  # it stays cut off
    if cluster is None or "users" in term.missing:
        return  # the spec states users' deletion, but is unreadable
    try:
        labels = await tenants.labels_around(term, row)
        if not tenants.may_still(cluster, row, labels):
            await tenants.cut_off(term, row)
            row = term.image.security.users[row.user_name]
        fate = _kept(term) if labels is None else await fate_of(term, row)
        claims = UserClaims(None, any=False)
        if labels is not None and fate is not Fate.STANDS:
            claims = await claims_on(term, cluster, row)
    except ApiError as error:
        text = (
            f"the operator cannot confirm that User {row.object.namespace}/{row.object.name} is "
            f"gone, so it keeps the user; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    if fate is Fate.STANDS:
        await is_back(term, result, row)
        return
    if claims.any:
        await _leave_to(term, result, row, claims.heir)
        return
    stays = fate is Fate.GONE and not row.disabled  # cut off already
    if stays and (wait_ms := await grace_left_ms(term, result, cluster, row)):
        result.add_later(Work(Task.USER, (row.object.namespace, row.object.name)), wait_ms)
        return
    now_ms = term.server_ms() if stays else None
    answer = await term.ask(UserObjectGone(object=row.object, now_ms=now_ms))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
    settle(term, result)


async def _leave_to(
    term: Term, result: PassResult, row: DeclaredUser, heir: UserObject | None
) -> None:
    """Hand the user over to `heir`, another object that declares it. If that is None, an object
    with an unreadable spec may declare it: keep the user and look again later."""
    if heir is None:
        result.add_later(Work(Task.USER, (row.object.namespace, row.object.name)), LOOK_AGAIN_MS)
        return
    answer = await term.ask(UserObjectGone(object=row.object, heir=heir))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
    settle(term, result)
    result.add(Work(Task.USER, (heir.namespace, heir.name)))


def _kept(term: Term) -> Fate:
    """Return what becomes of a user that is disabled since its namespace was deleted: it is kept
    while the cluster has at most `KEPT_MAX` users."""
    crowded = len(term.image.security.users) > tenants.KEPT_MAX
    return Fate.GONE if crowded else Fate.STANDS


# --- the proof -----------------------------------------------------------------------------------


class Fate(Enum):
    """Outcome of looking for a User object. STANDS: it exists, or nothing proves that it does not.
    GONE: it is proven to be deleted. REPLACED: another object has its name."""

    STANDS = "Stands"
    GONE = "Gone"
    REPLACED = "Replaced"


async def note_crd(term: Term) -> None:
    """Store the CRD's uid in the Lease (`object_absence`), before any object is absent. A failure
    is only logged; a later pass stores the uid."""
    try:
        await object_absence.note(term, CRD_NAME, USERS_CRD)
    except ApiError as error:
        logger.info(
            "the operator cannot read the CRD of User objects and tries again; until then it "
            "removes no user: %s",
            error,
        )


async def fate_of(term: Term, row: DeclaredUser) -> Fate:
    """Return what became of the object of a committed user, by fresh reads alone. Raises the API
    server's errors."""
    namespace, name = row.object.namespace, row.object.name
    since = await object_absence.counts_since(term, CRD_NAME, USERS_CRD)
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
                "user %s and its login are kept although its User object is gone, because the "
                "User CRD was deleted and created again; apply the User object again to manage "
                "the user by it",
                row.user_name,
            )
            return Fate.STANDS
        return Fate.GONE
    return Fate.STANDS if found["metadata"]["uid"] == row.object.uid else Fate.REPLACED


# --- the grace -----------------------------------------------------------------------------------


async def is_back(term: Term, result: PassResult, row: DeclaredUser) -> None:
    """End the grace period of a user, if it is in one: its object exists again, or the deletion
    does not count."""
    if row.gone_since_ms is not None:
        await _note(term, row, None)
        settle(term, result)


async def grace_left_ms(
    term: Term, result: PassResult, cluster: LogCluster, row: DeclaredUser
) -> int:
    """Return after how many milliseconds to check again a user with a deleted object, while the
    user may still log in. Return 0 if its login ends now. The first call commits the start of the
    grace period. While a mass deletion is not acknowledged, the login does not end."""
    now_ms, since_ms = term.server_ms(), row.gone_since_ms
    grace_ms_of_all = grace_ms(cluster)
    if since_ms is None or now_ms < since_ms:  # a clock that went back restarts the grace
        await _note(term, row, now_ms)
        since_ms = now_ms
        text = (
            f"{row.object} was deleted: the user {row.user_name} can log in for "
            f"{grace_ms_of_all // 1000} s more. To keep the user, apply the object again in time."
        )
        key = f"user-gone-{row.object.uid}"
        result.tell(Occurrence(key=key, reason="UserPendingDeletion", message=text))
        settle(term, result)
    left_ms = since_ms + grace_ms_of_all - now_ms
    if left_ms > 0:
        return min(left_ms, LOOK_AGAIN_MS)
    where = row.object.namespace
    if where in settle(term, result) and since_ms > users_acknowledged(cluster).get(where, -1):
        return LOOK_AGAIN_MS
    return 0


def grace_ms(cluster: LogCluster) -> int:
    """Return the grace period: how long a user may log in after its object's deletion, in
    milliseconds."""
    grace_s = _deletion(cluster).grace_seconds
    return 1000 * (GRACE_SECONDS_DEFAULT if grace_s is None else grace_s)


async def _note(term: Term, row: DeclaredUser, gone_since_ms: int | None) -> None:
    answer = await term.ask(UserObjectSeen(object=row.object, gone_since_ms=gone_since_ms))
    if isinstance(answer, Refused):
        raise Retry(answer.message)


def settle(term: Term, result: PassResult) -> dict[str, str]:
    """Set or clear the stall cause about namespaces that lost too many User objects within an hour,
    or any that a restore of the metadata log may explain. Return its sentences by namespace, {} if
    there are none."""
    cluster = term.cluster
    if cluster is None:
        return {}
    found = _too_many(term, cluster)
    if not found:
        result.unstall(StallSource.ABSENT_USERS)
        return found
    text, reason = " ".join(found.values()), Reason.MassDeletion.name
    key = f"mass-deletion-users-{min(found)}"
    event = Occurrence(key=key, reason=reason, message=text[:LENGTH_MAX], warning=True)
    result.stall(StallSource.ABSENT_USERS, Cause(reason=reason, message=text), event)
    return found


def _too_many(term: Term, cluster: LogCluster) -> dict[str, str]:
    security, restored, now_ms = term.image.security, term.image.restored, term.server_ms()
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
            found[namespace] = (
                f"{count} User objects of namespace {namespace} disappeared within an hour "
                f"({_names(users)}). More than {most} look like an accident, so no user is cut "
                f"off. {_ways_out(cluster, namespace, users)} Or set "
                f"spec.users.deletion.maxPerHour to {count} or more for good."
            )
        elif lost := [one for one in users if restored and restored.may_explain(one[0])]:
            found[namespace] = (
                f"The metadata log was restored, and User objects of namespace {namespace} are "
                f"missing since ({_names(lost)}). The storage of the API server may have lost "
                f"them, so no user is cut off. {_ways_out(cluster, namespace, lost)}"
            )
    return found


def _names(users: list[tuple[int, str]]) -> str:
    more = len(users) - NAMES_MAX
    names = ", ".join(name for _, name in sorted(users)[:NAMES_MAX])
    return f"{names} and {more} more" if more > 0 else names


def _ways_out(cluster: LogCluster, namespace: str, users: list[tuple[int, str]]) -> str:
    """Return the sentence that says how to keep or to give up `users`, (time in ms, name) each."""
    return (
        "Apply the User objects again (with spec.disabled: true a user is cut off at once), or "
        "acknowledge the deletion of this namespace's Users up to now: "
        f"{users_way_out(cluster, namespace, max(users)[0])}"
    )


def _deletion(cluster: LogCluster) -> UserDeletion:
    return (cluster.spec.users or ClusterUsers()).deletion or UserDeletion()


# --- the heir ------------------------------------------------------------------------------------


class UserClaims(NamedTuple):
    """Objects that declare a user after its own object was deleted. `heir`: the oldest object that
    takes the user over, None if there is none. `any`: True if any object declares the user, even
    one with an unreadable spec."""

    heir: UserObject | None
    any: bool


async def claims_on(term: Term, cluster: LogCluster, row: DeclaredUser) -> UserClaims:
    """Return which objects of the user's namespace declare the user, by a fresh list. Raises
    ApiError."""
    claimed = False
    listed = await term.kube.list(USERS, row.object.namespace)
    for found in sorted(listed.items, key=_age):
        if found["metadata"].get("deletionTimestamp"):
            continue
        try:
            user = from_object(found, User)
        except Unreadable:
            claimed = claimed or _may_declare(term, found, row.user_name)
            continue
        if (user.cluster_key, user.user_name) != (term.key, row.user_name):
            continue
        labels = await tenants.labels_for(term, user, cluster)
        if tenants.refusal(user, cluster, labels) is None:
            meta = user.metadata
            return UserClaims(
                UserObject(namespace=meta.namespace, name=meta.name, uid=meta.uid), True
            )
    return UserClaims(None, any=claimed)


def _may_declare(term: Term, found: Object, user_name: str) -> bool:
    """Return True if an object with an unreadable spec may declare the user, by the names in it
    that can be read."""
    meta, spec = found["metadata"], found.get("spec") or {}
    ref = spec.get("clusterRef") or {}
    cluster = (ref.get("namespace") or meta["namespace"], ref.get("name"))
    names = (spec.get("userName"), meta["name"], f"{meta['namespace']}.{meta['name']}")
    return cluster == term.key and user_name in names


def _age(found: Object) -> tuple[str, str]:
    meta = found["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]
