"""Types that all kinds share: metadata, references, conditions, and bounded fields.

Every list, map and string has a maximum, because the API server prices CEL rules by the worst case
and refuses an unbounded schema. No field has a schema default: a default written into a stored
object is a diff that the author never made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


def described(text: str) -> Meta:
    """Return the msgspec metadata that puts `text` into the CRD as a field's description."""
    return Meta(description=text)


class Api(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all structs that users or the operator write in YAML. A field that the object does
    not state is None."""


Name = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
]
ObjectName = Annotated[
    str,
    Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
]
TopicName = Annotated[str, Meta(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]
Quantity = Annotated[
    str, Meta(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?$")
]
Amount = Annotated[int, Meta(ge=1)] | Quantity
"""A Kubernetes quantity; `quantities.amount` parses it."""
Release = Annotated[str, Meta(min_length=3, max_length=16, pattern=r"^[0-9]+\.[0-9]+$")]
Sentence = Annotated[str, Meta(max_length=32768)]
Short = Annotated[str, Meta(max_length=253)]
Time = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
Image = Annotated[str, Meta(max_length=512)]
BrokerNumber = Annotated[int, Meta(ge=0, le=1_000_000)]
Count = Annotated[int, Meta(ge=0)]
Labels = Annotated[dict[Short, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)]
Config = Annotated[
    dict[
        Annotated[str, Meta(max_length=249)],
        int | float | bool | Annotated[str, Meta(max_length=4096)],
    ],
    Meta(
        max_length=200,
        description="Topic configs under Kafka's keys; values are numbers, booleans or strings.",
    ),
]
Passed = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={"x-kubernetes-preserve-unknown-fields": True},
        description="Copied to the pods unchanged.",
    ),
]


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of an object's metadata that the operator reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ClusterRef(Api, frozen=True, kw_only=True):
    """The LogCluster to which this object belongs; its namespace defaults to the object's own."""

    name: Name
    namespace: Name | None = None


class LocalClusterRef(Api, frozen=True, kw_only=True):
    """The LogCluster to which this object belongs, in the same namespace."""

    name: Name


class ClusterObject(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the kinds that belong to a LogCluster. Each kind adds its own `spec`."""

    metadata: ObjectMeta
    spec: Any

    @property
    def key(self) -> tuple[str, str]:
        """Return the object's (namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def cluster_key(self) -> tuple[str, str]:
        """Return the (namespace, name) of the referenced LogCluster."""
        ref: ClusterRef | LocalClusterRef = self.spec.cluster_ref
        namespace = ref.namespace if isinstance(ref, ClusterRef) else None
        return namespace or self.metadata.namespace, ref.name


ResourceQuantity = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        # As Kubernetes' own: signs, fractions, exponents and all its suffixes.
        pattern=(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
            r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
        ),
    ),
]


class ResourceRequirements(Api, frozen=True, kw_only=True):
    """Requests and limits of a container, as in Kubernetes."""

    requests: Annotated[dict[Short, int | ResourceQuantity], Meta(max_length=16)] | None = None
    limits: Annotated[dict[Short, int | ResourceQuantity], Meta(max_length=16)] | None = None


UncleanRecovery = Literal["Manual", "Balanced", "Proactive"]


ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition with all fields of `metav1.Condition`."""

    type: Annotated[str, Meta(max_length=316)]
    status: ConditionStatus
    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    message: Sentence
    observed_generation: Annotated[int, Meta(ge=0)] = 0
    last_transition_time: Time = ""


Conditions = Annotated[
    tuple[Condition, ...],
    Meta(
        max_length=16,
        extra_json_schema={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]
