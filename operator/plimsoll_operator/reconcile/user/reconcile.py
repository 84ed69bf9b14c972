"""A User object: its Secret first, then what is committed of it, then what it shows.

In that order nothing is lost by a crash: whoever leads next finds the Secret, and commits what it
says.  The operator reads Secrets by name alone, so another password is noticed within a minute.
A user whose object is proven absent may log in no more.
"""

from __future__ import annotations

from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareUser, UserObjectGone
from plimsoll_core.security.acl import malformed
from plimsoll_core.security.scram import SPEC_NAMES, ScramCredential
from plimsoll_core.security.state import DeclaredUser, UserObject
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.labels import listener_authority_map
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quotas import values_of
from plimsoll_operator.api.user import SecretStatus, User, UserStatus
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import (
    CONFIG_MAPS,
    CRDS,
    LOG_CLUSTERS,
    NAMESPACES,
    SECRETS,
    USERS,
)
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.user import login_secret as logins
from plimsoll_operator.reconcile.user.bootstrap import bootstrap_of
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 60_000
CRD_NAME = "users.plimsoll.dev"


class _NotNow(Exception):
    """The object is not followed; a reason and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def reconcile(term: Term, key: Key) -> None:
    user, target = term.objects.users.get(key), Target(USERS, *key)
    for row in _rows(term, key):
        if user is None or row.object.uid != user.metadata.uid:
            await _forget(term, row)
    if user is None or user.metadata.deletion_timestamp:
        term.statuses.pop(target, None)
        return
    if user.cluster_key != term.key or term.cluster is None or term.objects.users.missing(key):
        return
    try:
        ready = await _follow(term, user)
    except _NotNow as why:
        ready = condition("Ready", False, why.reason, str(why))
    except ApiError as error:
        raise Retry(str(error)) from error
    status = UserStatus(
        observed_generation=user.metadata.generation,
        principal=user.principal,
        secret=SecretStatus(name=user.secret_name) if logins.mechanisms_of(user) else None,
        acls=len(user.acls),
        conditions=(ready,),
    )
    term.show(target, user.metadata.generation, status)
    term.add_later(Work(Task.USER, key), LOOK_MS)


def abandoned(term: Term) -> list[Key]:
    """Objects that declared a user and are not among those last seen."""
    keys = [(row.object.namespace, row.object.name) for row in term.image.security.users.values()]
    return [key for key in keys if term.objects.users.get(key) is None]


async def _follow(term: Term, user: User) -> Condition:
    for number, acl in enumerate(user.acls):
        if text := malformed(acl):
            raise _NotNow("InvalidRule", f"spec.acls, rule {number}: {text}")
    credentials = await _credentials(term, user) if logins.mechanisms_of(user) else None
    owners = {one.owner for one in term.image.security.credentials.values()}
    if credentials is None and user.metadata.uid in owners:
        credentials = ()  # it had one before; what Kafka's tools make is theirs
    answer = await term.ask(
        DeclareUser(
            object=_object(user),
            user_name=user.user_name,
            disabled=user.spec.disabled or False,
            acls=tuple(dict.fromkeys(user.acls)),
            credentials=credentials,
            quotas=values_of(user.spec.quotas),
        )
    )
    if isinstance(answer, Refused):
        raise _NotNow(answer.reason, answer.message)
    return _ready(term, user)


def _ready(term: Term, user: User) -> Condition:
    if user.spec.disabled:
        return condition("Ready", False, "Disabled", "spec.disabled: the user may not log in.")
    asked = {name for listener in term.image.listeners for name in listener.authentication}
    wanted = {SPEC_NAMES[one] for one in logins.mechanisms_of(user)}
    if user.service_account is not None:
        wanted = {"ServiceAccount"}
    if wanted and not wanted & asked:
        text = (
            "No listener of the LogCluster asks for a login by "
            f"{' or '.join(sorted(wanted))}: see spec.listeners[].authentication."
        )
        return condition("Ready", False, "ListenerMissing", text)
    return condition("Ready", True, "Serving", "The user may log in.")


def _object(user: User) -> UserObject:
    namespace, name = user.key
    return UserObject(namespace=namespace, name=name, uid=user.metadata.uid)


# --- the password --------------------------------------------------------------------------------


async def _credentials(term: Term, user: User) -> tuple[ScramCredential, ...]:
    """Of the password that its Secret holds, which is made where there is none."""
    own = None if user.scram is None else user.scram.password_secret
    found = await _read(term, user.metadata.namespace, user.secret_name)
    if found is not None and not logins.is_of(found, user):
        text = f"Secret {user.secret_name} is not of this User; delete it, or set spec.secretName."
        raise _NotNow("SecretForeign", text)
    if own is not None:
        given = await _read(term, user.metadata.namespace, own.name)
        key = own.key or logins.PASSWORD_KEY
        password = None if given is None else logins.password_in(given, key)
        if password is None:
            text = f"Secret {own.name} does not exist, or has no password under the key {key}."
            raise _NotNow("SecretMissing", text)
    else:
        password = None if found is None else logins.password_in(found)
        password = password or logins.new_password()
    await _write(term, user, found, None if own is not None else password)
    known = term.image.security.credentials
    mine = {
        one: known[user.user_name, one]
        for one in logins.mechanisms_of(user)
        if (user.user_name, one) in known
    }
    return logins.kept(user, password, mine, term.now_ms())


async def _read(term: Term, namespace: str, name: str) -> Object | None:
    try:
        return await term.kube.get(SECRETS, namespace, name)
    except NotFound:
        return None


async def _write(term: Term, user: User, found: Object | None, password: str | None) -> None:
    """Before anything of it is committed."""
    assert term.cluster is not None, "it was looked for"
    bootstrap = bootstrap_of(term, logins.mechanisms_of(user))
    if bootstrap.tls:
        bootstrap = bootstrap._replace(authority=await _authority(term))
    wanted = logins.login_secret(user, password, bootstrap)
    try:
        if found is None:
            await term.kube.create(SECRETS, wanted)
        elif found.get("data") != wanted["data"]:
            meta = {**wanted["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
            await term.kube.replace(SECRETS, {**wanted, "metadata": meta})
    except Conflict as error:
        raise Retry(f"Secret {user.secret_name} has just changed") from error


async def _authority(term: Term) -> str:
    """What signs the listeners' certificates; empty: all of them are a user's own."""
    namespace, cluster = term.key
    try:
        found = await term.kube.get(CONFIG_MAPS, namespace, listener_authority_map(cluster))
    except NotFound:
        return ""
    return str((found.get("data") or {}).get("ca.crt", ""))


# --- objects that are gone -----------------------------------------------------------------------


def _rows(term: Term, key: Key) -> list[DeclaredUser]:
    rows = term.image.security.users.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]


async def _forget(term: Term, row: DeclaredUser) -> None:
    """Whose object is gone may log in no more; what went with its CRD, its namespace or its cluster
    was not meant."""
    try:
        if not await _is_gone(term, row):
            return
    except ApiError as error:
        raise Retry(f"absence is not proven: {error}") from error
    answer = await term.ask(UserObjectGone(object=row.object))
    if isinstance(answer, Refused):
        raise Retry(answer.message)


async def _is_gone(term: Term, row: DeclaredUser) -> bool:
    namespace, name = row.object.namespace, row.object.name
    crd = await term.kube.get(CRDS, None, CRD_NAME)
    cluster = await term.kube.get(LOG_CLUSTERS, *term.key)
    around = await term.kube.get(NAMESPACES, None, namespace)
    if any(one["metadata"].get("deletionTimestamp") for one in (crd, cluster, around)):
        return False
    try:
        found = await term.kube.get(USERS, namespace, name)
    except NotFound:
        return True
    return bool(found["metadata"]["uid"] != row.object.uid)
