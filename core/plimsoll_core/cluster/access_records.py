"""The records about users, credentials, rights, quotas and certificates inside: a part of
`records`."""

from __future__ import annotations

from plimsoll_core.cluster.record_base import Record
from plimsoll_core.ids import BrokerId
from plimsoll_core.quotas.state import QuotaEntity, QuotaRow
from plimsoll_core.security.acl import Acl
from plimsoll_core.security.client_certificates import ClientAuthority, UserCertificates
from plimsoll_core.security.inside import InsideMode
from plimsoll_core.security.scram import ScramCredential, ScramMechanism
from plimsoll_core.security.state import Authorization, DeclaredUser
from plimsoll_core.security.tokens import TokenIssuer


class AuthorizationConfigured(Record, frozen=True, kw_only=True):
    """The mode of authorization, and the super users."""

    authorization: Authorization


class ScramCredentialSet(Record, frozen=True, kw_only=True):
    """A user may log in with a password; replaces what there was for the mechanism."""

    credential: ScramCredential


class ScramCredentialRemoved(Record, frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism


class AclsAdded(Record, frozen=True, kw_only=True):
    """An owner declares these rules. `owner`: the uid of a User object; empty for a client."""

    acls: tuple[Acl, ...]
    owner: str = ""


class AclsRemoved(Record, frozen=True, kw_only=True):
    """An owner withdraws these rules; a rule without owners is removed."""

    acls: tuple[Acl, ...]
    owner: str = ""


class UserDeclared(Record, frozen=True, kw_only=True):
    """An object declares a user: the whole row."""

    user: DeclaredUser


class UserRemoved(Record, frozen=True, kw_only=True):
    """The user has no object any more. `now_ms` (wall clock, milliseconds) counts the removal among
    those of the last hour; None: it does not count."""

    user_name: str
    now_ms: int | None = None


class TokenIssuersConfigured(Record, frozen=True, kw_only=True):
    """The trusted issuers, with all keys; clients that logged in by another one are cut off."""

    issuers: tuple[TokenIssuer, ...]


class ClientAuthoritiesConfigured(Record, frozen=True, kw_only=True):
    """The trusted authorities of clients' certificates; clients that logged in by another one are
    cut off."""

    authorities: tuple[ClientAuthority, ...]


class UserCertificatesSet(Record, frozen=True, kw_only=True):
    """The user's accepted certificates; the row replaces the former one."""

    row: UserCertificates


class UserCertificatesRemoved(Record, frozen=True, kw_only=True):
    """The user may log in by none any more."""

    user: str


class QuotasSet(Record, frozen=True, kw_only=True):
    """The quotas of one entity: the whole row."""

    row: QuotaRow


class QuotasRemoved(Record, frozen=True, kw_only=True):
    """The entity has no row any more."""

    entity: QuotaEntity


class InsideModeSet(Record, frozen=True, kw_only=True):
    """The mode of connections between brokers and controllers."""

    mode: InsideMode


class CertificatesAllowed(Record, frozen=True, kw_only=True):
    """The certificates that a broker may present inside the cluster, by SHA-256, newest first;
    empty: the broker is removed. Connections with any other certificate end."""

    broker_id: BrokerId
    sha256: tuple[str, ...]
