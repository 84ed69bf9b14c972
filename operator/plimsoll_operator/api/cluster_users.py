"""A LogCluster's rules for Users of other namespaces, and for deleted User objects
(`spec.users`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_operator.api.cluster_topics import AllowedNamespaces, LabelSelector
from plimsoll_operator.api.meta import Api, described
from plimsoll_operator.api.name_prefix import NamePrefix
from plimsoll_operator.api.user import Operation, RuleResource

SHARED_MAX = 64
GRACE_SECONDS_DEFAULT = 300
REMOVALS_PER_HOUR_DEFAULT = 20


class Shared(Api, frozen=True, kw_only=True):
    """A right that Users of other namespaces may have although it is outside their own names."""

    namespaces: Annotated[
        LabelSelector | None,
        described("Namespaces of the Users that may have this right; unset: all with Users."),
    ] = None
    resource: RuleResource
    operations: Annotated[
        tuple[Operation, ...],
        Meta(min_length=1, max_length=11, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ]


class UserDeletion(Api, frozen=True, kw_only=True):
    """Deletion of users after their object is deleted."""

    grace_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        described(
            "Seconds for which the user may still log in, so that a mistaken deletion cuts "
            "off no client; default 300. A User's spec.disabled cuts off at once."
        ),
    ] = None
    max_per_hour: Annotated[
        Annotated[int, Meta(ge=0, le=2_000)] | None,
        described(
            "If more User objects than this disappear in one namespace, no login there "
            "ends; default 20."
        ),
    ] = None


class ClusterUsers(Api, frozen=True, kw_only=True):
    """Rules for Users: which other namespaces may have them, which rights these may be given, and
    how they are deleted."""

    allowed_namespaces: AllowedNamespaces | None = None
    prefix: Annotated[
        NamePrefix | None,
        described(
            "Prefix of the names of Users in other namespaces, and of resources in their rules; "
            "default {namespace}. with the dot."
        ),
    ] = None
    deletion: UserDeletion | None = None
    shared: Annotated[
        Annotated[
            tuple[Shared, ...],
            Meta(max_length=SHARED_MAX, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
        ]
        | None,
        described("Rights outside the prefix that rules of Users in other namespaces may grant."),
    ] = None
