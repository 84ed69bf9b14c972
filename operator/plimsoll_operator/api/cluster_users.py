"""A LogCluster's rules for Users of other namespaces: `spec.users`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_operator.api.cluster_topics import AllowedNamespaces, LabelSelector
from plimsoll_operator.api.meta import Api
from plimsoll_operator.api.name_prefix import NamePrefix
from plimsoll_operator.api.user import Operation, RuleResource

SHARED_MAX = 64


class Shared(Api, frozen=True, kw_only=True):
    """What Users of other namespaces may be given outside of their own names."""

    namespaces: (
        Annotated[
            LabelSelector,
            Meta(description="Of which namespaces; unset: of all that may have Users."),
        ]
        | None
    ) = None
    resource: RuleResource
    operations: Annotated[
        tuple[Operation, ...],
        Meta(min_length=1, max_length=11, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ]


class ClusterUsers(Api, frozen=True, kw_only=True):
    """Which other namespaces may have Users here, and what these may be given."""

    allowed_namespaces: AllowedNamespaces | None = None
    prefix: (
        Annotated[
            NamePrefix,
            Meta(
                description=(
                    "How the names of such Users, and of what their rules allow, begin; default "
                    "{namespace}. with the dot."
                )
            ),
        ]
        | None
    ) = None
    shared: (
        Annotated[
            tuple[Shared, ...],
            Meta(
                max_length=SHARED_MAX,
                description="What their rules may allow besides.",
                extra_json_schema={"x-kubernetes-list-type": "atomic"},
            ),
        ]
        | None
    ) = None
