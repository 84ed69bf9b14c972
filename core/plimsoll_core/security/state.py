"""The committed credentials, users and ACLs, and the mode of authorization.

A part of a cluster's image, changed by `cluster.security_records` alone.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from immutables import Map
from msgspec.structs import replace

from plimsoll_core.security.acl import Acl, AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclIndex, AclQuestion, AclVerdict, Ground
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
"""The owner of what no object declares."""


REMOVALS_MAX = 2_000
REMOVALS_KEPT_MS = 3_600_000
"""Time for which removals of users are remembered."""

NO_OBJECT = "none"
"""The uid of an object that is gone, in the row of an account that stays cut off."""


class Mode(Enum):
    """Off: everything is allowed.  Audit: requests that Enforce would refuse are logged and
    allowed."""

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
    """A User resource."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"User {self.namespace}/{self.name}"


class DeclaredUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user that an object declares.  `disabled`: no login, and what is logged in is cut off.
    `gone_since_ms`: when its object was first proven absent (wall clock); None: it was not."""

    object: UserObject
    user_name: str
    disabled: bool = False
    gone_since_ms: int | None = None


class UserRemoval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The grace of a user without an object is over; `at_ms`: wall clock."""

    namespace: str
    at_ms: int


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """`credentials` by user and mechanism; `users` by name; `acls` with their owners: uids of User
    objects and `BY_CLIENT`.  `index` is derived from `acls`.  `issuers` of trusted tokens;
    `authorities` of trusted certificates.  `certificates` by user; `certificate_users`, by their
    fingerprints, is derived from them.  `removals`: of the last hour, oldest first."""

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
        """Return the credential by which a user may log in now."""
        if self.is_disabled(user):
            return None
        return self.credentials.get((user, mechanism))

    def is_disabled(self, user: str) -> bool:
        """Return True if an object says that the user may not log in."""
        declared = self.users.get(user)
        return declared is not None and declared.disabled

    def issuers_of(self, authentication: tuple[str, ...]) -> tuple[TokenIssuer, ...]:
        """Return the issuers that listeners with these logins trust."""
        return tuple(one for one in self.issuers if one.login in authentication)

    def login_is_good(self, user: str, mark: bytes) -> bool:
        """Return True if a login by the key with this `scram.login_mark`, or by a token with this
        `tokens.token_mark`, is still valid; without a mark, if the user is not disabled.  A key
        from before a rotation is valid as long as it is kept: brokers end such logins at their
        time, and those of tokens."""
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
        """Return the marks of all certificates by which the user may log in."""
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

    def with_certificates(self, row: UserCertificates) -> Security:
        """Return the state with these certificates in place of the user's former ones."""
        found = self.without_certificates(row.user)
        users = found.certificate_users
        for one in row.certificates:
            users = users.set(one.sha256, row.user)
        certificates = found.certificates.set(row.user, row)
        return replace(found, certificates=certificates, certificate_users=users)

    def without_certificates(self, user: str) -> Security:
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
        """Return the user that a certificate with a valid chain proves now, or the refusal."""
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
        """Return True if a login by this proof is still valid, apart from its time."""
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
        """Return the object that declares the user's login: a User may declare rights alone."""
        declared = self.users.get(user)
        if declared is None:
            return None
        uid = declared.object.uid
        keys = ((user, mechanism) for mechanism in MECHANISMS)
        owned = any(one.owner == uid for key in keys if (one := self.credentials.get(key)))
        return declared.object if owned else None

    def object_of(self, owner: str) -> UserObject | None:
        """Return the object with this uid."""
        return next((one.object for one in self.users.values() if one.object.uid == owner), None)

    def is_super_user(self, principal: str) -> bool:
        return principal in self.authorization.super_users

    def allows(self, asked: AclQuestion) -> bool:
        """Return the decision of enforced rights, regardless of the mode."""
        if self.is_super_user(asked.principal):
            return True
        return self.index.allows(asked, otherwise=self.authorization.allow_everyone_if_no_acl)

    def explain(self, asked: AclQuestion) -> AclVerdict:
        if self.is_super_user(asked.principal):
            return AclVerdict(True, Ground.SUPER_USER)
        return self.index.explain(asked, otherwise=self.authorization.allow_everyone_if_no_acl)

    def allows_on_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return True if there may be some resource of the type on which it may."""
        # As in Kafka, an unused name stands for the rights from rules of User:*, super users and
        # the default.
        if self.allows(AclQuestion(principal, host, operation, kind, "hardcode")):
            return True
        return self.index.allows_on_any(principal, host, operation, kind)

    def may_see_any(self, principal: str, host: str, kind: ResourceType) -> bool:
        """Return False if no rule can let the principal describe anything of the kind.  It looks at
        no rule, so it takes no longer where there are many."""
        asked = AclQuestion(principal, host, AclOperation.DESCRIBE, kind, "hardcode")
        return self.allows(asked) or self.index.has_rules(principal, kind)


NOTHING = Security()
"""The state of a cluster without any security configured."""
