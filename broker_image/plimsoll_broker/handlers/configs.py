"""The APIs of configs.

`type_of`: the type that DescribeConfigs reports for each config (KIP-569), as in Kafka 4.1. Tools
validate values by it before they send them.

`value_without_topic`: the value of a topic config that the topic does not set: the broker's own,
else Kafka's default.

`DescribeConfigs`: a topic's or a broker's configs, each with the source of its value. Groups have
none. CreateTopics uses `topic_configs` for the configs of a new topic.

AlterConfigs and IncrementalAlterConfigs: checked for form here, decided by the controller. They are
answered once this broker sees the change. A broker's configs belong to its LogCluster, and groups
have none: a request to set one is refused; a request to remove one that was never set here
succeeds. Source: KIP-133, KIP-339; Kafka's ConfigAdminManager.

`ListConfigResources`: the topics and brokers with configs to describe. Version 0 asks for client
metrics subscriptions; there are none. Source: KIP-1142.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.forward import ask_for_changes, behalf_of
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, is_short
from plimsoll_broker.handlers.mutation_quota import (
    OVER_QUOTA,
    OVER_QUOTA_TEXT,
    charge_made,
    may_change,
)
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.cluster_configs import BROKER_DEFAULTS, OWN_KEYS
from plimsoll_core.cluster.config_keys import ConfigKey
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.topic_configs import (
    BY_NAME,
    KEYS,
    LISTS,
    MIN_ISR,
    UNCLEAN_ENABLE,
    UNCLEAN_RECOVERY,
    too_long,
)
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.errors import Code, Reason, Refusal
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_core.messages.topics import (
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
    TopicChanged,
    TopicConfigChanges,
)
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import encode_response

NUM_PARTITIONS, DEFAULT_FACTOR = "num.partitions", "default.replication.factor"


class ConfigType(IntEnum):
    """The types of configs, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_NAMES: dict[ConfigType, tuple[str, ...]] = {
    ConfigType.INT: (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "group.initial.rebalance.delay.ms",
        "group.lag.series.max",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "index.interval.bytes",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.segment.bytes",
        "max.connections",
        "max.connections.per.ip",
        "max.message.bytes",
        "message.max.bytes",
        "metric.topic.series.max",
        MIN_ISR,
        DEFAULT_FACTOR,
        NUM_PARTITIONS,
        "num.replica.fetchers",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.retention.minutes",
        "offsets.topic.num.partitions",
        "offsets.topic.segment.bytes",
        "segment.bytes",
        "segment.index.bytes",
        "socket.request.max.bytes",
    ),
    ConfigType.SHORT: ("offsets.topic.replication.factor",),
    ConfigType.DOUBLE: (
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.min.cleanable.ratio",
        "min.cleanable.dirty.ratio",
    ),
    ConfigType.LIST: (*LISTS, "log.cleanup.policy"),
}
"""Configs with a type that their default does not show, by type. Every unlisted config with a
number as its default is a LONG."""

_TYPES = {name: type_ for type_, names in _NAMES.items() for name in names}


def type_of(name: str, default: str) -> ConfigType:
    """Return the type of the config `name`. If it is not listed in `_NAMES`, derive BOOLEAN, LONG
    or STRING from the text of its `default`."""
    if (found := _TYPES.get(name)) is not None:
        return found
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    return ConfigType.LONG if default.lstrip("-").isdecimal() else ConfigType.STRING


BROKER_NAMES = {topic_name: broker_name for broker_name, topic_name in BROKER_DEFAULTS.items()}
"""For each topic config, the name of the broker config that is its default."""
SHOWN_NAMES = BROKER_NAMES | {
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "preallocate": "log.preallocate",
    "segment.jitter.ms": "log.roll.jitter.ms",
}
"""The broker configs to show in answers, by topic config: `BROKER_NAMES` and those that exist only
in Kafka."""
TOPICS_ALONE = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Topic configs that have no broker config as their default."""


def value_without_topic(name: str, broker_configs: Mapping[str, str]) -> str:
    """Return the value that a topic config has if the topic does not set it. Return an empty string
    for an unknown name."""
    key = BY_NAME.get(name)
    default = "" if key is None else key.default
    return broker_configs.get(BROKER_NAMES.get(name, name), default)


_TOPIC = 2
_BROKER = 4
_OTHER_TYPES = {8: "BROKER_LOGGER", 16: "CLIENT_METRICS"}
_GROUP = 32

_SOURCE_TOPIC = 1
_SOURCE_DYNAMIC_DEFAULT = 3
"""Kafka's number for the source of a config that is set for all brokers together."""
_SOURCE_STATIC_BROKER = 4
_SOURCE_DEFAULT = 5

_MIN_ISR_DEFAULT = "1"
"""Kafka's default of min.insync.replicas."""

RESOURCES_AT_ONCE = 20
CONFIGS_MAX = 50_000
"""The most configs in one reply, of all resources together: some two thousand topics with all
configs."""


def describe_configs(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        version = context.api_version
        if not is_short(context):
            return view.aside.do(partial(_decoded, view, view.image, context))
        request = context.decoded()
        answer = partial(_answer, view, view.image, version, request)
        short = len(request.resources) <= RESOURCES_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _decoded(view: ClusterView, image: ClusterImage, context: RequestContext) -> bytes:
    return _answer(view, image, context.api_version, context.decoded())


def _answer(view: ClusterView, image: ClusterImage, version: int, request: Any) -> bytes:
    results = _Results(view, image, request)
    return encode_response(ApiKey.DESCRIBE_CONFIGS, version, {"results": results})


class _Results:
    """The results of a DescribeConfigs request, one for each distinct resource. A result is made
    when the encoder asks for it, so that at most one of them is in memory."""

    def __init__(self, view: ClusterView, image: ClusterImage, request: Any) -> None:
        self._view = view
        self._image = image
        self._request = request
        named = {(each.resource_type, each.resource_name): each for each in request.resources}
        self._resources = list(named.values())

    def __len__(self) -> int:
        return len(self._resources)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with_docs = getattr(self._request, "include_documentation", False)
        told = 0
        for resource in self._resources:
            if told >= CONFIGS_MAX:
                yield _too_many(resource)
                continue
            result = _result(self._view, self._image, resource, with_docs)
            told += len(result["configs"])
            if not self._request.include_synonyms:
                for config in result["configs"]:
                    config["synonyms"] = []
            yield result


def _too_many(resource: Any) -> dict[str, Any]:
    message = (
        f"The request asks for more than {CONFIGS_MAX} configs; ask for fewer resources at a time."
    )
    return {
        "error_code": Code.INVALID_REQUEST,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [],
    }


def _result(
    view: ClusterView, image: ClusterImage, resource: Any, with_docs: bool
) -> dict[str, Any]:
    name, kind = resource.resource_name, resource.resource_type
    code, message, configs = _configs(view, image, kind, name)
    keys = resource.configuration_keys
    wanted = frozenset(keys or ())
    chosen = [config for config in configs if not wanted or config["name"] in wanted]
    if not with_docs:
        for config in chosen:
            config["documentation"] = None
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": kind,
        "resource_name": name,
        "configs": chosen,
    }


def _configs(
    view: ClusterView, image: ClusterImage, kind: int, name: str
) -> tuple[int, str | None, list[dict[str, Any]]]:
    if kind == _TOPIC:
        topic_id = image.topic_ids.get(name)
        if topic_id is None:
            if illegal := check_form(name):
                return illegal.reason.code, illegal.message, []
            return Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.", []
        topic = image.topics[topic_id]
        own = topic.object is not None
        return Code.NONE, None, topic_configs(topic.configs, topic.min_isr, view.configs, own)
    if kind == _BROKER and name in ("", str(view.broker_id)):
        return Code.NONE, None, _broker_configs(view) if name else []
    if kind == _BROKER and not (name.isascii() and name.isdecimal()):
        message = (
            f"The request names a broker {name[:100]!r}; a broker's name is its id, a whole number."
        )
        return Code.INVALID_REQUEST, message, []
    if kind == _BROKER:
        message = (
            f"The request asks broker {view.broker_id} for the configs of broker {name}; ask "
            f"broker {name} itself."
        )
        return Code.INVALID_REQUEST, message, []
    if kind == _GROUP:
        # As Kafka answers for a group without configs.
        unnamed = (
            None
            if name
            else (
                "The request names no group, and there are no default configs of groups; name a "
                "group."
            )
        )
        return Code.INVALID_REQUEST if unnamed else Code.NONE, unnamed, []
    return Code.INVALID_REQUEST, _no_configs(kind), []


def _no_configs(kind: int) -> str:
    name = _OTHER_TYPES.get(kind, "unknown")
    return (
        f"Resources of type {kind} ({name}) have no configs in this cluster; topics, brokers and "
        "groups have some."
    )


def topic_configs(
    configs: Mapping[str, str],
    min_isr: int,
    broker_configs: Mapping[str, str],
    declared: bool = False,
) -> list[dict[str, Any]]:
    """Return the DescribeConfigs entries of all configs of a topic. A value is the topic's own,
    else the broker's, else the default. The min ISR counts as the topic's own if its client set it
    or a Topic object declares it (`declared`); otherwise it is reported as the cluster's, as in
    Kafka 4.1, where the controller sets it for all brokers."""
    entries = [_topic_entry(key, configs, broker_configs) for key in KEYS]
    source = _SOURCE_TOPIC if declared or MIN_ISR in configs else _SOURCE_DYNAMIC_DEFAULT
    synonyms = [
        {"name": MIN_ISR, "value": str(min_isr), "source": source},
        {"name": MIN_ISR, "value": _MIN_ISR_DEFAULT, "source": _SOURCE_DEFAULT},
    ]
    entries.append(_entry(MIN_ISR, synonyms, "Least number of in-sync replicas for acks=all."))
    entries += [_older_name(entry) for entry in entries if entry["name"] == UNCLEAN_RECOVERY]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _older_name(strategy: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the unclean recovery strategy under Kafka's older name, for clients that
    compare requested with returned configs."""
    synonyms = [
        {
            "name": UNCLEAN_ENABLE,
            "value": str(each["value"] == "Proactive").lower(),
            "source": each["source"],
        }
        for each in strategy["synonyms"]
    ]
    return _entry(UNCLEAN_ENABLE, synonyms, f"true: {UNCLEAN_RECOVERY} is Proactive.")


def _topic_entry(
    key: ConfigKey, configs: Mapping[str, str], broker_configs: Mapping[str, str]
) -> dict[str, Any]:
    broker_name = SHOWN_NAMES.get(key.name, key.name)
    synonyms = [{"name": broker_name, "value": key.default, "source": _SOURCE_DEFAULT}]
    if broker_name in broker_configs:
        value = broker_configs[broker_name]
        synonyms.insert(0, {"name": broker_name, "value": value, "source": _SOURCE_STATIC_BROKER})
    if key.name in configs:
        own = {"name": key.name, "value": configs[key.name], "source": _SOURCE_TOPIC}
        synonyms.insert(0, own)
    entry = _entry(key.name, synonyms, key.doc)
    if key.name in TOPICS_ALONE:
        entry["synonyms"] = synonyms[:-1]
    return entry


def _broker_configs(view: ClusterView) -> list[dict[str, Any]]:
    """Return the entries of all configs of this broker: its own, their defaults, and those that
    topics fall back to."""
    configs = {**view.configs, **_of_new_topics(view.topic_defaults())}
    shown = {SHOWN_NAMES.get(key.name, key.name): key for key in KEYS}
    documented = {**OWN_KEYS, **{n: key for n, key in shown.items() if n not in TOPICS_ALONE}}
    entries = []
    for name in sorted({*documented, *configs}):
        key = documented.get(name)
        synonyms = []
        if name in configs:
            source = _SOURCE_STATIC_BROKER
            synonyms.append({"name": name, "value": configs[name], "source": source})
        if key is not None:
            synonyms.append({"name": name, "value": key.default, "source": _SOURCE_DEFAULT})
        doc = _DOCS_OF_NEW_TOPICS.get(name) if key is None else key.doc
        entry = _entry(name, synonyms, doc)
        entry["read_only"] = True  # a broker's configs change with the LogCluster, by a restart
        entries.append(entry)
    return entries


_DOCS_OF_NEW_TOPICS = {
    NUM_PARTITIONS: "Number of partitions of a new topic if the client does not state one.",
    DEFAULT_FACTOR: "Replication factor of a new topic if the client does not state one.",
    MIN_ISR: "Least number of in-sync replicas for acks=all in a new topic, if the client does "
    "not state one.",
}


def _of_new_topics(defaults: TopicDefaults | None) -> dict[str, str]:
    """Return the cluster's defaults for new topics (partitions, replication factor, min ISR) as
    broker configs by Kafka's names; an empty dictionary if `defaults` is None, that is, no
    controller has sent them yet. The LogCluster states these defaults and the controller applies
    them."""
    if defaults is None:
        return {}
    return {
        NUM_PARTITIONS: str(defaults.partitions),
        DEFAULT_FACTOR: str(defaults.replication_factor),
        MIN_ISR: str(defaults.min_isr),
    }


def _entry(name: str, synonyms: list[dict[str, Any]], doc: str | None) -> dict[str, Any]:
    """Return the DescribeConfigs entry of a config. `synonyms`: its values with their sources, from
    the effective one to the default, at least one; the last one determines the type."""
    return {
        "name": name,
        "value": synonyms[0]["value"],
        "read_only": False,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": type_of(name, synonyms[-1]["value"]),
        "documentation": doc,
    }


TOPIC, BROKER, GROUP = 2, 4, 32
_OPERATIONS: dict[int, ConfigOperation] = {0: "Set", 1: "Delete", 2: "Append", 3: "Subtract"}
_TIMEOUT_MS = 30_000
"""The time in ms within which the controller must answer. AlterConfigs requests have no timeout of
their own."""

_Resource = tuple[int, str]


class _AskedChanges(NamedTuple):
    """A request's changes, after the checks of this broker. `refused`: each resource with its
    refusal, in the client's order; None if it is not refused. `topics`: the changes that the
    controller decides."""

    refused: dict[_Resource, Refusal | None]
    topics: tuple[TopicConfigChanges, ...]


def alter_configs(view: ClusterView) -> Handler:
    """Return the handler of AlterConfigs and IncrementalAlterConfigs."""

    async def handle(context: RequestContext) -> bytes:
        key, version, aside = context.api_key, context.api_version, view.aside
        request, many = await aside.received(context)
        replace = key == ApiKey.ALTER_CONFIGS
        asked = await aside.some(many, partial(_asked, view, request, replace))
        told: dict[str, TopicChanged] = {}
        names = tuple(one.topic for one in asked.topics)
        if names and may_change(context, len(names)):
            command = AlterTopicConfigs(
                topics=asked.topics,
                validate_only=request.validate_only,
                behalf=behalf_of(view, context),
            )
            before = view.image
            try:
                told = await ask_for_changes(view, command, names, _TIMEOUT_MS)
            finally:
                charge_made(context, _changed(before, view.image, names, told))
        elif names:
            over = partial(TopicChanged, code=OVER_QUOTA, message=OVER_QUOTA_TEXT)
            told = {name: over(topic=name) for name in names}
            charge_made(context, 0)
        return await aside.some(many, partial(_reply, key, version, asked, told))

    return handle


def _changed(
    before: ClusterImage,
    after: ClusterImage,
    names: tuple[str, ...],
    told: dict[str, TopicChanged],
) -> int | None:
    """Return what changes of topics' configs take of the quota: 1 for each topic, and 1 for each
    partition of those with another min ISR, which its partitions follow. Return None if no
    controller answered in time. `before`, `after`: the images around the change."""
    if any(name not in told or told[name].code == Code.REQUEST_TIMED_OUT for name in names):
        return None
    changed = 0
    for name in names:
        topic_id = None if told[name].code else after.topic_ids.get(name)
        if topic_id is not None and topic_id in after.topics:
            old, new = before.topics.get(topic_id), after.topics[topic_id]
            spread = old is not None and old.min_isr != new.min_isr
            changed += 1 + (new.partitions if spread else 0)
    return changed


def _asked(view: ClusterView, request: Any, replace: bool) -> _AskedChanges:
    refused: dict[_Resource, Refusal | None] = {}
    topics: list[TopicConfigChanges] = []
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for each in request.resources:
        resource = (int(each.resource_type), each.resource_name)
        if resource in refused:
            continue
        if times[resource] > 1:
            refused[resource] = _invalid(
                "The request names this resource more than once; name each resource once."
            )
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
            return _invalid(
                f"The operation {number} on a config is unknown; use 0 (SET), 1 (DELETE), "
                "2 (APPEND) or 3 (SUBTRACT)."
            )
        if refusal := too_long(each.name, each.value):
            return refusal
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
    """Return the refusal of `changes` to a resource other than a topic: brokers and groups cannot
    be changed by clients. `changes`: a refusal, if they are malformed, is returned as it is.
    `replace`: True if they replace all configs of the resource (AlterConfigs). Return None, so that
    the request succeeds, if there are no changes or only removals."""
    kind, name = resource
    if isinstance(changes, Refusal):
        return changes
    if kind not in (BROKER, GROUP):
        return _invalid(_no_configs(kind))
    if kind == GROUP and not name:
        return _invalid(
            "The request names no group, and there are no default configs of groups; name a group."
        )
    if kind == BROKER and name and not (name.isascii() and name.isdecimal()):
        return _invalid(
            f"The request names a broker {name[:100]!r}; a broker's name is its id, a whole number."
        )
    if not replace and all(one.operation in ("Delete", "Subtract") for one in changes):
        return None  # neither has a config that a request could remove
    if not changes:
        return None
    if kind == GROUP:
        message = (
            f"Consumer groups have no config {changes[0].name[:100]} in this cluster: each "
            "member sets its own."
        )
        return Refusal(reason=Reason.InvalidConfig, message=message)
    cluster = view.image.name or "this cluster"
    return Refusal(
        reason=Reason.PolicyViolation,
        message=(
            "Clients cannot change the configs of brokers. Set them in spec.config of the object"
            f" LogCluster {cluster}; its spec.movement.bytesPerSecond sets the speed of moves."
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


TOPIC, BROKER = 2, 4
_WITHOUT_ANY = frozenset({8, 16, 32})
"""Kafka's numbers for types of resources of which this cluster has none: loggers of brokers, client
metrics, groups."""
_TYPES_VERSION = 1


def list_config_resources(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        image = view.image
        answer = partial(_resources_answer, image, context)
        short = is_short(context) and len(image.topics) <= THINGS_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _resources_answer(image: ClusterImage, context: RequestContext) -> bytes:
    request, version = context.decoded(), context.api_version
    values: dict[str, Any] = {"error_code": Code.NONE, "config_resources": []}
    if version >= _TYPES_VERSION:
        wanted = frozenset(request.resource_types)
        if wanted - {TOPIC, BROKER} - _WITHOUT_ANY:
            values["error_code"] = Code.UNSUPPORTED_VERSION
        else:
            values["config_resources"] = list(_resources(image, wanted or {TOPIC, BROKER}))
    return encode_response(ApiKey.LIST_CONFIG_RESOURCES, version, values)


def _resources(image: ClusterImage, wanted: frozenset[int] | set[int]) -> Iterator[dict[str, Any]]:
    if TOPIC in wanted:
        for name in sorted(image.topic_ids):
            yield {"resource_name": name, "resource_type": TOPIC}
    if BROKER in wanted:
        for broker_id, broker in sorted(image.brokers.items()):
            if not broker.fenced:
                yield {"resource_name": str(broker_id), "resource_type": BROKER}
