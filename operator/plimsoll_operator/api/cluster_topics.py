"""A LogCluster's rules for topics: allowed namespaces, defaults, limits, deletion."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import Api, Labels, Short
from plimsoll_operator.api.name_prefix import NamePrefix

PARTITIONS_DEFAULT = 6
REPLICATION_FACTOR_DEFAULT = 3
MIN_ISR_DEFAULT = 2
GRACE_SECONDS_DEFAULT = 86_400
REMOVALS_PER_HOUR_DEFAULT = 20


class LabelSelectorRequirement(Api, frozen=True, kw_only=True):
    """One expression of a label selector."""

    key: Short
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Short, ...], Meta(max_length=64)] | None = None


class LabelSelector(Api, frozen=True, kw_only=True):
    """Kubernetes' label selector; an empty one selects everything."""

    match_labels: Labels | None = None
    match_expressions: (
        Annotated[tuple[LabelSelectorRequirement, ...], Meta(max_length=16)] | None
    ) = None


AllowedFrom = Literal["Same", "All", "Selector"]


class AllowedNamespaces(Api, frozen=True, kw_only=True):
    """Which namespaces may have objects here; default Same."""

    from_: AllowedFrom | None = msgspec.field(name="from", default=None)
    selector: LabelSelector | None = None


class TopicDefaults(Api, frozen=True, kw_only=True):
    """What a Topic gets at its creation that does not say: 6 partitions, replication factor 3, min
    ISR 2.  Later changes of these leave Topics that exist as they are."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32)] | None = None
    min_in_sync_replicas: Annotated[int, Meta(ge=1, le=32)] | None = None


class TopicDeletion(Api, frozen=True, kw_only=True):
    """How a topic goes whose object is gone."""

    grace_seconds: (
        Annotated[
            int,
            Meta(ge=0, le=31_536_000, description="How long data is kept; default 86400."),
        ]
        | None
    ) = None
    max_per_hour: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=100_000,
                description="More disappearances than this stop all deletion; default 20.",
            ),
        ]
        | None
    ) = None


class TopicLimits(Api, frozen=True, kw_only=True):
    """How large topics may become.  What is larger already stays as it is, and does not grow."""

    partitions_per_topic: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=10_000,
                description="Also of topics that clients create; default 10000.",
            ),
        ]
        | None
    ) = None
    partitions_per_namespace: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1_000_000,
                description=(
                    "Partitions of all Topics of one namespace together; default no limit. Topics "
                    "that are kept until their grace has passed count."
                ),
            ),
        ]
        | None
    ) = None


class Topics(Api, frozen=True, kw_only=True):
    """The topics that may be declared, and the namespaces that may declare them."""

    allowed_namespaces: AllowedNamespaces | None = None
    prefix: (
        Annotated[
            NamePrefix,
            Meta(
                description=(
                    "How the names of topics begin that objects of other namespaces declare, such "
                    "as {namespace}. with the dot. Unset: they may have any. Set it where "
                    "spec.users lets other namespaces in."
                )
            ),
        ]
        | None
    ) = None
    defaults: TopicDefaults | None = None
    limits: TopicLimits | None = None
    client_created: (
        Annotated[
            Literal["Allow", "Deny"],
            Meta(
                description=(
                    "Whether clients may create topics, which then have no object; default Allow. "
                    "Those that there are stay, and clients may delete them."
                ),
            ),
        ]
        | None
    ) = None
    deletion: TopicDeletion | None = None
