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
    """Replaces the cluster's authorization: its mode and its super users."""

    authorization: Authorization


class ScramCredentialSet(Record, frozen=True, kw_only=True):
    """Sets the SCRAM credential with which a user may log in. It replaces the user's credential for
    the same mechanism."""

    credential: ScramCredential


class ScramCredentialRemoved(Record, frozen=True, kw_only=True):
    user: str
    mechanism: ScramMechanism


class AclsAdded(Record, frozen=True, kw_only=True):
    """Adds ACLs, and `owner` to the owners of each. `owner` is the uid of the User object that
    declares them, or empty for ACLs that a client created."""

    acls: tuple[Acl, ...]
    owner: str = ""


class AclsRemoved(Record, frozen=True, kw_only=True):
    """Takes `owner` from the owners of these ACLs. An ACL without owners is removed."""

    acls: tuple[Acl, ...]
    owner: str = ""


class UserDeclared(Record, frozen=True, kw_only=True):
    """Sets the row of a user that a User object declares. It replaces the user's former row."""

    user: DeclaredUser


class UserRemoved(Record, frozen=True, kw_only=True):
    """Removes a declared user, because its User object is gone. `now_ms` (wall clock, milliseconds)
    counts the removal among those of the last hour; with None it is not counted."""

    user_name: str
    now_ms: int | None = None


class TokenIssuersConfigured(Record, frozen=True, kw_only=True):
    """Sets the trusted issuers of tokens, with all their keys. Brokers close the connections of
    clients that logged in by a token of an issuer that is not listed any more."""

    issuers: tuple[TokenIssuer, ...]


class ClientAuthoritiesConfigured(Record, frozen=True, kw_only=True):
    """Sets the certificate authorities that are trusted for clients' certificates. Brokers close
    the connections of clients that logged in by a certificate of another authority."""

    authorities: tuple[ClientAuthority, ...]


class UserCertificatesSet(Record, frozen=True, kw_only=True):
    """Sets the client certificates by which a user may log in. It replaces the user's former
    row."""

    row: UserCertificates


class UserCertificatesRemoved(Record, frozen=True, kw_only=True):
    """Removes the user's row of client certificates: the user cannot log in by a certificate any
    more."""

    user: str


class QuotasSet(Record, frozen=True, kw_only=True):
    """Sets all quotas of one entity (user, client id, IP address). It replaces the entity's former
    row."""

    row: QuotaRow


class QuotasRemoved(Record, frozen=True, kw_only=True):
    """Removes all quotas of one entity."""

    entity: QuotaEntity


class InsideModeSet(Record, frozen=True, kw_only=True):
    """Sets the TLS mode of the connections among brokers and controllers."""

    mode: InsideMode


class CertificatesAllowed(Record, frozen=True, kw_only=True):
    """Sets the certificates that a broker may present to other brokers and controllers, as SHA-256
    fingerprints, newest first. Empty means that the broker is removed. Connections with any other
    certificate of this broker are closed."""

    broker_id: BrokerId
    sha256: tuple[str, ...]
