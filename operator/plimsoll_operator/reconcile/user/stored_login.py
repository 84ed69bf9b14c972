"""Reads, creates and writes the Secret with a User's login, and returns the credentials or
certificates to commit.

A Secret is written before its content is committed. The operator reads Secrets by name alone. A
Secret of another owner is never overwritten. Called by the User's reconciler; `login_secret` makes
the content.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_core.security.client_certificates import TLS_LOGIN, UserCertificate
from plimsoll_core.security.scram import SPEC_NAMES, ScramCredential
from plimsoll_core.security.state import BY_CLIENT
from plimsoll_operator.api.labels import client_authority, listener_authority_map
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS, USERS
from plimsoll_operator.pki.authority import Unreadable
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.shared.certificate_signing import (
    certificate_ms,
    client_signing,
    clients_show_certificates,
)
from plimsoll_operator.reconcile.shared.client_bootstrap import (
    Bootstrap,
    bootstrap_of,
    closed_to,
    mechanisms_of,
    shows_own,
)
from plimsoll_operator.reconcile.user import login_secret as logins
from plimsoll_operator.reconcile.user.proven_passwords import ProvenPasswords
from plimsoll_operator.reconcile.user.tenants import labels_of, object_of
from plimsoll_operator.reconcile.user.user_deletion import grace_ms
from plimsoll_operator.reconcile.work_queue import Retry


class NotFollowed(Exception):
    """Raised if a User's spec cannot be followed now. `reason` and the text are those of the
    condition Ready."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def wanted_credentials(
    term: Term, result: PassResult, user: User
) -> tuple[ScramCredential, ...] | None:
    """Return the SCRAM credentials to commit, after writing the user's Secret. Return None to keep
    the committed ones. Raise `NotFollowed` if a Secret is missing or has another owner."""
    if mechanisms_of(user):
        return None if user.spec.disabled else await _credentials(term, result, user)
    rows = term.image.security.credentials.items()
    owners = {one.owner for (name, _), one in rows if name == user.user_name}
    # This object, or its predecessor, set a password; those set by Kafka's tools stay.
    return () if owners - {BY_CLIENT} else None


async def wanted_certificates(
    term: Term, result: PassResult, user: User, cluster: LogCluster
) -> tuple[UserCertificate, ...] | None:
    """Return the certificates to commit, after writing the user's Secret. Return None to keep the
    committed ones. Raise `NotFollowed` if the CA is unusable, Retry if it is not known yet."""
    row = term.image.security.certificates.get(user.user_name)
    if user.certificate is None:
        return () if row is not None and row.owner == user.metadata.uid else None
    if user.spec.disabled or not clients_show_certificates(cluster):
        return None
    signing = client_signing(term)
    authority = signing.authority
    if authority is None and signing.unusable:
        raise NotFollowed("ClientCaMissing", signing.unusable)
    if authority is None:
        text = (
            f"User {'/'.join(user.key)} gets its certificate when the operator has read the "
            "clients CA, which it does by itself"
        )
        raise Retry(text, after_ms=500)
    found = await _own_secret(term, result, user)
    known = row.certificates if row is not None and row.owner == user.metadata.uid else ()
    try:
        settled = logins.settled(
            user, term.cluster_id, authority, found, known, certificate_ms(term, result)
        )
    except Unreadable as error:
        text = (
            f"the operator's CA for users' certificates cannot sign that of User "
            f"{'/'.join(user.key)}; restore the content of Secret "
            f"{client_authority(term.cluster_id)} in the operator's namespace: {error}"
        )
        raise Retry(text) from error
    bootstrap = await _bootstrap(term, user, (TLS_LOGIN,))
    wanted = logins.certificate_secret(user, settled.pair, settled.former, bootstrap)
    await _put(term, user, found, wanted)
    return settled.committed


async def _own_secret(term: Term, result: PassResult, user: User) -> Object | None:
    found = await _read(term, user.metadata.namespace, user.secret_name)
    if found is not None and not logins.is_of(found, user):
        if await _is_left(term, found, user):
            return found
        if logins.is_of_namesake(found, user):
            result.add_later(Work(Task.USER, user.key), logins.NAMESAKE_LOOK_MS)
        text = (
            f"Secret {user.secret_name} does not belong to this User; delete it, or set "
            "spec.secretName to another name."
        )
        raise NotFollowed("SecretForeign", text)
    return found


async def _credentials(term: Term, result: PassResult, user: User) -> tuple[ScramCredential, ...]:
    """Return the SCRAM credentials for the user's password, which is in its own Secret or in one
    that the spec names. Its own Secret is created if absent."""
    own = None if user.scram is None else user.scram.password_secret
    found = await _own_secret(term, result, user)
    if own is not None:
        given = await _read(term, user.metadata.namespace, own.name)
        key = own.key or logins.PASSWORD_KEY
        password = None if given is None else logins.password_in(given, key)
        if password is None:
            text = f"Secret {own.name} does not exist, or contains no password under the key {key}."
            raise NotFollowed("SecretMissing", text)
    else:
        password = await _password_of_holder(term, user)
        if password is None and found is not None:
            password = logins.password_in(found)
        password = password or logins.new_password()
    await _write(term, user, found, None if own is not None else password)
    known = term.image.security.credentials
    mine = {
        one: known[user.user_name, one]
        for one in mechanisms_of(user)
        if (user.user_name, one) in known
    }
    left_ms = 0 if term.cluster is None else grace_ms(term.cluster)
    proven = term.kept(ProvenPasswords, ProvenPasswords)
    return logins.kept(user, password, mine, proven, term.now_ms(), left_ms)


async def _password_of_holder(term: Term, user: User) -> str | None:
    """Return the password of the User object that declares this user now, if `user` is another
    object that takes it over. Return None otherwise. The earlier object's Secret is deleted with
    it, so the new one must hold the password before."""
    row = term.image.security.users.get(user.user_name)
    if row is None or row.object == object_of(user):
        return None
    holder = term.objects.users.get((row.object.namespace, row.object.name))
    if holder is None or holder.metadata.uid != row.object.uid:
        return None
    if holder.metadata.namespace != user.metadata.namespace:
        return None
    found = await _read(term, holder.metadata.namespace, holder.secret_name)
    return logins.password_in(found) if found is not None and logins.is_of(found, holder) else None


async def _is_left(term: Term, secret: Object, user: User) -> bool:
    """Return True if the Secret holds this user's login and belonged to a User that was deleted. It
    is then reused; the garbage collector keeps it once it has another owner."""
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
    """Write the user's Secret, before its content is committed. `password` is None if it is in
    another Secret."""
    asked = [SPEC_NAMES[one] for one in mechanisms_of(user)]
    bootstrap = await _bootstrap(term, user, asked)
    await _put(term, user, found, logins.login_secret(user, password, bootstrap))


async def _bootstrap(term: Term, user: User, asked: Sequence[str]) -> Bootstrap:
    namespace = user.metadata.namespace
    unreached = closed_to(term, namespace, {})
    if unreached:
        unreached = closed_to(term, namespace, await labels_of(term, namespace) or {})
    bootstrap = bootstrap_of(term, asked, unreached)
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
        text = (
            f"Secret {user.metadata.namespace}/{user.secret_name} was changed by another client "
            "while the operator wrote it; the operator reads it again and continues"
        )
        raise Retry(text) from error


async def _authority(term: Term) -> str:
    """Return the CA of the listeners' certificates as PEM, "" if the cluster has none of its
    own."""
    try:
        found = await term.kube.get(CONFIG_MAPS, term.key[0], listener_authority_map(term.key[1]))
    except NotFound:
        return ""
    return str((found.get("data") or {}).get("ca.crt", ""))
