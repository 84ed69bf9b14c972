"""The CRD of `User`: its rules and columns. Assembled by `crds`."""

from __future__ import annotations

from plimsoll_operator.api.crd_kind import READY_COLUMNS, Kind, same
from plimsoll_operator.api.user import UserSpec, UserStatus

USER = Kind(
    name="User",
    plural="users",
    short="plu",
    spec=UserSpec,
    status=UserStatus,
    description="A user of a LogCluster: its login, rights and quotas.",
    rules=(
        ("self.clusterRef == oldSelf.clusterRef", "clusterRef is immutable."),
        (same("userName"), "userName is immutable: make another User instead."),
        (
            "!has(self.authentication) || "
            "[has(self.authentication.scram), has(self.authentication.serviceAccount), "
            "has(self.authentication.tls), has(self.authentication.tlsExternal)]"
            ".filter(one, one).size() == 1",
            "authentication has at most one of scram, serviceAccount, tls and tlsExternal.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.serviceAccount) || "
            "!has(self.userName)",
            "userName is not allowed with serviceAccount: the ServiceAccount gives the name.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.tlsExternal) || "
            "!has(self.userName)",
            "userName is not allowed with tlsExternal: the certificate's subject is the name.",
        ),
        (
            "!has(self.acls) || self.acls.all(a, (a.resource.type == 'Cluster') == "
            "!has(a.resource.name))",
            "Each rule in acls names its resource, except for type Cluster.",
        ),
    ),
    columns=(
        ("Cluster", "string", ".spec.clusterRef.name"),
        ("Principal", "string", ".status.principal"),
        ("Secret", "string", ".status.secret.name"),
        ("ACLs", "integer", ".status.acls"),
        *READY_COLUMNS,
    ),
    selectable=(".spec.clusterRef.name", ".spec.userName"),
)
