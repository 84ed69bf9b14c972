"""The CRD of `User`: its rules and columns.  A part of `crds`."""

from __future__ import annotations

from plimsoll_operator.api.crd_kind import READY_COLUMNS, Kind, same
from plimsoll_operator.api.user import UserSpec, UserStatus

USER = Kind(
    name="User",
    plural="users",
    short="plu",
    spec=UserSpec,
    status=UserStatus,
    description="A user of a LogCluster: a login, and what may be done with it.",
    rules=(
        ("self.clusterRef == oldSelf.clusterRef", "clusterRef is immutable."),
        (same("userName"), "userName is immutable: make another User instead."),
        (
            "!has(self.authentication) || "
            "[has(self.authentication.scram), has(self.authentication.serviceAccount), "
            "has(self.authentication.tls), has(self.authentication.tlsExternal)]"
            ".filter(one, one).size() == 1",
            "A user logs in by one of scram, serviceAccount, tls and tlsExternal.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.serviceAccount) || "
            "!has(self.userName)",
            "A ServiceAccount has its own name: userName is for others.",
        ),
        (
            "!has(self.authentication) || !has(self.authentication.tlsExternal) || "
            "!has(self.userName)",
            "A certificate of another authority has its own name: userName is for others.",
        ),
        (
            "!has(self.acls) || self.acls.all(a, (a.resource.type == 'Cluster') == "
            "!has(a.resource.name))",
            "A rule names its resource, unless that is the Cluster, of which there is one.",
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
