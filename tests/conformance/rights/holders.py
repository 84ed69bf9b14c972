"""Users of the matrix by what they may do, as rules in the form that CreateAcls takes.

Every operation that Kafka knows for a type of resource stands alone once, and is denied once to who
may do all else; prefixes, wildcards, other hosts, rules of everybody, and pairs that requests need
together, follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plimsoll_core.security.acl import (
    OPERATION_NUMBERS,
    PATTERN_NUMBERS,
    PERMISSION_NUMBERS,
    RESOURCE_NUMBERS,
    AclOperation,
    AclPermission,
    Pattern,
    ResourceType,
)

Op, Type = AclOperation, ResourceType
NAMES = {
    Type.TOPIC: "orders",
    Type.GROUP: "mine",
    Type.CLUSTER: "kafka-cluster",
    Type.TRANSACTIONAL_ID: "payments",
}
"""What requests name."""
_ON_CONFIGS = (Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    Type.TOPIC: (
        *(Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE),
        *_ON_CONFIGS,
    ),
    Type.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE, *_ON_CONFIGS),
    Type.CLUSTER: (
        *(Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.IDEMPOTENT_WRITE),
        *_ON_CONFIGS,
    ),
    Type.TRANSACTIONAL_ID: (Op.DESCRIBE, Op.WRITE, Op.TWO_PHASE_COMMIT),
}
"""Delete of the cluster is none that a client is told of, and is asked for nevertheless."""

_Rule = dict[str, Any]


def _rule(
    kind: ResourceType,
    operation: AclOperation,
    name: str = "",
    *,
    pattern: Pattern = Pattern.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
) -> _Rule:
    return {
        "resource_type": RESOURCE_NUMBERS[kind],
        "resource_name": name or NAMES[kind],
        "resource_pattern_type": PATTERN_NUMBERS[pattern],
        "host": host,
        "operation": OPERATION_NUMBERS[operation],
        "permission_type": PERMISSION_NUMBERS[permission],
    }


def _every() -> list[_Rule]:
    """All on everything."""
    return [_rule(kind, Op.ALL, "" if kind is Type.CLUSTER else "*") for kind in NAMES]


def _but(kind: ResourceType, operation: AclOperation, name: str = "", **more: Any) -> list[_Rule]:
    return [*_every(), _rule(kind, operation, name, permission=AclPermission.DENY, **more)]


def _both(*pairs: tuple[AclOperation, ResourceType]) -> list[_Rule]:
    return [_rule(kind, operation) for operation, kind in pairs]


def _made() -> Iterable[tuple[str, list[_Rule]]]:
    yield "nothing", []
    yield "everything", _every()
    for kind, operations in OPERATIONS.items():
        yield f"All {kind.value}", [_rule(kind, Op.ALL)]
        for operation in operations:
            yield f"{operation.value} {kind.value}", [_rule(kind, operation)]
            yield f"all but {operation.value} {kind.value}", _but(kind, operation)
        yield f"all but All {kind.value}", _but(kind, Op.ALL)
    topic, group = Type.TOPIC, Type.GROUP
    prefixed = Pattern.PREFIXED
    for operation in (Op.READ, Op.DESCRIBE, Op.DELETE, Op.ALL):
        rule = _rule(topic, operation, "ord", pattern=prefixed)
        yield f"{operation.value} Topic ord…", [rule]
        yield f"{operation.value} Topic *", [_rule(topic, operation, "*")]
    yield "Read Group *", [_rule(group, Op.READ, "*")]
    yield "Describe Group mi…", [_rule(group, Op.DESCRIBE, "mi", pattern=prefixed)]
    yield "all but Read Topic ord…", _but(topic, Op.READ, "ord", pattern=prefixed)
    yield "all but Describe Topic *", _but(topic, Op.DESCRIBE, "*")
    yield "all but All Topic * from elsewhere", _but(topic, Op.ALL, "*", host="10.1.2.3")
    yield "Read Topic from elsewhere", [_rule(topic, Op.READ, host="10.1.2.3")]
    yield "Read Topic from here", [_rule(topic, Op.READ, host="127.0.0.1")]
    yield "Read Group and Topic", _both((Op.READ, group), (Op.READ, topic))
    yield "Describe Group and Topic", _both((Op.DESCRIBE, group), (Op.DESCRIBE, topic))
    yield "Delete Group, Read Topic", _both((Op.DELETE, group), (Op.READ, topic))
    yield "Describe and Delete Topic", _both((Op.DESCRIBE, topic), (Op.DELETE, topic))
    yield "Describe and Create Topic", _both((Op.DESCRIBE, topic), (Op.CREATE, topic))
    shown = _both((Op.CREATE, topic), (Op.DESCRIBE_CONFIGS, topic))
    yield "Create and DescribeConfigs Topic", shown
    # With a transaction of one's own on a topic of one's own.
    writes = _both((Op.WRITE, Type.TRANSACTIONAL_ID), (Op.WRITE, topic))
    yield "Write TransactionalId and Topic", writes


HOLDERS: Mapping[str, list[_Rule]] = dict(_made())
"""By a name that says what they may."""


def user_of(holder: str) -> str:
    """As whom they log in."""
    return f"holder-{list(HOLDERS).index(holder)}"


def rules() -> list[_Rule]:
    """All of them, for CreateAcls."""
    return [
        {**rule, "principal": f"User:{user_of(holder)}"}
        for holder, held in HOLDERS.items()
        for rule in held
    ]
