"""A LogCluster's rules for topics: allowed namespaces, defaults, limits, deletion."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_core.published_limits import (
    PARTITIONS_OF_CLUSTER,
    PARTITIONS_OF_CLUSTER_STATED_MAX,
)
from plimsoll_operator.api.meta import Api, Labels, Short, described
from plimsoll_operator.api.name_prefix import NamePrefix

PARTITIONS_DEFAULT = 6
REPLICATION_FACTOR_DEFAULT = 3
MIN_ISR_DEFAULT = 2
GRACE_SECONDS_DEFAULT = 86_400
REMOVALS_PER_HOUR_DEFAULT = 20


class LabelSelectorRequirement(Api, frozen=True, kw_only=True):
    """One requirement of a label selector."""

    key: Short
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Short, ...], Meta(max_length=64)] | None = None


class LabelSelector(Api, frozen=True, kw_only=True):
    """A Kubernetes label selector; an empty one matches everything."""

    match_labels: Labels | None = None
    match_expressions: (
        Annotated[tuple[LabelSelectorRequirement, ...], Meta(max_length=16)] | None
    ) = None


AllowedFrom = Literal["Same", "All", "Selector"]


class AllowedNamespaces(Api, frozen=True, kw_only=True):
    """Namespaces that may use this; default Same, the LogCluster's own."""

    from_: AllowedFrom | None = msgspec.field(name="from", default=None)
    selector: LabelSelector | None = None


class TopicDefaults(Api, frozen=True, kw_only=True):
    """Values for fields that a new Topic leaves unset: 6 partitions, replication factor 3 and min
    ISR 2 unless stated. A change does not affect existing Topics."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32)] | None = None
    min_in_sync_replicas: Annotated[int, Meta(ge=1, le=32)] | None = None


class TopicDeletion(Api, frozen=True, kw_only=True):
    """Deletion of topics after their object is deleted."""

    grace_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=31_536_000)] | None,
        described("Seconds for which the data is kept; default 86400."),
    ] = None
    max_per_hour: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None,
        described(
            "If more Topic objects than this disappear together, no topic is deleted; default 20."
        ),
    ] = None


class TopicLimits(Api, frozen=True, kw_only=True):
    """Limits on the size of topics. A topic that already exceeds a limit keeps its size and cannot
    grow."""

    partitions_per_topic: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        described("Most partitions of one topic, declared or created by a client; default 10000."),
    ] = None
    partitions_per_cluster: Annotated[
        Annotated[int, Meta(ge=1, le=PARTITIONS_OF_CLUSTER_STATED_MAX)] | None,
        described(
            "Most partitions of the cluster, those of internal topics included; default "
            f"{PARTITIONS_OF_CLUSTER.most}."
        ),
    ] = None
    partitions_per_namespace: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        described(
            "Most partitions of all Topics of one namespace together; default no limit. "
            "Topics that await deletion count."
        ),
    ] = None


class Topics(Api, frozen=True, kw_only=True):
    """Rules for topics: which may be declared, by which namespaces, how large, and how they are
    deleted."""

    allowed_namespaces: AllowedNamespaces | None = None
    prefix: Annotated[
        NamePrefix | None,
        described(
            "Prefix of the names of topics that other namespaces declare, such as "
            "{namespace}. with the dot. Unset: any name. Set it if spec.users admits other "
            "namespaces."
        ),
    ] = None
    defaults: TopicDefaults | None = None
    limits: TopicLimits | None = None
    client_created: Annotated[
        Literal["Allow", "Deny"] | None,
        described(
            "Allow (default): clients may create topics, which have no object. Deny: they "
            "may not; existing topics stay, and clients may delete them."
        ),
    ] = None
    deletion: TopicDeletion | None = None
