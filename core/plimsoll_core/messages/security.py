"""Requests about users, rights and quotas, from clients and from the operator, and their answers.
`messages.requests` lists them."""

from __future__ import annotations

import msgspec

from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.base import Message
from plimsoll_core.quotas.state import QuotaEntity, QuotaRow, QuotaValues
from plimsoll_core.security.acl import Acl, AclFilter
from plimsoll_core.security.client_certificates import ClientAuthority, UserCertificate
from plimsoll_core.security.scram import ScramCredential, ScramMechanism
from plimsoll_core.security.state import Authorization, UserObject
from plimsoll_core.security.tokens import TokenIssuer


class OnBehalf(msgspec.Struct, frozen=True, kw_only=True):
    """The client for which a broker forwards a request. The controller checks the client's rights
    and login again.

    `login`: identifies the login: `scram.login_mark` of the password's key, `tokens.token_mark` of
    the token, or `client_certificates.certificate_mark` or `anchor_mark` of the certificate; empty
    if the listener requires no login.
    """

    principal: str
    host: str
    login: bytes = b""


class CreateAcls(Message, frozen=True, kw_only=True):
    """A client's request to create all these ACLs or none, forwarded by a broker."""

    acls: tuple[Acl, ...]
    behalf: OnBehalf | None = None


class DeleteAcls(Message, frozen=True, kw_only=True):
    """A client's request to delete all ACLs that match, forwarded by a broker. ACLs that an object
    declares stay, and the answer says so."""

    filters: tuple[AclFilter, ...]
    behalf: OnBehalf | None = None


class ScramDeletion(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism


class AlterScramCredentials(Message, frozen=True, kw_only=True):
    """A client's request to change passwords, forwarded by a broker. The change of one user
    succeeds or fails as a whole, independently of the others."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramCredential, ...] = ()
    behalf: OnBehalf | None = None


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one entity's quotas, by quota key. A value replaces the former one; None removes
    it."""

    entity: QuotaEntity
    values: dict[str, float | None]


class AlterQuotas(Message, frozen=True, kw_only=True):
    """A client's request to change quotas, forwarded by a broker. The change of one entity succeeds
    or fails as a whole, independently of the others."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False
    behalf: OnBehalf | None = None


class DeclareQuotas(Message, frozen=True, kw_only=True):
    """Set all quotas that a LogCluster declares, and remove those that it no longer declares."""

    rows: tuple[QuotaRow, ...]


class DeclareAuthorization(Message, frozen=True, kw_only=True):
    """Set the authorization that a LogCluster states. Its `disguise` is used only if none is
    committed yet."""

    authorization: Authorization


class DeclareTokenIssuers(Message, frozen=True, kw_only=True):
    """Set all token issuers that a LogCluster trusts, with their present keys."""

    issuers: tuple[TokenIssuer, ...]


class DeclareClientAuthorities(Message, frozen=True, kw_only=True):
    """Set all authorities that a LogCluster trusts for clients' certificates."""

    authorities: tuple[ClientAuthority, ...]


class DeclareUser(Message, frozen=True, kw_only=True):
    """Set a user to the state that its User object declares. `credentials`: derived from its
    Secret; None keeps the committed ones. `certificates`: all by which the user may log in, newest
    first; None keeps the committed ones. `quotas`: None if the object declares none. `tenant`: True
    if the object's namespace is not the LogCluster's."""

    object: UserObject
    user_name: str
    disabled: bool = False
    acls: tuple[Acl, ...] = ()
    credentials: tuple[ScramCredential, ...] | None = None
    certificates: tuple[UserCertificate, ...] | None = None
    quotas: QuotaValues | None = None
    tenant: bool = False


class UserObjectSeen(Message, frozen=True, kw_only=True):
    """Report whether a User object exists. `gone_since_ms`: the time when it was first proven
    absent (wall clock), from which the user's grace period runs; None if the object exists."""

    object: UserObject
    gone_since_ms: int | None


class UserObjectGone(Message, frozen=True, kw_only=True):
    """Report that a User object is proven absent and the grace period is over: remove its user,
    credentials, ACLs and quotas. `now_ms`: wall clock, by which the removal counts among those of
    the last hour; None if it does not count. `heir`: another object that declares the user and
    takes everything over, so that nothing is removed."""

    object: UserObject
    now_ms: int | None = None
    heir: UserObject | None = None


SecurityChange = CreateAcls | DeleteAcls | AlterScramCredentials | AlterQuotas
"""The requests of clients."""
SecurityDeclaration = (
    DeclareAuthorization
    | DeclareTokenIssuers
    | DeclareClientAuthorities
    | DeclareUser
    | UserObjectSeen
    | UserObjectGone
    | DeclareQuotas
)
"""The requests of the operator."""


class DeletedAcl(msgspec.Struct, frozen=True, kw_only=True):
    """An ACL that matched a filter. It was deleted if `code` is 0."""

    acl: Acl
    code: int = 0
    message: str = ""


class AclsChanged(Message, frozen=True, kw_only=True):
    """The result of creating or deleting ACLs. `deleted`: for each filter, the ACLs that matched.
    `end_offset`: the metadata offset from which the change is visible."""

    deleted: tuple[tuple[DeletedAcl, ...], ...] = ()
    end_offset: MetadataOffset = MetadataOffset(0)


class ScramChanged(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    code: int = 0
    message: str = ""


class ScramAltered(Message, frozen=True, kw_only=True):
    users: tuple[ScramChanged, ...]
    end_offset: MetadataOffset = MetadataOffset(0)


class QuotaChanged(msgspec.Struct, frozen=True, kw_only=True):
    entity: QuotaEntity
    code: int = 0
    message: str = ""


class QuotasAltered(Message, frozen=True, kw_only=True):
    """The result for each entity, in the order of the request. `end_offset`: the metadata offset
    from which the changes are visible."""

    entities: tuple[QuotaChanged, ...]
    end_offset: MetadataOffset = MetadataOffset(0)


SecurityAnswer = AclsChanged | ScramAltered | QuotasAltered
