"""Reconciles a User object: first its Secret, then its committed login and rights, then its status.

In that order a crash loses nothing: the next leader finds the Secret and commits its content. The
operator reads each Secret by its name once a minute, so it notices a changed password within a
minute. If a User object is proven to be deleted, its user may no longer log in after a grace
period, unless another object declares the user (`user_deletion`). `tenants` limits an object of
another namespace than the LogCluster's. Revocations are committed before anything that could be
refused.
"""

from __future__ import annotations

from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareUser
from plimsoll_core.quotas.state import QuotaValues
from plimsoll_core.security.acl import malformed
from plimsoll_core.security.client_certificates import TLS_LOGIN
from plimsoll_core.security.scram import SPEC_NAMES
from plimsoll_core.security.state import NO_OBJECT
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quotas import values_of
from plimsoll_operator.api.tenancy import Ruling, bounds, is_tenant, ruled
from plimsoll_operator.api.user import SecretStatus, User, UserStatus
from plimsoll_operator.kube.errors import ApiError, Rejected
from plimsoll_operator.kube.resources import USERS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.client_bootstrap import mechanisms_of
from plimsoll_operator.reconcile.user import tenants
from plimsoll_operator.reconcile.user.proven_passwords import ProvenPasswords
from plimsoll_operator.reconcile.user.stored_login import (
    NotFollowed,
    wanted_certificates,
    wanted_credentials,
)
from plimsoll_operator.reconcile.user.tenants import object_of, rows_of
from plimsoll_operator.reconcile.user.user_deletion import forget, former_of, is_back, note_crd
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 60_000
QUOTA_NOT_ALLOWED = (
    "spec.quotas is not fully in effect. A User outside the LogCluster's namespace cannot raise "
    "the default quotas of users, nor change the quotas that Kafka's tools set for this user. "
    "Lower spec.quotas, or ask the LogCluster's owner for a higher quota."
)


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    user, target = term.objects.users.get(key), Target(USERS, *key)
    if user is not None and (former := former_of(term, user)) is not None:
        await forget(term, result, former)
    await wait_for_newest(term, user)
    for row in rows_of(term, key):
        if user is None or row.object.uid != user.metadata.uid:
            await forget(term, result, row)
        else:
            await is_back(term, result, row)
    if user is None or user.metadata.deletion_timestamp:
        result.show_no_more(target)
        term.kept(ProvenPasswords, ProvenPasswords).forget(key)
    if user is None or user.cluster_key != term.key or term.cluster is None:
        return
    if is_tenant(user) and "users" in term.missing:
        return  # the namespace's rights are stated, but unreadable
    await note_crd(term)
    try:
        ready = await _settled(term, result, user, term.cluster)
    except Rejected as error:  # permanent: report it to the owner
        ready = condition("Ready", False, "Rejected", _rejected(error))
    except ApiError as error:
        raise Retry(str(error)) from error
    if ready is None:
        return
    status = UserStatus(
        observed_generation=user.metadata.generation,
        principal=user.principal,
        secret=SecretStatus(name=user.secret_name) if user.has_secret else None,
        acls=sum(user.metadata.uid in owners for owners in term.image.security.acls.values()),
        conditions=(ready,),
    )
    result.show(target, user.metadata.generation, status)
    result.add_later(Work(Task.USER, key), LOOK_MS)


async def _settled(
    term: Term, result: PassResult, user: User, cluster: LogCluster
) -> Condition | None:
    """Make the user as the User's spec states, and return the condition Ready. Return None if the
    object is being deleted, after all its rights were revoked, or if its spec cannot be read, after
    its users were disabled if the namespace may no longer have any."""
    if term.objects.users.missing(user.key):
        await _hold(term, user.key, cluster)
        return None  # the spec states more, but that is unreadable
    going = user.metadata.deletion_timestamp is not None
    try:
        if not going:
            return await _follow(term, result, user, cluster)
        await _take_away(term, user, cluster)  # finalizers may delay the deletion: revoke all
    except NotFollowed as why:
        return None if going else condition("Ready", False, why.reason, str(why))
    return None


def abandoned(term: Term) -> list[Key]:
    """Return the keys of objects that declared a committed user and that the watches no longer
    see."""
    rows = (row.object for row in term.image.security.users.values())
    keys = [(one.namespace, one.name) for one in rows if one.uid != NO_OBJECT]
    return [key for key in keys if term.objects.users.get(key) is None]


async def _hold(term: Term, key: Key, cluster: LogCluster) -> None:
    """If the object's spec cannot be decoded and its namespace may no longer have users, disable
    the users that the object declared."""
    for row in rows_of(term, key):
        if not tenants.may_still(cluster, row, await tenants.labels_around(term, row)):
            await tenants.cut_off(term, row)


async def _follow(term: Term, result: PassResult, user: User, cluster: LogCluster) -> Condition:
    ruling, held = await _take_away(term, user, cluster)
    if text := _malformed(user):
        raise NotFollowed("InvalidRule", text)
    credentials = await wanted_credentials(term, result, user)
    certificates = await wanted_certificates(term, result, user, cluster)
    answer = await term.ask(
        DeclareUser(
            object=object_of(user),
            user_name=user.user_name,
            disabled=user.spec.disabled or False,
            acls=tuple(dict.fromkeys(ruling.acls)),
            credentials=credentials,
            certificates=certificates,
            quotas=held,
            tenant=is_tenant(user),
        )
    )
    if isinstance(answer, Refused):
        raise NotFollowed(answer.reason, answer.message)
    if ruling.refused:
        return condition("Ready", False, "AclNotAllowed", ruling.refused)
    if held != values_of(user.spec.quotas):
        return condition("Ready", False, "QuotaNotAllowed", QUOTA_NOT_ALLOWED)
    return _ready(term, user)


def _malformed(user: User) -> str | None:
    found = ((number, malformed(acl)) for number, acl in user.rules)
    return next((f"spec.acls, rule {number}: {text}" for number, text in found if text), None)


async def _take_away(term: Term, user: User, cluster: LogCluster) -> tuple[Ruling, QuotaValues]:
    """Commit the loss of every right and quota that the object may not have or no longer states.
    Return the rules and quotas that it may have. Raise `NotFollowed` if the object may not declare
    the user at all."""
    labels = await tenants.labels_for(term, user, cluster)
    row = next((one for one in rows_of(term, user.key) if one.object == object_of(user)), None)
    if why := tenants.refusal(user, cluster, labels):
        if row is not None:
            await tenants.cut_off(term, row)
        raise NotFollowed(why.reason, why.message)
    ruling, quotas = ruled(user, cluster, labels or {}), values_of(user.spec.quotas)
    if is_tenant(user):
        new = user.user_name not in term.image.security.users
        if new and row is None and (why := tenants.taken_name(user, term.image.security)):
            raise NotFollowed(why.reason, why.message)
        quotas = tenants.bounded(user.user_name, quotas, term.image.quotas)
    if row is None:
        return ruling, quotas
    may = bounds(user, cluster, labels or {})
    if _malformed(user) is None and row.user_name == user.user_name:
        may = tenants.still_stated(ruling.acls, may)  # a malformed spec revokes nothing else
    kept = tenants.left_of(row, may, quotas, term.image)
    disabled = row.disabled or user.spec.disabled or False
    if kept.changes or disabled != row.disabled:
        answer = await term.ask(
            DeclareUser(
                object=row.object,
                user_name=row.user_name,
                disabled=disabled,
                acls=kept.acls,
                quotas=kept.quotas,
            )
        )
        if isinstance(answer, Refused):
            raise NotFollowed(answer.reason, answer.message)
    return ruling, quotas


def _rejected(error: Rejected) -> str:
    return (
        "The API server rejected a request for this User; remove the cause (quota, admission or "
        f"RBAC): {error}"
    )


def _ready(term: Term, user: User) -> Condition:
    if user.spec.disabled:
        return condition(
            "Ready",
            False,
            "Disabled",
            "The user cannot log in: spec.disabled is true. Set it to false to permit the login.",
        )
    asked = {name for listener in term.image.listeners for name in listener.authentication}
    wanted = {SPEC_NAMES[one] for one in mechanisms_of(user)}
    if user.service_account is not None:
        wanted = {"ServiceAccount"}
    if user.by_certificate:
        wanted = {TLS_LOGIN}
    if wanted and not wanted & asked:
        text = (
            "The user cannot log in, because no listener of the LogCluster accepts a login by "
            f"{' or '.join(sorted(wanted))}. Add it to spec.listeners[].authentication, or "
            "change the User's authentication."
        )
        return condition("Ready", False, "ListenerMissing", text)
    return condition("Ready", True, "Serving", "The user can log in.")


async def wait_for_newest(term: Term, user: User | None) -> None:
    """Raise Retry if the committed user is disabled, the object as last seen would enable it, and a
    newer version of the object exists."""
    if user is None or user.spec.disabled:
        return
    row = term.image.security.users.get(user.user_name)
    if row is None or not row.disabled:
        return
    try:
        newest = (await term.kube.get(USERS, *user.key))["metadata"]
    except ApiError as error:
        name = "/".join(user.key)
        text = (
            f"the operator cannot ask the API server if User {name}, which is disabled, was "
            f"enabled; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    seen = user.metadata
    if (newest.get("uid"), newest.get("generation", 0)) != (seen.uid, seen.generation):
        name = "/".join(user.key)
        raise Retry(
            f"User {name} is disabled and its object has changed; the operator first reads the "
            "newest version of the object, so that it does not enable the user by mistake; "
            "nothing needs to be done"
        )
