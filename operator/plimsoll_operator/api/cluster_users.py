"""A LogCluster's rules for Users: of other namespaces, and when objects go (`spec.users`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plimsoll_operator.api.cluster_topics import AllowedNamespaces, LabelSelector
from plimsoll_operator.api.meta import Api
from plimsoll_operator.api.name_prefix import NamePrefix
from plimsoll_operator.api.user import Operation, RuleResource

SHARED_MAX = 64
GRACE_SECONDS_DEFAULT = 300
REMOVALS_PER_HOUR_DEFAULT = 20


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


class UserDeletion(Api, frozen=True, kw_only=True):
    """How a user goes whose object is gone."""

    grace_seconds: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=86_400,
                description=(
                    "How long it may still log in, so that an object that was deleted by mistake "
                    "cuts nobody off; 300 if unset. spec.disabled of a User cuts off at once."
                ),
            ),
        ]
        | None
    ) = None
    max_per_hour: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2_000,
                description=(
                    "More disappearances than this in one namespace end no login there; 20 if "
                    "unset."
                ),
            ),
        ]
        | None
    ) = None


class ClusterUsers(Api, frozen=True, kw_only=True):
    """Which other namespaces may have Users here, what these may be given, and how users go."""

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
    deletion: UserDeletion | None = None
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
