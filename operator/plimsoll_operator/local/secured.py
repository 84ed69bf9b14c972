"""`plimsoll local --secure`: adds to the files what protects a cluster.

It adds a TLS listener of the cluster's own CA that requires a password or a certificate, enforced
rights, internal certificates, and a super user `admin` with credentials in DIR/users/admin. Fields
that the LogCluster states stay unchanged. Pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll_operator.api.authorization import DeclaredAuthorization
from plimsoll_operator.api.certificates import Certificates, InternalCertificates
from plimsoll_operator.api.listeners import DeclaredListener, ListenerTls
from plimsoll_operator.api.meta import ClusterRef, ObjectMeta
from plimsoll_operator.api.user import Authentication, Scram, User, UserSpec
from plimsoll_operator.local.documents import Documents, with_uid

LISTENER = "secure"
PORT_DEFAULT = 9094
"""The port of broker 0; each broker adds its id."""
ADMIN = "admin"
CLOSED_INSIDE = Certificates(internal=InternalCertificates(mode="Required"))


def secured(documents: Documents, port: int | None) -> Documents:
    """Return the secured documents. `port`: of the first broker."""
    cluster, spec = documents.cluster, documents.cluster.spec
    listener = DeclaredListener(
        name=LISTENER,
        port=port or PORT_DEFAULT,
        tls=ListenerTls(),
        authentication=("ScramSha256", "ScramSha512", "Tls"),
    )
    spec = replace(
        spec,
        listeners=spec.listeners or (listener,),
        authorization=spec.authorization
        or DeclaredAuthorization(mode="Enforce", super_users=(f"User:{ADMIN}",)),
        certificates=spec.certificates if cluster.stated_inside else CLOSED_INSIDE,
    )
    others = list(documents.others)
    if not any(isinstance(one, User) and one.metadata.name == ADMIN for one in others):
        metadata = ObjectMeta(name=ADMIN, namespace=cluster.metadata.namespace)
        ref = ClusterRef(name=cluster.metadata.name)
        login = Authentication(scram=Scram())
        admin = User(metadata=metadata, spec=UserSpec(cluster_ref=ref, authentication=login))
        others.append(with_uid(admin))
    return Documents(cluster=replace(cluster, spec=spec), others=tuple(others))
