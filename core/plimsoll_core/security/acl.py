"""ACLs as values: their fields in Kafka's names and numbers, filters, and the check of a new ACL.

Parts of records and of images; `acl_index` decides with them. Source: KIP-11, KIP-290;
`AclBinding`, `ResourcePattern` and `AclControlManager.validateNewAcl` of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type Cluster."""
WILDCARD = "*"
"""As a resource name it stands for every resource of the type, as a host for every host."""
EVERYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
NAME_BYTES_MAX = 1024
"""The most bytes, in UTF-8, of the name of a resource or a principal in an ACL."""
TOPIC_BYTES_MAX = 249
"""The most bytes of a topic's name in an ACL, since no topic has a longer name."""
HOST_BYTES_MAX = 64
"""The most bytes of a host in an ACL: an address, possibly with an interface's name."""


class AclOperation(Enum):
    """The operations of ACLs, by Kafka's names."""

    # Each request looks for its decision by it; Enum's own is computed in Python.
    __hash__ = object.__hash__

    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"
    TWO_PHASE_COMMIT = "TwoPhaseCommit"


class ResourceType(Enum):
    """The resource types of ACLs, by Kafka's names."""

    # Each request looks for its decision by it; Enum's own is computed in Python.
    __hash__ = object.__hash__

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"
    USER = "User"


class Pattern(Enum):
    """How an ACL's resource name is compared: equal, or as a prefix."""

    LITERAL = "Literal"
    PREFIXED = "Prefixed"


class AclPermission(Enum):
    DENY = "Deny"
    ALLOW = "Allow"


OPERATION_NUMBERS = {operation: number for number, operation in enumerate(AclOperation, start=2)}
OPERATION_BITS = {operation: 1 << number for operation, number in OPERATION_NUMBERS.items()}
"""The bit of each operation in a set of operations: bit n stands for the operation with Kafka's
number n, as in an answer's "authorized operations"."""
RESOURCE_NUMBERS = {kind: number for number, kind in enumerate(ResourceType, start=2)}
PATTERN_NUMBERS = {Pattern.LITERAL: 3, Pattern.PREFIXED: 4}
PERMISSION_NUMBERS = {AclPermission.DENY: 2, AclPermission.ALLOW: 3}
_ON_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
TOLD_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_ON_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        *_ON_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_ON_CONFIGS,
    ),
}
"""The operations that a client may ask about (KIP-430; Kafka's `AclEntry`)."""
TOLD_BITS: Mapping[ResourceType, int] = {
    kind: sum(OPERATION_BITS[operation] for operation in told)
    for kind, told in TOLD_OPERATIONS.items()
}
"""The same as sets of operations."""


ANY_NUMBER = 1
"""Kafka's number that matches everything of its kind in a filter."""
MATCH_NUMBER = 2
"""Kafka's pattern number of a filter that matches every ACL which applies to a resource of that
name."""


class Acl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ACL. Two with the same fields are the same ACL."""

    resource: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL
    principal: str
    host: str = WILDCARD
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW

    @property
    def order(self) -> tuple[str, ...]:
        """Return the sort key by which committed ACLs are stored."""
        kind, pattern = self.resource.value, self.pattern.value
        what = (self.operation.value, self.permission.value)
        return (kind, self.name, pattern, self.principal, self.host, *what)

    def __str__(self) -> str:
        prefixed = "*" if self.pattern is Pattern.PREFIXED else ""
        return (
            f"{self.permission.value} {self.principal} from {self.host}"
            f" {self.operation.value} on {self.resource.value} {self.name}{prefixed}"
        )


def malformed(acl: Acl) -> str | None:
    """Return a sentence that says why an ACL must not be created, or None if it may be."""
    kind, separator, user = acl.principal.partition(":")
    if text := _too_long(acl):
        return text
    if not acl.name:
        return "The resource name of the ACL is empty."
    if not (kind and separator and user):
        return "The principal of an ACL must be a type and a name, such as User:alice."
    if acl.resource is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return (
            f"An ACL on the cluster must name the resource {CLUSTER_NAME}, the only one of type "
            "Cluster."
        )
    if not acl.host:
        return "The host of the ACL is empty; use * for every host."
    return None


def _too_long(acl: Acl) -> str | None:
    most = TOPIC_BYTES_MAX if acl.resource is ResourceType.TOPIC else NAME_BYTES_MAX
    if _size(acl.name) > most:
        return f"The name of a {acl.resource.value} in an ACL may have at most {most} bytes."
    if _size(acl.principal) > NAME_BYTES_MAX:
        return f"A principal in an ACL may have at most {NAME_BYTES_MAX} bytes."
    if _size(acl.host) > HOST_BYTES_MAX:
        return f"The host of an ACL must be an address of at most {HOST_BYTES_MAX} bytes, or *."
    return None


def _size(text: str) -> int:
    """Return the number of bytes in UTF-8. For text that cannot be encoded, return one more than
    the bound."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return NAME_BYTES_MAX + 1


class AclFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects ACLs. A field that is None matches everything. `matches_name`: True for Kafka's
    pattern type Match, which selects every ACL that applies to a resource called `name`, also by
    prefix or wildcard."""

    resource: ResourceType | None = None
    name: str | None = None
    pattern: Pattern | None = None
    matches_name: bool = False
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (None, acl.resource)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern is not None and self.pattern is not acl.pattern:
            return False
        if self.name is None or self.name == acl.name:
            return True
        if not self.matches_name:
            return False
        if acl.pattern is Pattern.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)
