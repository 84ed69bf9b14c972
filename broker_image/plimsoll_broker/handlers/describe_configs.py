"""DescribeConfigs: a topic's or a broker's configs, each with the source of its value.

Groups have none. CreateTopics uses `topic_configs` below for the configs of a new topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from typing import Any

from plimsoll_broker.handlers.cluster_view import ClusterView
from plimsoll_broker.handlers.config_types import DEFAULT_FACTOR, NUM_PARTITIONS, type_of
from plimsoll_broker.handlers.effective_values import SHOWN_NAMES, TOPICS_ALONE
from plimsoll_broker.handlers.large_messages import is_short
from plimsoll_broker.server.dispatch import Handler, RequestContext
from plimsoll_core.cluster.cluster_configs import OWN_KEYS
from plimsoll_core.cluster.config_keys import ConfigKey
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.topic_configs import (
    KEYS,
    MIN_ISR,
    UNCLEAN_ENABLE,
    UNCLEAN_RECOVERY,
)
from plimsoll_core.cluster.topic_names import check_form
from plimsoll_core.errors import Code
from plimsoll_core.messages.broker_figures import TopicDefaults
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_request, encode_response

_TOPIC = 2
_BROKER = 4
_GROUP = 32

_SOURCE_TOPIC = 1
_SOURCE_DYNAMIC_DEFAULT = 3
"""The source of configs that hold for all brokers."""
_SOURCE_STATIC_BROKER = 4
_SOURCE_DEFAULT = 5

_MIN_ISR_DEFAULT = "1"
"""Kafka's default."""

RESOURCES_AT_ONCE = 20
CONFIGS_MAX = 50_000
"""Configs in one reply, of all resources together: some two thousand topics with all keys."""


def describe_configs(view: ClusterView) -> Handler:
    def handle(context: RequestContext) -> bytes | Awaitable[bytes]:
        version = context.api_version
        if not is_short(context):
            return view.aside.do(partial(_decoded, view, view.image, version, context.body))
        request = decode_request(ApiKey.DESCRIBE_CONFIGS, version, context.body)
        answer = partial(_answer, view, view.image, version, request)
        short = len(request.resources) <= RESOURCES_AT_ONCE
        return answer() if short else view.aside.do(answer)

    return handle


def _decoded(view: ClusterView, image: ClusterImage, version: int, body: memoryview) -> bytes:
    request = decode_request(ApiKey.DESCRIBE_CONFIGS, version, body)
    return _answer(view, image, version, request)


def _answer(view: ClusterView, image: ClusterImage, version: int, request: Any) -> bytes:
    results = _Results(view, image, request)
    return encode_response(ApiKey.DESCRIBE_CONFIGS, version, {"results": results})


class _Results:
    """One result for each distinct resource. Results are made while they are encoded, so that at
    most one of them is in memory."""

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
    message = f"The answer has {CONFIGS_MAX} configs already; ask for fewer resources at a time."
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
        message = f"A broker is named by its id, a whole number, not {name[:100]!r}."
        return Code.INVALID_REQUEST, message, []
    if kind == _BROKER:
        message = f"This is broker {view.broker_id}; ask broker {name} itself."
        return Code.INVALID_REQUEST, message, []
    if kind == _GROUP:
        # As Kafka answers for a group without configs.
        unnamed = None if name else "A group is named; there are no defaults of groups."
        return Code.INVALID_REQUEST if unnamed else Code.NONE, unnamed, []
    return Code.INVALID_REQUEST, f"Resources of type {kind} have no configs here.", []


def topic_configs(
    configs: Mapping[str, str],
    min_isr: int,
    broker_configs: Mapping[str, str],
    declared: bool = False,
) -> list[dict[str, Any]]:
    """Return every config of a topic: its own value, else the broker's, else the default. The min
    ISR is a topic's own if its client stated it or an object `declared` it; otherwise it is the
    cluster's, reported as in Kafka 4.1, whose controller sets it for all brokers."""
    entries = [_topic_entry(key, configs, broker_configs) for key in KEYS]
    source = _SOURCE_TOPIC if declared or MIN_ISR in configs else _SOURCE_DYNAMIC_DEFAULT
    synonyms = [
        {"name": MIN_ISR, "value": str(min_isr), "source": source},
        {"name": MIN_ISR, "value": _MIN_ISR_DEFAULT, "source": _SOURCE_DEFAULT},
    ]
    entries.append(_entry(MIN_ISR, synonyms, "How many in-sync replicas a commit needs."))
    entries += [_older_name(entry) for entry in entries if entry["name"] == UNCLEAN_RECOVERY]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _older_name(strategy: dict[str, Any]) -> dict[str, Any]:
    """Return the config by Kafka's older name, for clients that compare requested with returned
    keys."""
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
    """Return the process's own configs, their defaults, and those that topics fall back to."""
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
    NUM_PARTITIONS: "Partitions of a topic whose client states none.",
    DEFAULT_FACTOR: "Replicas of a topic whose client states none.",
    MIN_ISR: "How many in-sync replicas a commit needs in a topic whose client does not say.",
}


def _of_new_topics(defaults: TopicDefaults | None) -> dict[str, str]:
    """Return the defaults of new topics, which the LogCluster states and the controller applies."""
    if defaults is None:
        return {}
    return {
        NUM_PARTITIONS: str(defaults.partitions),
        DEFAULT_FACTOR: str(defaults.replication_factor),
        MIN_ISR: str(defaults.min_isr),
    }


def _entry(name: str, synonyms: list[dict[str, Any]], doc: str | None) -> dict[str, Any]:
    """Return one entry; the first synonym is the effective value."""
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
