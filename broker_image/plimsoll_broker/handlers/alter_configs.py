"""AlterConfigs and IncrementalAlterConfigs: checked for form here, decided by the controller.

They are answered once this broker sees the change. A broker's configs belong to its LogCluster, and
groups have none: a request to set one is refused; a request to remove one that was never set here
succeeds. Source: KIP-133, KIP-339; Kafka's ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.effective_values import value_without_topic
from plimsoll_broker.handlers.forward import ask_for_changes, behalf_of
from plimsoll_broker.handlers.large_messages import things
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.topic_configs import LISTS
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.topic_changes import (
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
    TopicChanged,
    TopicConfigChanges,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

TOPIC, BROKER, GROUP = 2, 4, 32
_OPERATIONS: dict[int, ConfigOperation] = {0: "Set", 1: "Delete", 2: "Append", 3: "Subtract"}
_TIMEOUT_MS = 30_000
"""These requests carry no timeout of their own."""

_Resource = tuple[int, str]


class _AskedChanges(NamedTuple):
    """`refused`: by resource, in the client's order; None: not refused so far."""

    refused: dict[_Resource, Refusal | None]
    topics: tuple[TopicConfigChanges, ...]


def alter_configs(view: ClusterView) -> Handler:
    """Return the handler of both APIs."""

    async def handle(context: RequestContext) -> bytes:
        key, version, aside = context.api_key, context.api_version, view.aside
        request = await aside.decoded(context)
        many = things(context)
        context.body.release()
        replace = key == ApiKey.ALTER_CONFIGS
        asked = await aside.some(many, partial(_asked, view, request, replace))
        told: dict[str, TopicChanged] = {}
        if asked.topics:
            command = AlterTopicConfigs(
                topics=asked.topics,
                validate_only=request.validate_only,
                behalf=behalf_of(view, context),
            )
            names = tuple(one.topic for one in asked.topics)
            told = await ask_for_changes(view, command, names, _TIMEOUT_MS)
        return await aside.some(many, partial(_reply, key, version, asked, told))

    return handle


def _asked(view: ClusterView, request: Any, replace: bool) -> _AskedChanges:
    refused: dict[_Resource, Refusal | None] = {}
    topics: list[TopicConfigChanges] = []
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for each in request.resources:
        resource = (int(each.resource_type), each.resource_name)
        if resource in refused:
            continue
        if times[resource] > 1:
            refused[resource] = _invalid("The request names this resource more than once.")
            continue
        changes = _changes(view, each)
        if isinstance(changes, Refusal) or resource[0] != TOPIC:
            refused[resource] = _not_a_topic(view, resource, changes, replace)
            continue
        refused[resource] = None
        topics.append(TopicConfigChanges(topic=resource[1], changes=changes, replace=replace))
    return _AskedChanges(refused, tuple(topics))


def _changes(view: ClusterView, resource: Any) -> tuple[ConfigChange, ...] | Refusal:
    changes = []
    for each in resource.configs:
        number = getattr(each, "config_operation", 0)
        operation = _OPERATIONS.get(number)
        if operation is None:
            return _invalid(f"There is no operation {number} on a config.")
        listed = operation in ("Append", "Subtract") and each.name in LISTS
        changes.append(
            ConfigChange(
                name=each.name,
                operation=operation,
                value=each.value,
                otherwise=value_without_topic(each.name, view.configs) if listed else "",
            )
        )
    return tuple(changes)


def _not_a_topic(
    view: ClusterView,
    resource: _Resource,
    changes: tuple[ConfigChange, ...] | Refusal,
    replace: bool,
) -> Refusal | None:
    """Return the refusal for a resource that is not a topic, or None if nothing needs to change."""
    kind, name = resource
    if isinstance(changes, Refusal):
        return changes
    if kind not in (BROKER, GROUP):
        return _invalid(f"Resources of type {kind} have no configs here.")
    if kind == GROUP and not name:
        return _invalid("A group is named; there are no defaults of groups.")
    if kind == BROKER and name and not (name.isascii() and name.isdecimal()):
        return _invalid(f"A broker is named by its id, a whole number, not {name[:100]!r}.")
    if not replace and all(one.operation in ("Delete", "Subtract") for one in changes):
        return None  # neither has a config that a request could remove
    if not changes:
        return None
    if kind == GROUP:
        message = f"Groups have no config {changes[0].name[:100]}: their members state their own."
        return Refusal(reason=Reason.InvalidConfig, message=message)
    cluster = view.image.name or "this cluster"
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            f"The configs of brokers are declared by the object LogCluster {cluster}; edit its"
            " spec.config (the speed of moves: spec.movement.bytesPerSecond)."
        ),
    )


def _invalid(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)


def _reply(key: ApiKey, version: int, asked: _AskedChanges, told: dict[str, TopicChanged]) -> bytes:
    responses = []
    for (kind, name), refusal in asked.refused.items():
        code, message = 0, ""
        if refusal is not None:
            code, message = refusal.reason.code, refusal.message
        elif kind == TOPIC:
            code, message = told[name].code, told[name].message
        responses.append(
            {
                "error_code": code,
                "error_message": message or None,
                "resource_type": kind,
                "resource_name": name,
            }
        )
    return encode_response(key, version, {"responses": responses})
