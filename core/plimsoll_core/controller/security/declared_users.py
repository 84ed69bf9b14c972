"""Commits the authorization settings of a LogCluster, and the declarations of User objects.

Called for DeclareAuthorization, DeclareUser, UserObjectSeen and UserObjectGone. The first object
that declares a user name owns it for as long as the object exists. Then another object of its
namespace that declares the name takes it over, with login and rules."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_core.cluster.records import (
    AclsAdded,
    AclsRemoved,
    AuthorizationConfigured,
    ScramCredentialRemoved,
    ScramCredentialSet,
    UserCertificatesRemoved,
    UserCertificatesSet,
    UserDeclared,
    UserRemoved,
)
from plimsoll_core.controller.kernel.decision import DecisionContext, access_too_old
from plimsoll_core.controller.security.acl_changes import add_wanted, parts
from plimsoll_core.controller.security.quota_changes import settle_user
from plimsoll_core.controller.security.scram_changes import unacceptable
from plimsoll_core.controller.security.security_share import ACLS, USERS, share_of_object
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.messages.security import (
    DeclareAuthorization,
    DeclareUser,
    UserObjectGone,
    UserObjectSeen,
)
from plimsoll_core.quotas.form import malformed_values
from plimsoll_core.quotas.state import QuotaEntity, QuotaValues
from plimsoll_core.security.client_certificates import (
    CERTIFICATES_MAX,
    UserCertificates,
    illegal_subject,
)
from plimsoll_core.security.scram import illegal_user_name
from plimsoll_core.security.state import NO_OBJECT, Authorization, DeclaredUser, UserObject
from plimsoll_core.security.tokens import account_user, illegal_account

CAUSE = "declared"


def declare_authorization(turn: DecisionContext, request: DeclareAuthorization) -> Answer | Refusal:
    known = turn.image.security.authorization
    wanted = request.authorization
    if known.disguise:
        wanted = replace(wanted, disguise=known.disguise)
    # Brokers that ask for logins need one disguise: by two, an unknown user is known for one.
    unused = not any(listener.authentication for listener in turn.image.listeners)
    nothing = known == Authorization() and replace(wanted, disguise=b"") == known
    if wanted == known or (nothing and unused):
        return Done()
    if refusal := access_too_old(turn):
        return refusal
    turn.add(AuthorizationConfigured(cause=CAUSE, authorization=wanted))
    return Done()


def declare_user(turn: DecisionContext, request: DeclareUser) -> Answer | Refusal:
    refusal = access_too_old(turn) or _refused(turn, request)
    if refusal:
        return refusal
    before, records = turn.image, list(turn.records)
    known = turn.image.security.users.get(request.user_name)
    user = DeclaredUser(
        object=request.object,
        user_name=request.user_name,
        disabled=request.disabled,
        gone_since_ms=known.gone_since_ms if known and known.object == request.object else None,
    )
    if known != user:
        turn.add(UserDeclared(cause=CAUSE, user=user))
    refusal = _declare_acls(turn, request)
    if refusal:
        turn.image, turn.records = before, records
        return refusal
    _declare_credentials(turn, request)
    _declare_certificates(turn, request)
    settle_user(turn, request.user_name, request.quotas, request.object.uid)
    return Done()


def _refused(turn: DecisionContext, request: DeclareUser) -> Refusal | None:
    security = turn.image.security
    name = request.user_name
    if illegal_user_name(name) and not (_is_own_account(request) or _is_subject(request)):
        text = (
            f"The user name {name[:130]!r} is not allowed. A user name has 1 to 128 letters,"
            " digits and . _ : @ - and neither begins with system: nor is ANONYMOUS."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    holder = security.object_named(name)
    if holder is not None and holder != request.object and not _succeeds(holder, request.object):
        text = f"The user {name} is already declared by {holder}. Choose another user name."
        if holder.namespace == request.object.namespace:
            text += " Or delete that object: this one then takes over the user with its login."
        return Refusal(reason=Reason.UserNameTaken, message=text)
    other = next((u for u in security.users.values() if u.object == request.object), None)
    if other is not None and other.user_name != name:
        text = (
            f"This User object declares the user {other.user_name}, and the name of a user "
            "cannot be changed. Set the former name back, or create another User object."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    if holder is None and (refusal := share_of_object(turn, USERS, request).refusal(1)):
        return refusal
    quotas = request.quotas or QuotaValues()
    if text := malformed_values(QuotaEntity(user=name), quotas):
        return Refusal(reason=Reason.InvalidRequest, message=text)
    for credential in request.credentials or ():
        text = (
            f"The operator sent the password of user {credential.user} as that of user {name}; "
            "this is a bug of the operator, please report it."
        )
        if credential.user != name or (refusal := unacceptable(credential)):
            return refusal or Refusal(reason=Reason.InvalidRequest, message=text)
    return _refused_certificates(turn, request)


def _refused_certificates(turn: DecisionContext, request: DeclareUser) -> Refusal | None:
    """Refuse if the request states too many certificates, or one that belongs to another user.
    Return None if it may be declared."""
    stated = [one.sha256 for one in request.certificates or ()]
    if len(stated) > CERTIFICATES_MAX or len(set(stated)) < len(stated):
        text = (
            f"The User lists {len(stated)} certificates; at most {CERTIFICATES_MAX} are allowed, "
            "each listed once."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    users = turn.image.security.certificate_users
    taken = [one for one in stated if users.get(one, request.user_name) != request.user_name]
    if taken:
        text = (
            f"The certificate with the SHA-256 fingerprint {taken[0]} of user {request.user_name} "
            f"is already listed by user {users[taken[0]]}. Give each user a certificate of its own."
        )
        return Refusal(reason=Reason.InvalidRequest, message=text)
    return None


def _is_subject(request: DeclareUser) -> bool:
    """Return True if the user name is a certificate's distinguished name and the object declares no
    other login: the user logs in by a certificate of another authority than the operator's."""
    logins = request.credentials or request.certificates
    return not illegal_subject(request.user_name) and not logins


def _is_own_account(request: DeclareUser) -> bool:
    """Return True if the user is a ServiceAccount in the object's namespace, without a password."""
    named = _is_account(request.object, request.user_name)
    return named and not illegal_account(request.user_name) and not request.credentials


def _is_account(holder: UserObject, name: str) -> bool:
    return name.startswith(account_user(holder.namespace, ""))


def _succeeds(gone: UserObject, next_one: UserObject) -> bool:
    """Return True if the former object is gone, and `next_one`, of the same namespace, may take its
    user name over."""
    return gone.uid == NO_OBJECT and gone.namespace == next_one.namespace


def _declare_acls(turn: DecisionContext, request: DeclareUser) -> Refusal | None:
    """Replace the ACLs that the object declares by those of the request. ACLs that the object does
    not state any more are removed first, which makes room for new ones. If the new ones cannot be
    added, return a refusal, and the caller undoes the removal; otherwise return None."""
    uid = request.object.uid
    before = len(turn.image.security.acls)
    _give_up(turn, uid, frozenset(request.acls))
    share = share_of_object(turn, ACLS, request)
    share.freed = before - len(turn.image.security.acls)
    return add_wanted(turn, request.acls, uid, share)


def _give_up(turn: DecisionContext, owner: str, kept: frozenset[object] = frozenset()) -> None:
    known = turn.image.security.acls.items()
    gone = [acl for acl, owners in known if owner in owners and acl not in kept]
    gone.sort(key=lambda acl: acl.order)
    for some in parts(gone):
        turn.add(AclsRemoved(cause="not declared any more", acls=some, owner=owner))


def _declare_credentials(turn: DecisionContext, request: DeclareUser) -> None:
    """Replace all credentials of the user by those of the request. If `request.credentials` is
    None, leave them as they are."""
    if request.credentials is None:
        return
    known = turn.image.security.credentials
    wanted = {(one.user, one.mechanism): one for one in request.credentials}
    for key in sorted(key for key in known if key[0] == request.user_name and key not in wanted):
        turn.add(ScramCredentialRemoved(cause=CAUSE, user=key[0], mechanism=key[1]))
    for key, one in sorted(wanted.items()):
        owned = replace(one, owner=request.object.uid)
        if known.get(key) != owned:
            turn.add(ScramCredentialSet(cause=CAUSE, credential=owned))


def _declare_certificates(turn: DecisionContext, request: DeclareUser) -> None:
    """Replace all certificates of the user by those of the request. If `request.certificates` is
    None, leave them as they are."""
    if request.certificates is None:
        return
    known, name = turn.image.security.certificates.get(request.user_name), request.user_name
    if not request.certificates:
        if known is not None:
            turn.add(UserCertificatesRemoved(cause=CAUSE, user=name))
        return
    row = UserCertificates(user=name, owner=request.object.uid, certificates=request.certificates)
    if row != known:
        turn.add(UserCertificatesSet(cause=CAUSE, row=row))


def user_object_seen(turn: DecisionContext, request: UserObjectSeen) -> Answer | Refusal:
    """Record that a User object exists, or since when it is missing, so that the next controller
    continues the grace period. If the clock went back, the grace period begins anew. Do nothing if
    the object owns no user name."""
    name, now_ms = _name_of(turn, request.object), request.gone_since_ms
    if name is None or request.object.uid == NO_OBJECT:
        return Done()
    row = turn.image.security.users[name]
    since_ms = row.gone_since_ms
    if now_ms is None or since_ms is None or now_ms < since_ms:
        since_ms = now_ms
    if since_ms != row.gone_since_ms:
        text = "its object is there" if since_ms is None else "its object is gone"
        turn.add(UserDeclared(cause=text, user=replace(row, gone_since_ms=since_ms)))
    return Done()


def user_object_gone(turn: DecisionContext, request: UserObjectGone) -> Answer | Refusal:
    name = _name_of(turn, request.object)
    if name is None or request.object.uid == NO_OBJECT:
        return Done()
    if request.heir is not None:
        _hand_over(turn, turn.image.security.users[name], request.heir)
        return Done()
    for key in sorted(key for key in turn.image.security.credentials if key[0] == name):
        turn.add(ScramCredentialRemoved(cause="its object is gone", user=name, mechanism=key[1]))
    if name in turn.image.security.certificates:
        turn.add(UserCertificatesRemoved(cause="its object is gone", user=name))
    _give_up(turn, request.object.uid)
    settle_user(turn, name, None, request.object.uid)
    row = turn.image.security.users[name]
    if row.disabled and _logs_in_undeclared(turn, row.object, name):
        kept = replace(row, object=replace(row.object, uid=NO_OBJECT), gone_since_ms=None)
        turn.add(UserDeclared(cause="its object is gone", user=kept))
    else:
        removed = UserRemoved(cause="its object is gone", user_name=name, now_ms=request.now_ms)
        turn.add(removed)
    return Done()


def _logs_in_undeclared(turn: DecisionContext, holder: UserObject, name: str) -> bool:
    """Return True if a user of this name may log in without a declaration: a ServiceAccount, a
    certificate's subject, or a user that a trusted OAuth issuer may name."""
    issuers = turn.image.security.issuers
    by_token = (one.login == "OAuth" and name.startswith(one.user_prefix) for one in issuers)
    return _is_account(holder, name) or not illegal_subject(name) or any(by_token)


def _hand_over(turn: DecisionContext, row: DeclaredUser, heir: UserObject) -> None:
    """Make `heir`, another User object, the owner of everything that the missing object declared;
    the heir's next declaration changes that. The owner of a credential stays: it shows that the
    password is not from the heir's Secret."""
    cause = "handed over: its object is gone and another one declares it"
    security, former = turn.image.security, row.object.uid
    acls = [acl for acl, owners in security.acls.items() if former in owners]
    acls.sort(key=lambda acl: acl.order)
    for some in parts(acls):
        turn.add(AclsAdded(cause=cause, acls=some, owner=heir.uid))
        turn.add(AclsRemoved(cause=cause, acls=some, owner=former))
    certificates = security.certificates.get(row.user_name)
    if certificates is not None and certificates.owner == former:
        turn.add(UserCertificatesSet(cause=cause, row=replace(certificates, owner=heir.uid)))
    quotas = turn.image.quotas.rows.get(QuotaEntity(user=row.user_name))
    if quotas is not None and quotas.owner == former:
        settle_user(turn, row.user_name, quotas.values, heir.uid)
    turn.add(UserDeclared(cause=cause, user=replace(row, object=heir, gone_since_ms=None)))


def _name_of(turn: DecisionContext, holder: UserObject) -> str | None:
    """Return the user name that this very object (by uid) owns, or None. Another object of the same
    name does not own it."""
    users = turn.image.security.users.values()
    return next((one.user_name for one in users if one.object == holder), None)
