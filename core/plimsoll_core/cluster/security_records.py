"""Applies the records about credentials, users, ACLs, quotas and certificates to an image; encodes
and decodes their entries for a snapshot.

Called by `image.apply` and `image_encoding`. The index of ACLs is changed by the ACLs that a record
adds or removes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.security.acl import Acl
from plimsoll_core.security.acl_index import index_of
from plimsoll_core.security.client_certificates import ClientAuthority, UserCertificates
from plimsoll_core.security.inside import BrokerCertificates
from plimsoll_core.security.scram import ScramCredential
from plimsoll_core.security.state import (
    REMOVALS_KEPT_MS,
    REMOVALS_MAX,
    Authorization,
    DeclaredUser,
    SecurityState,
    UserRemoval,
)
from plimsoll_core.security.tokens import TokenIssuer


def authorization_configured(
    image: ClusterImage, record: r.AuthorizationConfigured
) -> ClusterImage:
    return _with(image, replace(image.security, authorization=record.authorization))


def credential_set(image: ClusterImage, record: r.ScramCredentialSet) -> ClusterImage:
    one = record.credential
    credentials = image.security.credentials.set((one.user, one.mechanism), one)
    return _with(image, replace(image.security, credentials=credentials))


def credential_removed(image: ClusterImage, record: r.ScramCredentialRemoved) -> ClusterImage:
    credentials = image.security.credentials.delete((record.user, record.mechanism))
    return _with(image, replace(image.security, credentials=credentials))


def acls_added(image: ClusterImage, record: r.AclsAdded) -> ClusterImage:
    acls = image.security.acls.mutate()
    new: list[Acl] = []
    for acl in record.acls:
        owners = acls.get(acl, ())
        assert record.owner not in owners, "an owner asks for a rule once"
        if not owners:
            new.append(acl)
        acls[acl] = tuple(sorted((*owners, record.owner)))
    index = image.security.index.added(new)
    return _with(image, replace(image.security, acls=acls.finish(), index=index))


def acls_removed(image: ClusterImage, record: r.AclsRemoved) -> ClusterImage:
    acls = image.security.acls.mutate()
    gone: list[Acl] = []
    for acl in record.acls:
        owners = acls[acl]
        assert record.owner in owners, "only an owner of a rule can give it up"
        left = tuple(owner for owner in owners if owner != record.owner)
        if left:
            acls[acl] = left
        else:
            del acls[acl]
            gone.append(acl)
    index = image.security.index.removed(gone)
    return _with(image, replace(image.security, acls=acls.finish(), index=index))


def user_declared(image: ClusterImage, record: r.UserDeclared) -> ClusterImage:
    users = image.security.users.set(record.user.user_name, record.user)
    return _with(image, replace(image.security, users=users))


def user_removed(image: ClusterImage, record: r.UserRemoved) -> ClusterImage:
    row = image.security.users[record.user_name]
    users = image.security.users.delete(record.user_name)
    removals, now_ms = image.security.removals, record.now_ms
    if now_ms is not None:
        kept = [one for one in removals if one.at_ms > now_ms - REMOVALS_KEPT_MS]
        kept.append(UserRemoval(namespace=row.object.namespace, at_ms=now_ms))
        removals = tuple(kept[-REMOVALS_MAX:])
    return _with(image, replace(image.security, users=users, removals=removals))


def token_issuers_configured(image: ClusterImage, record: r.TokenIssuersConfigured) -> ClusterImage:
    return _with(image, replace(image.security, issuers=record.issuers))


def client_authorities_configured(
    image: ClusterImage, record: r.ClientAuthoritiesConfigured
) -> ClusterImage:
    return _with(image, replace(image.security, authorities=record.authorities))


def user_certificates_set(image: ClusterImage, record: r.UserCertificatesSet) -> ClusterImage:
    return _with(image, image.security.with_certificates(record.row))


def user_certificates_removed(
    image: ClusterImage, record: r.UserCertificatesRemoved
) -> ClusterImage:
    return _with(image, image.security.without_certificates(record.user))


def _with(image: ClusterImage, security: SecurityState) -> ClusterImage:
    return replace(image, security=security)


def quotas_set(image: ClusterImage, record: r.QuotasSet) -> ClusterImage:
    return replace(image, quotas=image.quotas.with_row(record.row))


def quotas_removed(image: ClusterImage, record: r.QuotasRemoved) -> ClusterImage:
    return replace(image, quotas=image.quotas.without(record.entity))


def inside_mode_set(image: ClusterImage, record: r.InsideModeSet) -> ClusterImage:
    return replace(image, inside=replace(image.inside, mode=record.mode))


def certificates_allowed(image: ClusterImage, record: r.CertificatesAllowed) -> ClusterImage:
    rows = {one.broker_id: one for one in image.inside.certificates}
    rows.pop(record.broker_id, None)
    if record.sha256:
        row = BrokerCertificates(broker_id=record.broker_id, sha256=record.sha256)
        rows[record.broker_id] = row
    certificates = tuple(row for _, row in sorted(rows.items()))
    return replace(image, inside=replace(image.inside, certificates=certificates))


APPLIERS: dict[type, Callable[[ClusterImage, Any], ClusterImage]] = {
    r.AuthorizationConfigured: authorization_configured,
    r.ScramCredentialSet: credential_set,
    r.ScramCredentialRemoved: credential_removed,
    r.AclsAdded: acls_added,
    r.AclsRemoved: acls_removed,
    r.UserDeclared: user_declared,
    r.UserRemoved: user_removed,
    r.TokenIssuersConfigured: token_issuers_configured,
    r.ClientAuthoritiesConfigured: client_authorities_configured,
    r.UserCertificatesSet: user_certificates_set,
    r.UserCertificatesRemoved: user_certificates_removed,
    r.QuotasSet: quotas_set,
    r.QuotasRemoved: quotas_removed,
    r.InsideModeSet: inside_mode_set,
    r.CertificatesAllowed: certificates_allowed,
}
"""For each record type about security, the function that applies it: a part of the table in
`image`."""


# --- snapshots -----------------------------------------------------------------------------------


class StoredSecurity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The security state of an image as a snapshot stores it, in canonical order. Each entry of
    `acls` is an ACL with its owners."""

    authorization: Authorization
    credentials: tuple[ScramCredential, ...]
    users: tuple[DeclaredUser, ...]
    acls: tuple[tuple[Acl, tuple[str, ...]], ...]
    issuers: tuple[TokenIssuer, ...] = ()
    authorities: tuple[ClientAuthority, ...] = ()
    certificates: tuple[UserCertificates, ...] = ()
    removals: tuple[UserRemoval, ...] = ()


def stored(security: SecurityState) -> StoredSecurity:
    return StoredSecurity(
        authorization=security.authorization,
        credentials=tuple(sorted(security.credentials.values(), key=lambda one: one.order)),
        users=tuple(user for _, user in sorted(security.users.items())),
        acls=tuple(sorted(security.acls.items(), key=lambda row: row[0].order)),
        issuers=security.issuers,
        authorities=security.authorities,
        certificates=tuple(row for _, row in sorted(security.certificates.items())),
        removals=security.removals,
    )


def restored(rows: StoredSecurity) -> SecurityState:
    found = SecurityState(
        authorization=rows.authorization,
        credentials=Map({(one.user, one.mechanism): one for one in rows.credentials}),
        users=Map({one.user_name: one for one in rows.users}),
        acls=Map(rows.acls),
        index=index_of(acl for acl, _ in rows.acls),
        issuers=rows.issuers,
        authorities=rows.authorities,
        removals=rows.removals,
    )
    for row in rows.certificates:
        found = found.with_certificates(row)
    return found
