"""Requests about users, rights and quotas, of clients and of the operator, and their answers.

Part of `messages`, which lists them among the requests and answers.
"""

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
    """The client that a broker asks for, also if it has no rights to check: the controller checks
    its rights and its login again.  `login`: `scram.login_mark` of the key that it logged in by, or
    `tokens.token_mark` of its token, or `client_certificates.mark_of` of its certificate; empty:
    its listener requires no login."""

    principal: str
    host: str
    login: bytes = b""


class CreateAcls(Message, frozen=True, kw_only=True):
    """Add all these rules or none, for a client. Forwarded by a broker."""

    acls: tuple[Acl, ...]
    behalf: OnBehalf | None = None


class DeleteAcls(Message, frozen=True, kw_only=True):
    """Delete matching rules, for a client. Forwarded by a broker. Rules that an object declares
    stay; the answer says so."""

    filters: tuple[AclFilter, ...]
    behalf: OnBehalf | None = None


class ScramDeletion(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism


class AlterScramCredentials(Message, frozen=True, kw_only=True):
    """Change passwords, for a client. Forwarded by a broker. Each user is changed by itself,
    completely or not at all."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramCredential, ...] = ()
    behalf: OnBehalf | None = None


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of quotas, by key. The value replaces the former one; None removes it."""

    entity: QuotaEntity
    values: dict[str, float | None]


class AlterQuotas(Message, frozen=True, kw_only=True):
    """Change quotas, for a client. Forwarded by a broker. Each entity is changed by itself,
    completely or not at all."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False
    behalf: OnBehalf | None = None


class DeclareQuotas(Message, frozen=True, kw_only=True):
    """Declare all quotas of a LogCluster."""

    rows: tuple[QuotaRow, ...]


class DeclareAuthorization(Message, frozen=True, kw_only=True):
    """The authorization that a LogCluster states.  `disguise` is taken if none is committed yet."""

    authorization: Authorization


class DeclareTokenIssuers(Message, frozen=True, kw_only=True):
    """Declare all token issuers of a LogCluster, with their present keys."""

    issuers: tuple[TokenIssuer, ...]


class DeclareClientAuthorities(Message, frozen=True, kw_only=True):
    """Declare all trusted authorities of clients' certificates."""

    authorities: tuple[ClientAuthority, ...]


class DeclareUser(Message, frozen=True, kw_only=True):
    """A User object as it should be.  `credentials`: what was made of its Secret; None: what is
    committed stays.  `certificates`: all by which it may log in, the newest first; None: likewise.
    `quotas` None: the object declares none."""

    object: UserObject
    user_name: str
    disabled: bool = False
    acls: tuple[Acl, ...] = ()
    credentials: tuple[ScramCredential, ...] | None = None
    certificates: tuple[UserCertificate, ...] | None = None
    quotas: QuotaValues | None = None


class UserObjectSeen(Message, frozen=True, kw_only=True):
    """An object was proven absent for the first time at `gone_since_ms` (wall clock), and its user
    has a grace; None: it is there."""

    object: UserObject
    gone_since_ms: int | None


class UserObjectGone(Message, frozen=True, kw_only=True):
    """An object is proven absent (never merely not seen): its user, credentials and rules go.
    `now_ms` (wall clock): it counts among those that went within an hour; None: it does not.
    `heir`: another object that declares the user, and has all of it from now on: nothing goes."""

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
    """A rule that a filter found; with a code it is still there."""

    acl: Acl
    code: int = 0
    message: str = ""


class AclsChanged(Message, frozen=True, kw_only=True):
    """Result of a change of rules. `deleted`: the deleted rules, for each filter."""

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
    """Results, in the order of the request."""

    entities: tuple[QuotaChanged, ...]
    end_offset: MetadataOffset = MetadataOffset(0)


SecurityAnswer = AclsChanged | ScramAltered | QuotasAltered
