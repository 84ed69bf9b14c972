"""The committed credentials, users and ACLs, and the mode of authorization.

A part of a cluster's image; only `cluster.security_records` changes it.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from immutables import Map
from msgspec.structs import replace

from plimsoll_core.security.acl import Acl, AclOperation, ResourceType
from plimsoll_core.security.acl_index import (
    EVERY_OPERATION,
    AclIndex,
    AclQuestion,
    AclVerdict,
    Ground,
)
from plimsoll_core.security.client_certificates import (
    OWN_AUTHORITY,
    CertificateProof,
    CertificateRefusal,
    ClientAuthority,
    ShownClient,
    UserCertificates,
    anchor_mark,
    authority_of,
    certificate_mark,
    fingerprint,
    subject_refused,
)
from plimsoll_core.security.scram import MECHANISMS, ScramCredential, ScramMechanism, login_mark
from plimsoll_core.security.tokens import TokenIssuer, token_mark

BY_CLIENT = ""
"""The owner of an ACL or credential that a client created and no object declares."""


REMOVALS_MAX = 2_000
REMOVALS_KEPT_MS = 3_600_000
"""The time in ms for which removals of users are remembered."""

NO_OBJECT = "none"
"""The uid of an object that is gone, in the entry of a user that stays locked out."""


class Mode(Enum):
    """The enforcement of ACLs. Off: everything is allowed. Enforce: denied requests are refused.
    Audit: requests that Enforce would refuse are allowed and logged."""

    OFF = "Off"
    AUDIT = "Audit"
    ENFORCE = "Enforce"


class Authorization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The authorization that a LogCluster states.  `disguise`: a random key that makes the login of
    an unknown user look like a known user's; drawn once."""

    mode: Mode = Mode.OFF
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl: bool = False
    disguise: bytes = b""

    def __repr__(self) -> str:
        return f"Authorization({self.mode.value}, {self.super_users})"


class UserObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The User object that declares a user."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"User {self.namespace}/{self.name}"


class DeclaredUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user that a User object declares. `disabled`: True if the user may not log in; its open
    connections are closed. `gone_since_ms`: the time when the object was first proven absent (wall
    clock); None if it exists."""

    object: UserObject
    user_name: str
    disabled: bool = False
    gone_since_ms: int | None = None


class UserRemoval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One removal of a user after its object was gone for the grace, to limit removals per hour.
    `at_ms`: wall clock."""

    namespace: str
    at_ms: int


class SecurityState(msgspec.Struct, frozen=True, kw_only=True):
    """The committed users, credentials, ACLs and trusted authorities of a cluster.

    `credentials`: by user and mechanism. `users`: those that objects declare, by name. `acls`: with
    their owners, uids of User objects or `BY_CLIENT`; `index` is derived from them. `certificates`:
    by user; `certificate_users`, users by fingerprint, is derived from them. `removals`: of the
    last hour, oldest first.
    """

    authorization: Authorization = Authorization()
    credentials: Map[tuple[str, ScramMechanism], ScramCredential] = Map()
    users: Map[str, DeclaredUser] = Map()
    acls: Map[Acl, tuple[str, ...]] = Map()
    index: AclIndex = AclIndex()
    issuers: tuple[TokenIssuer, ...] = ()
    authorities: tuple[ClientAuthority, ...] = ()
    certificates: Map[str, UserCertificates] = Map()
    certificate_users: Map[str, str] = Map()
    removals: tuple[UserRemoval, ...] = ()

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the credential by which a user may log in now, or None if it has none or is
        disabled."""
        if self.is_disabled(user):
            return None
        return self.credentials.get((user, mechanism))

    def is_disabled(self, user: str) -> bool:
        """Return True if an object says that the user may not log in."""
        declared = self.users.get(user)
        return declared is not None and declared.disabled

    def issuers_of(self, authentication: tuple[str, ...]) -> tuple[TokenIssuer, ...]:
        """Return the token issuers that a listener with these kinds of authentication trusts."""
        return tuple(one for one in self.issuers if one.login in authentication)

    def login_is_good(self, user: str, mark: bytes) -> bool:
        """Return True if the login of `user` that `mark` identifies is still valid, by the
        committed keys, issuers and certificates. With an empty mark, return True unless the user is
        disabled.

        The end of a login's time is not checked here: brokers end sessions themselves, also those
        by a former password and by tokens.
        """
        if self.is_disabled(user):
            return False
        if not mark:
            return True
        found = (self.credentials.get((user, mechanism)) for mechanism in MECHANISMS)
        keys = [key for one in found if one is not None for key in one.stored_keys]
        if any(login_mark(key) == mark for key in keys):
            return True
        if any(token_mark(one, key) == mark for one in self.issuers for key in one.keys):
            return True
        return mark in self._certificate_marks(user)

    def _certificate_marks(self, user: str) -> set[bytes]:
        """Return the marks of all logins by certificate that would be valid for the user now."""
        row = self.certificates.get(user)
        own = () if row is None else row.certificates
        marks: set[bytes] = set()
        for authority in self.authorities:
            anchors = [fingerprint(der) for der in authority.certificates]
            if authority.name == OWN_AUTHORITY:
                pairs = ((one.sha256, anchor) for one in own for anchor in anchors)
                marks |= {certificate_mark(sha256, anchor) for sha256, anchor in pairs}
            else:
                marks |= {anchor_mark(anchor) for anchor in anchors}
        return marks

    # --- certificates ----------------------------------------------------------------------------

    def with_certificates(self, row: UserCertificates) -> SecurityState:
        """Return the state with these certificates in place of the user's former ones."""
        found = self.without_certificates(row.user)
        users = found.certificate_users
        for one in row.certificates:
            users = users.set(one.sha256, row.user)
        certificates = found.certificates.set(row.user, row)
        return replace(found, certificates=certificates, certificate_users=users)

    def without_certificates(self, user: str) -> SecurityState:
        row = self.certificates.get(user)
        if row is None:
            return self
        users = self.certificate_users
        for one in row.certificates:
            users = users.delete(one.sha256)
        certificates = self.certificates.delete(user)
        return replace(self, certificates=certificates, certificate_users=users)

    def judge_certificate(
        self, shown: ShownClient, now_ms: int
    ) -> CertificateProof | CertificateRefusal:
        """Return the user that a client's certificate with a verified chain proves at `now_ms`, or
        the reason to refuse it."""
        authority = authority_of(self.authorities, shown.anchor)
        if authority is None:
            return CertificateRefusal.UNTRUSTED
        own = authority.name == OWN_AUTHORITY
        user = self.certificate_users.get(shown.sha256) if own else shown.subject
        if user is None:
            return CertificateRefusal.NOT_COMMITTED
        if not own and (refused := subject_refused(shown)):
            return refused
        if shown.not_after_ms <= now_ms:
            return CertificateRefusal.EXPIRED
        if self.is_disabled(user):
            return CertificateRefusal.DISABLED
        return CertificateProof(user, shown.sha256, shown.anchor, own, shown.not_after_ms)

    def believes(self, proof: CertificateProof) -> bool:
        """Return True if a login by this certificate would still be accepted, apart from its
        expiry: the authority is trusted, the fingerprint is committed if the certificate is the
        cluster's own, and the user is not disabled."""
        authority = authority_of(self.authorities, proof.anchor)
        if authority is None or (authority.name == OWN_AUTHORITY) != proof.own:
            return False
        if proof.own and self.certificate_users.get(proof.sha256) != proof.user:
            return False
        return not self.is_disabled(proof.user)

    def object_named(self, user: str) -> UserObject | None:
        declared = self.users.get(user)
        return None if declared is None else declared.object

    def object_with_password_of(self, user: str) -> UserObject | None:
        """Return the User object that declares a password of the user, or None. An object may
        declare only ACLs."""
        declared = self.users.get(user)
        if declared is None:
            return None
        uid = declared.object.uid
        keys = ((user, mechanism) for mechanism in MECHANISMS)
        owned = any(one.owner == uid for key in keys if (one := self.credentials.get(key)))
        return declared.object if owned else None

    def object_of(self, owner: str) -> UserObject | None:
        """Return the User object with this uid, or None."""
        return next((one.object for one in self.users.values() if one.object.uid == owner), None)

    def is_super_user(self, principal: str) -> bool:
        return principal in self.authorization.super_users

    def allows(self, asked: AclQuestion) -> bool:
        """Return True if the request would be allowed in mode Enforce, whatever the mode is."""
        if self.is_super_user(asked.principal):
            return True
        return self.index.allows(asked, otherwise=self.authorization.allow_everyone_if_no_acl)

    def operations(self, asked: AclQuestion) -> int:
        """Return all operations, as bits, that the principal may perform on the resource in mode
        Enforce, whatever the question's own operation is."""
        if self.is_super_user(asked.principal):
            return EVERY_OPERATION
        return self.index.operations(asked, otherwise=self.authorization.allow_everyone_if_no_acl)

    def explain(self, asked: AclQuestion) -> AclVerdict:
        if self.is_super_user(asked.principal):
            return AclVerdict(True, Ground.SUPER_USER)
        return self.index.explain(asked, otherwise=self.authorization.allow_everyone_if_no_acl)

    def allows_on_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return True if the principal may perform the operation on some resource of the type,
        existing or not, in mode Enforce."""
        # As in Kafka, an unused name stands for the rights from rules of User:*, super users and
        # the default.
        if self.allows(AclQuestion(principal, host, operation, kind, "hardcode")):
            return True
        return self.index.allows_on_any(principal, host, operation, kind)

    def may_see_any(self, principal: str, host: str, kind: ResourceType) -> bool:
        """Return False if no ACL can allow the principal to describe any resource of the type. It
        does not go through ACLs, so its time does not depend on their number."""
        asked = AclQuestion(principal, host, AclOperation.DESCRIBE, kind, "hardcode")
        return self.allows(asked) or self.index.has_rules(principal, kind)


NOTHING = SecurityState()
"""The state of a cluster without any security configured."""
