"""A User object: its Secret first, then its committed rights, then its status.

In that order a crash loses nothing: the next leader finds the Secret and commits its content. The
operator reads Secrets by name alone, so another password is noticed within a minute. A user with a
proven absent object may no longer log in after a grace (`deletion_grace`), unless another object
declares it (`heirs`). `tenants` limits an object of another namespace than the LogCluster's.
Revocations are committed before anything that could be refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import DeclareUser, UserObjectGone
from plimsoll_core.quotas.state import QuotaValues
from plimsoll_core.security.acl import malformed
from plimsoll_core.security.client_certificates import TLS_LOGIN, UserCertificate
from plimsoll_core.security.scram import SPEC_NAMES, ScramCredential
from plimsoll_core.security.state import BY_CLIENT, NO_OBJECT, DeclaredUser, UserObject
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.labels import listener_authority_map
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.quotas import values_of
from plimsoll_operator.api.tenancy import Ruling, bounds, is_tenant, ruled
from plimsoll_operator.api.user import SecretStatus, User, UserStatus
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS, USERS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.pki.authority import Unreadable
from plimsoll_operator.reconcile.certificate_time import certificate_ms
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.user import (
    absence,
    client_signing,
    deletion_grace,
    heirs,
    narrowing,
    tenants,
    user_certificates,
)
from plimsoll_operator.reconcile.user import login_secret as logins
from plimsoll_operator.reconcile.user.bootstrap import Bootstrap, bootstrap_of, shows_own
from plimsoll_operator.reconcile.user.newest_object import wait_for_newest
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 60_000
QUOTA_NOT_ALLOWED = (
    "spec.quotas exceeds the default quotas of users, or differs from the quotas that Kafka's "
    "tools set for this user. A User outside the LogCluster's namespace cannot change them."
)


class _NotNow(Exception):
    """The object is not followed now; with a reason and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def reconcile(term: Term, key: Key) -> None:
    user, target = term.objects.users.get(key), Target(USERS, *key)
    if user is not None and (former := _former(term, user)) is not None:
        await _forget(term, former)
    await wait_for_newest(term, user)
    for row in _rows(term, key):
        if user is None or row.object.uid != user.metadata.uid:
            await _forget(term, row)
        else:
            await deletion_grace.is_back(term, row)
    if user is None or user.metadata.deletion_timestamp:
        term.shows_no_more(target)
    if user is None or user.cluster_key != term.key or term.cluster is None:
        return
    if is_tenant(user) and "users" in term.missing:
        return  # the namespace's rights are stated, but unreadable
    await absence.note_crd(term)
    try:
        ready = await _settled(term, user, term.cluster)
    except Rejected as error:  # permanent: report it to the owner
        ready = condition("Ready", False, "Rejected", f"The API server rejected a request: {error}")
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
    term.show(target, user.metadata.generation, status)
    term.add_later(Work(Task.USER, key), LOOK_MS)


async def _settled(term: Term, user: User, cluster: LogCluster) -> Condition | None:
    """Reconcile a User. Return its condition, or None if there is nothing to show."""
    if term.objects.users.missing(user.key):
        await _hold(term, user.key, cluster)
        return None  # the spec states more, but that is unreadable
    going = user.metadata.deletion_timestamp is not None
    try:
        if not going:
            return await _follow(term, user, cluster)
        await _take_away(term, user, cluster)  # finalizers may delay the deletion: revoke all
    except _NotNow as why:
        return None if going else condition("Ready", False, why.reason, str(why))
    return None


def abandoned(term: Term) -> list[Key]:
    """Return the objects that declared a user and are not among those last seen."""
    rows = (row.object for row in term.image.security.users.values())
    keys = [(one.namespace, one.name) for one in rows if one.uid != NO_OBJECT]
    return [key for key in keys if term.objects.users.get(key) is None]


async def _hold(term: Term, key: Key, cluster: LogCluster) -> None:
    """Cut off users that are no longer allowed, whatever the object states."""
    for row in _rows(term, key):
        if not tenants.may_still(cluster, row, await tenants.labels_around(term, row)):
            await tenants.cut_off(term, row)


async def _follow(term: Term, user: User, cluster: LogCluster) -> Condition:
    ruling, held = await _take_away(term, user, cluster)
    if text := _malformed(user):
        raise _NotNow("InvalidRule", text)
    credentials = await _wanted_credentials(term, user)
    certificates = await _wanted_certificates(term, user, cluster)
    answer = await term.ask(
        DeclareUser(
            object=_object(user),
            user_name=user.user_name,
            disabled=user.spec.disabled or False,
            acls=tuple(dict.fromkeys(ruling.acls)),
            credentials=credentials,
            certificates=certificates,
            quotas=held,
        )
    )
    if isinstance(answer, Refused):
        raise _NotNow(answer.reason, answer.message)
    if ruling.refused:
        return condition("Ready", False, "AclNotAllowed", ruling.refused)
    if held != values_of(user.spec.quotas):
        return condition("Ready", False, "QuotaNotAllowed", QUOTA_NOT_ALLOWED)
    return _ready(term, user)


def _malformed(user: User) -> str | None:
    found = ((number, malformed(acl)) for number, acl in user.rules)
    return next((f"spec.acls, rule {number}: {text}" for number, text in found if text), None)


async def _take_away(term: Term, user: User, cluster: LogCluster) -> tuple[Ruling, QuotaValues]:
    """Revoke what the object may not have or no longer states. Return what it may have."""
    labels = await tenants.labels_for(term, user, cluster)
    row = next((one for one in _rows(term, user.key) if one.object == _object(user)), None)
    if why := tenants.refusal(user, cluster, labels):
        if row is not None:
            await tenants.cut_off(term, row)
        raise _NotNow(why.reason, why.message)
    ruling, quotas = ruled(user, cluster, labels or {}), values_of(user.spec.quotas)
    if is_tenant(user):
        new = user.user_name not in term.image.security.users
        if new and row is None and (why := tenants.taken_name(user, term.image.security)):
            raise _NotNow(why.reason, why.message)
        quotas = tenants.bounded(user.user_name, quotas, term.image.quotas)
    if row is None:
        return ruling, quotas
    may = bounds(user, cluster, labels or {})
    if _malformed(user) is None and row.user_name == user.user_name:
        may = narrowing.still(ruling.acls, may)  # a malformed spec revokes nothing else
    kept = narrowing.left_of(row, may, quotas, term.image)
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
            raise _NotNow(answer.reason, answer.message)
    return ruling, quotas


def _ready(term: Term, user: User) -> Condition:
    if user.spec.disabled:
        return condition(
            "Ready", False, "Disabled", "The user cannot log in: spec.disabled is true."
        )
    asked = {name for listener in term.image.listeners for name in listener.authentication}
    wanted = {SPEC_NAMES[one] for one in logins.mechanisms_of(user)}
    if user.service_account is not None:
        wanted = {"ServiceAccount"}
    if user.by_certificate:
        wanted = {TLS_LOGIN}
    if wanted and not wanted & asked:
        text = (
            f"No listener of the LogCluster accepts a login by {' or '.join(sorted(wanted))}; "
            "see spec.listeners[].authentication."
        )
        return condition("Ready", False, "ListenerMissing", text)
    return condition("Ready", True, "Serving", "The user can log in.")


def _object(user: User) -> UserObject:
    return UserObject(namespace=user.key[0], name=user.key[1], uid=user.metadata.uid)


# --- the password --------------------------------------------------------------------------------


async def _wanted_credentials(term: Term, user: User) -> tuple[ScramCredential, ...] | None:
    """Return the credentials to commit, or None to keep the committed ones."""
    if logins.mechanisms_of(user):
        return None if user.spec.disabled else await _credentials(term, user)
    rows = term.image.security.credentials.items()
    owners = {one.owner for (name, _), one in rows if name == user.user_name}
    # This object, or its predecessor, set a password; those set by Kafka's tools stay.
    return () if owners - {BY_CLIENT} else None


async def _wanted_certificates(
    term: Term, user: User, cluster: LogCluster
) -> tuple[UserCertificate, ...] | None:
    """Return the certificates to commit, or None to keep the committed ones."""
    row = term.image.security.certificates.get(user.user_name)
    if user.certificate is None:
        return () if row is not None and row.owner == user.metadata.uid else None
    if user.spec.disabled or not client_signing.asked(cluster):
        return None
    authority = client_signing.signing(term)
    if authority is None and (why := client_signing.why_unusable(term)):
        raise _NotNow("ClientCaMissing", why)
    if authority is None:
        raise Retry("the clients CA is not known yet", after_ms=500)
    found = await _own_secret(term, user)
    known = row.certificates if row is not None and row.owner == user.metadata.uid else ()
    try:
        settled = user_certificates.settled(
            user, term.cluster_id, authority, found, known, certificate_ms(term)
        )
    except Unreadable as error:
        raise Retry(f"the clients CA cannot sign: {error}") from error
    bootstrap = await _bootstrap(term, (TLS_LOGIN,))
    wanted = logins.certificate_secret(user, settled.pair, settled.former, bootstrap)
    await _put(term, user, found, wanted)
    return settled.committed


async def _own_secret(term: Term, user: User) -> Object | None:
    found = await _read(term, user.metadata.namespace, user.secret_name)
    if found is not None and not logins.is_of(found, user):
        if await _is_left(term, found, user):
            return found
        if logins.is_of_namesake(found, user):
            term.add_later(Work(Task.USER, user.key), logins.NAMESAKE_LOOK_MS)
        text = (
            f"Secret {user.secret_name} does not belong to this User; delete it, or set "
            "spec.secretName to another name."
        )
        raise _NotNow("SecretForeign", text)
    return found


async def _credentials(term: Term, user: User) -> tuple[ScramCredential, ...]:
    """Return credentials for the password in its Secret, which is created if absent."""
    own = None if user.scram is None else user.scram.password_secret
    found = await _own_secret(term, user)
    if own is not None:
        given = await _read(term, user.metadata.namespace, own.name)
        key = own.key or logins.PASSWORD_KEY
        password = None if given is None else logins.password_in(given, key)
        if password is None:
            text = f"Secret {own.name} does not exist, or contains no password under the key {key}."
            raise _NotNow("SecretMissing", text)
    else:
        password = await _password_of_holder(term, user)
        if password is None and found is not None:
            password = logins.password_in(found)
        password = password or logins.new_password()
    await _write(term, user, found, None if own is not None else password)
    known = term.image.security.credentials
    mine = {
        one: known[user.user_name, one]
        for one in logins.mechanisms_of(user)
        if (user.user_name, one) in known
    }
    left_ms = 0 if term.cluster is None else deletion_grace.grace_ms(term.cluster)
    return logins.kept(user, password, mine, term.now_ms(), left_ms)


async def _password_of_holder(term: Term, user: User) -> str | None:
    """Return the password of the object that declares the user now, if this one is its heir. That
    object's Secret is deleted with it, so the heir's must hold the password before."""
    row = term.image.security.users.get(user.user_name)
    if row is None or row.object == _object(user):
        return None
    holder = term.objects.users.get((row.object.namespace, row.object.name))
    if holder is None or holder.metadata.uid != row.object.uid:
        return None
    if holder.metadata.namespace != user.metadata.namespace:
        return None
    found = await _read(term, holder.metadata.namespace, holder.secret_name)
    return logins.password_in(found) if found is not None and logins.is_of(found, holder) else None


async def _is_left(term: Term, secret: Object, user: User) -> bool:
    """Return True if the Secret holds this user's login and belonged to a deleted User. It is kept,
    and the garbage collector keeps it too once it has another owner."""
    owner = logins.left_by(secret, user)
    if owner is None:
        return False
    try:
        found = await term.kube.get(USERS, user.metadata.namespace, owner.name)
    except NotFound:
        return True
    return bool(found["metadata"]["uid"] != owner.uid)


async def _read(term: Term, namespace: str, name: str) -> Object | None:
    try:
        return await term.kube.get(SECRETS, namespace, name)
    except NotFound:
        return None


async def _write(term: Term, user: User, found: Object | None, password: str | None) -> None:
    """Write the Secret, before its content is committed."""
    bootstrap = await _bootstrap(term, [SPEC_NAMES[one] for one in logins.mechanisms_of(user)])
    await _put(term, user, found, logins.login_secret(user, password, bootstrap))


async def _bootstrap(term: Term, asked: Sequence[str]) -> Bootstrap:
    bootstrap = bootstrap_of(term, asked)
    if not bootstrap.tls or not shows_own(term, bootstrap.listener):
        return bootstrap
    return bootstrap._replace(authority=await _authority(term))


async def _put(term: Term, user: User, found: Object | None, wanted: Object) -> None:
    try:
        if found is None:
            await term.kube.create(SECRETS, wanted)
        elif found.get("data") != wanted["data"] or not logins.is_of(found, user):
            meta = {**wanted["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
            await term.kube.replace(SECRETS, {**wanted, "metadata": meta})
    except Conflict as error:
        raise Retry(f"Secret {user.secret_name} changed concurrently") from error


async def _authority(term: Term) -> str:
    """Return the CA of the listeners' certificates, "" if they are all users' own."""
    try:
        found = await term.kube.get(CONFIG_MAPS, term.key[0], listener_authority_map(term.key[1]))
    except NotFound:
        return ""
    return str((found.get("data") or {}).get("ca.crt", ""))


# --- objects that are gone -----------------------------------------------------------------------


def _rows(term: Term, key: Key) -> list[DeclaredUser]:
    rows = term.image.security.users.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]


def _former(term: Term, user: User) -> DeclaredUser | None:
    """Return the committed user that `user` declares, if another object of its namespace that is no
    longer seen declared it."""
    row = term.image.security.users.get(user.user_name)
    if row is None or row.object == _object(user) or user.metadata.deletion_timestamp:
        return None
    where = row.object.namespace
    if where != user.metadata.namespace or user.cluster_key != term.key:
        return None
    holder = term.objects.users.get((where, row.object.name))
    return None if holder is not None and holder.metadata.uid == row.object.uid else row


async def _forget(term: Term, row: DeclaredUser) -> None:
    """Remove a user with a deleted object, after a grace. A deletion along with its CRD, its
    namespace or its cluster does not count."""
    cluster = term.cluster
    if row.object.uid == NO_OBJECT:
        return  # a ServiceAccount that stays cut off
    if cluster is None or "users" in term.missing:
        return  # the spec states users' deletion, but is unreadable
    try:
        labels = await tenants.labels_around(term, row)
        if not tenants.may_still(cluster, row, labels):
            await tenants.cut_off(term, row)
            row = term.image.security.users[row.user_name]
        fate = _kept(term) if labels is None else await absence.fate(term, row)
        claims = heirs.UserClaims(None, any=False)
        if labels is not None and fate is not absence.Fate.STANDS:
            claims = await heirs.claims_on(term, cluster, row)
    except ApiError as error:
        raise Retry(f"cannot confirm that the object is gone: {error}") from error
    if fate is absence.Fate.STANDS:
        await deletion_grace.is_back(term, row)
        return
    if claims.any:
        await _leave_to(term, row, claims.heir)
        return
    stays = fate is absence.Fate.GONE and not row.disabled  # cut off already
    if stays and (wait_ms := await deletion_grace.wait_ms(term, cluster, row)):
        term.add_later(Work(Task.USER, (row.object.namespace, row.object.name)), wait_ms)
        return
    now_ms = term.server_ms() if stays else None
    answer = await term.ask(UserObjectGone(object=row.object, now_ms=now_ms))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
    deletion_grace.settle(term)


async def _leave_to(term: Term, row: DeclaredUser, heir: UserObject | None) -> None:
    """Hand the user over to another object that declares it, or keep it until that one can be
    read."""
    if heir is None:
        term.add_later(
            Work(Task.USER, (row.object.namespace, row.object.name)), deletion_grace.LOOK_AGAIN_MS
        )
        return
    answer = await term.ask(UserObjectGone(object=row.object, heir=heir))
    if isinstance(answer, Refused):
        raise Retry(answer.message)
    deletion_grace.settle(term)
    term.add(Work(Task.USER, (heir.namespace, heir.name)))


def _kept(term: Term) -> absence.Fate:
    """Return the fate of a cut-off user with a deleted namespace: its row stays while there is
    room."""
    crowded = len(term.image.security.users) > tenants.KEPT_MAX
    return absence.Fate.GONE if crowded else absence.Fate.STANDS
