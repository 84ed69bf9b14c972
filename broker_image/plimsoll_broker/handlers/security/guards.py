"""Guards: each decides how one API's requests are refused, in part or as a whole, if a right is
missing.

`gate` assigns guards to APIs. Codes and order are Kafka's: `KafkaApis`, `ControllerApis`,
`ConfigHelper`, `AclApis` of 4.1.

A guard gets an `Asking`, one request of a client under authorization, and returns a `Guarded`, its
decision, which `gate` carries out. It passes a request on unchanged if all of it is allowed.
Otherwise it removes the items that are not allowed from the request, and adds refusals to the
reply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from plimsoll_broker.handlers.metadata import name_asked_for
from plimsoll_broker.handlers.producers import partition_told
from plimsoll_broker.handlers.transactions.listing import undescribed
from plimsoll_broker.security.authority import Rights
from plimsoll_broker.server.dispatch import Buffer, Change, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_wire.messages import decode_response, encode_request, encode_response

Values = dict[str, Any]

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """Return a value that the kio library has parsed, in the form that encoders take: dicts, lists,
    times as ms (durations, or since 1970), everything else unchanged."""
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MILLISECOND
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """A guard's decision about one request. If `told` is set, it is the whole reply, and the
    handler is not called. Otherwise the handler gets the request, with `body` in place of its body
    unless `body` is None, and `changes` are applied to the handler's reply."""

    told: bytes | None = None
    body: memoryview | None = None
    changes: tuple[Change, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Asking:
    """One request that a guard decides about. `value`: the request as the kio library parses it.
    `rights`: what the client may do. A guard must not change this object, since guards of long
    requests run in a thread."""

    context: RequestContext
    value: Any
    rights: Rights

    @property
    def version(self) -> int:
        return self.context.api_version

    def pass_on(self) -> Guarded:
        """Return the decision to pass the request on unchanged."""
        return Guarded()

    def pass_on_with(self, **changed: Any) -> Guarded:
        """Return the decision to pass the request on with other values of these fields."""
        return Guarded(body=memoryview(bytearray(self.encoded_with(**changed))))

    def encoded_with(self, **changed: Any) -> bytes:
        """Return the request's body, encoded with other values of these fields."""
        fields = (field.name for field in dataclasses.fields(self.value))
        left = {name: plain(getattr(self.value, name)) for name in fields if name not in changed}
        return encode_request(self.context.api_key, self.version, {**left, **changed})

    def tell(self, values: Values) -> Guarded:
        """Return the decision to send these values as the reply, without calling the handler."""
        return Guarded(told=encode_response(self.context.api_key, self.version, values))

    def change(self, verdict: Guarded, change: Change) -> Guarded:
        """Return `verdict` with one more change of the reply. The change applies both to a reply of
        the guard and to one of the handler."""
        if verdict.told is not None:
            return Guarded(told=changed(self.context, verdict.told, (change,)))
        return dataclasses.replace(verdict, changes=(*verdict.changes, change))


def changed(context: RequestContext, reply: Buffer, changes: Iterable[Change]) -> bytes:
    """Return a reply with these changes: it is decoded, changed and encoded again."""
    key, version = context.api_key, context.api_version
    values: Values = plain(decode_response(key, version, reply))
    for change in changes:
        change(values)
    return encode_response(key, version, values)


def added(field: str, entries: Iterable[Values]) -> Change:
    """Return a change that appends entries to the list `field` of a reply."""

    def change(values: Values) -> None:
        values[field] = [*(values[field] or ()), *entries]

    return change


Guard = Callable[[Asking], Guarded]
_Op = AclOperation
NOT_AUTHORIZED = "Authorization failed."
_NOBODY = {"node_id": -1, "host": "", "port": -1}
_GROUP, _TRANSACTION = 0, 1
_TOPIC_CONFIGS, _GROUP_CONFIGS = 2, 32
_IDS_VERSION = 6


def free(asking: Asking) -> Guarded:
    """Pass the request on: it needs no right, or its handler checks the rights."""
    return asking.pass_on()


def on_cluster(operation: AclOperation, refused: Callable[[Any], Values]) -> Guard:
    """Return a guard that requires a right on the cluster. `refused`: returns the reply's values
    for a client without the right, from the request."""

    def guard(asking: Asking) -> Guarded:
        if asking.rights.cluster(operation):
            return asking.pass_on()
        return asking.tell(refused(asking.value))

    return guard


# --- topics, each for itself ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EachTopic:
    """A guard that requires a right on each topic that a request names, and refuses each topic by
    itself.

    `asked`: the name of the field with the request's topics; `told`: the field with the reply's
    topics; `name`: the field of the topic's name. `refused`: returns the reply's entry of a denied
    topic, with Kafka's code. `on_all`: an operation on the cluster; the right to it suffices for
    all topics.
    """

    operation: AclOperation
    refused: Callable[[Any, int], Values]
    asked: str = "topics"
    told: str = "topics"
    name: str = "name"
    on_all: AclOperation | None = None

    def __call__(self, asking: Asking) -> Guarded:
        if self.on_all is not None and asking.rights.cluster_quietly(self.on_all):
            return asking.pass_on()
        may = asking.rights.topic
        topics = getattr(asking.value, self.asked)
        denied = [one for one in topics if not may(self.operation, getattr(one, self.name))]
        if not denied:
            return asking.pass_on()
        return left_out(asking, self, denied)


def left_out(asking: Asking, each: EachTopic, denied: list[Any]) -> Guarded:
    """Return the decision to pass the request on without the denied topics, and to append an error
    for each to the reply. If no topic is left, reply with the errors alone, without calling the
    handler."""
    code = Code.TOPIC_AUTHORIZATION_FAILED
    entries = [each.refused(one, code) for one in denied]
    gone = {id(one) for one in denied}
    left = [one for one in getattr(asking.value, each.asked) if id(one) not in gone]
    if not left:
        return asking.tell({each.told: entries})
    result = asking.pass_on_with(**{each.asked: [plain(one) for one in left]})
    return asking.change(result, added(each.told, entries))


def offsets(topic: Any, code: int) -> Values:
    partitions = [
        {
            "partition_index": one.partition_index,
            "error_code": code,
            "timestamp": -1,
            "offset": -1,
            "leader_epoch": -1,
        }
        for one in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


def epoch_ends(topic: Any, code: int) -> Values:
    partitions = [
        {"error_code": code, "partition": one.partition, "leader_epoch": -1, "end_offset": -1}
        for one in topic.partitions
    ]
    return {"topic": topic.topic, "partitions": partitions}


def records_deleted(topic: Any, code: int) -> Values:
    partitions = [
        {"partition_index": one.partition_index, "low_watermark": -1, "error_code": code}
        for one in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


def producers(topic: Any, code: int) -> Values:
    partitions = [partition_told(index, code) for index in topic.partition_indexes]
    return {"name": topic.name, "partitions": partitions}


def partitions_created(topic: Any, code: int) -> Values:
    return {"name": topic.name, "error_code": code, "error_message": None}


def _created(topic: Any, code: int) -> Values:
    return {
        "name": topic.name,
        "topic_id": None,
        "error_code": code,
        "error_message": NOT_AUTHORIZED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


_CREATE = EachTopic(_Op.CREATE, _created)


def create_topics(asking: Asking) -> Guarded:
    """Require Create on the cluster or on each topic. The reply shows a topic's configs only to
    clients with DescribeConfigs on it."""
    rights = asking.rights
    result = asking.pass_on() if rights.cluster_quietly(_Op.CREATE) else _CREATE(asking)

    def hide(values: Values) -> None:
        for topic in values["topics"]:
            hidden = not topic["error_code"] and not rights.is_told_configs(topic["name"])
            if hidden and "configs" in topic:
                topic |= {"configs": None, "num_partitions": -1, "replication_factor": -1}
                topic["topic_config_error_code"] = Code.TOPIC_AUTHORIZATION_FAILED

    return asking.change(result, hide)


def delete_topics(asking: Asking) -> Guarded:
    """Require Delete on the cluster or on each topic. Topics without it get an error, and the other
    ones are passed on, with those that do not exist. The name of a topic that was requested by id
    is not shown to clients without Describe on it."""
    rights = asking.rights
    if rights.cluster_quietly(_Op.DELETE):
        return asking.pass_on()
    by_name = asking.version < _IDS_VERSION
    named = asking.value.topic_names if by_name else asking.value.topics
    entries: list[Values] = []
    left: list[Any] = []
    for one in named:
        name = one if by_name else one.name
        topic_id = None if by_name else one.topic_id
        known = rights.topic_name(topic_id) if name is None else name
        if known is None or rights.topic(_Op.DELETE, known) or _may_know_it_is_not(rights, known):
            left.append(plain(one))
            continue
        shown = name if name is not None or not rights.topic(_Op.DESCRIBE, known) else known
        entries.append(
            {
                "name": shown,
                "topic_id": topic_id,
                "error_code": Code.TOPIC_AUTHORIZATION_FAILED,
                "error_message": NOT_AUTHORIZED,
            }
        )
    if not entries:
        return asking.pass_on()
    if not left:
        return asking.tell({"responses": entries})
    field = "topic_names" if by_name else "topics"
    return asking.change(asking.pass_on_with(**{field: left}), added("responses", entries))


def _may_know_it_is_not(rights: Rights, name: str) -> bool:
    return rights.topic(_Op.DESCRIBE, name) and not rights.there_is(name)


def describe_topic_partitions(asking: Asking) -> Guarded:
    """If all topics are requested, remove those that the client may not describe. If topics are
    named, those that it may not describe get an error. Set the authorized operations of each topic
    in the reply."""
    return asking.change(_described(asking), partial(tell_topics, asking))


def _described(asking: Asking) -> Guarded:
    rights = asking.rights
    code = Code.TOPIC_AUTHORIZATION_FAILED
    if not asking.value.topics:
        names = rights.visible_topics().names
        if names is None:
            return asking.pass_on()
        if not names:
            return asking.tell({"topics": [], "next_cursor": None})
        return asking.pass_on_with(topics=[{"name": name} for name in names])
    denied = [one for one in asking.value.topics if not rights.topic(_Op.DESCRIBE, one.name)]
    if not denied:
        return asking.pass_on()
    entries = [
        {"error_code": code, "name": one.name, "topic_id": None, "partitions": []} for one in denied
    ]
    gone = {one.name for one in denied}
    left = [plain(one) for one in asking.value.topics if one.name not in gone]
    if not left:
        return asking.tell({"topics": entries, "next_cursor": None})
    return asking.change(asking.pass_on_with(topics=left), added("topics", entries))


# --- Metadata ------------------------------------------------------------------------------------


def metadata(asking: Asking) -> Guarded:
    """Remove the topics that the client may not describe: from a reply about all topics without a
    trace, from a request that names them with an error. A request for all topics is changed into
    one that names the visible topics, so that the reply, which the handler remembers, does not show
    topics that only other clients may see. If requested, add the authorized operations."""
    topics = asking.value.topics
    all_of_them = topics is None or (asking.version == 0 and not topics)
    verdict = _all_metadata(asking) if all_of_them else _named_metadata(asking)
    if getattr(asking.value, "include_cluster_authorized_operations", False):
        verdict = asking.change(verdict, partial(_tell_cluster, asking))
    if getattr(asking.value, "include_topic_authorized_operations", False):
        verdict = asking.change(verdict, partial(tell_topics, asking))
    return verdict


def _tell_cluster(asking: Asking, values: Values) -> None:
    values["cluster_authorized_operations"] = asking.rights.on_the_cluster()


def tell_topics(asking: Asking, values: Values) -> None:
    """Set, in a reply's values, the operations that the client may do on each topic (KIP-430), as
    bits. Topics without a name, or that the client may not describe, are left as they are."""
    for topic in values["topics"]:
        if topic["name"] is not None and topic["error_code"] != Code.TOPIC_AUTHORIZATION_FAILED:
            may = asking.rights.operations(ResourceType.TOPIC, topic["name"])
            topic["topic_authorized_operations"] = may


def _all_metadata(asking: Asking) -> Guarded:
    visible = asking.rights.visible_topics()
    names, context = visible.names, asking.context
    if names is not None and not names and asking.version == 0:
        # In version 0 an empty list stands for all.
        result = asking.pass_on_with(topics=[{"name": ""}])
        return asking.change(result, lambda values: values.update(topics=[]))

    def by_name() -> bytes | None:
        if names is None:
            return None
        entries = [{"topic_id": None, "name": name} for name in names]
        return asking.encoded_with(topics=entries, allow_auto_topic_creation=False)

    body = visible.request(context.api_key, asking.version, context.body, by_name)
    return Guarded(body=None if body is None else memoryview(body))


def _named_metadata(asking: Asking) -> Guarded:
    rights = asking.rights
    code = Code.TOPIC_AUTHORIZATION_FAILED
    makes = getattr(asking.value, "allow_auto_topic_creation", True)
    entries: list[Values] = []
    left: list[Any] = []
    for one in asking.value.topics:
        topic_id = getattr(one, "topic_id", None)
        name = name_asked_for(one)
        by_id = name is None
        if by_id:
            name = rights.topic_name(topic_id)
        if name is None or (
            rights.topic(_Op.DESCRIBE, name) and (by_id or not makes or rights.may_be_made(name))
        ):
            left.append(one)
            continue
        shown = {"name": None if by_id else name, "topic_id": topic_id if by_id else None}
        entries.append({"error_code": code, **shown, "is_internal": False, "partitions": []})
    if not entries:
        return asking.pass_on()
    if left or asking.version > 0:
        result = asking.pass_on_with(topics=[plain(one) for one in left])
        return asking.change(result, added("topics", entries))
    result = asking.pass_on_with(topics=[{"name": ""}])
    return asking.change(result, lambda values: values.update(topics=entries))


# --- configs, coordinators, producers ------------------------------------------------------------


def on_configs(operation: AclOperation, told: str, *, shows_configs: bool = False) -> Guard:
    """Return a guard that requires the right to `operation` on each topic or group with configs,
    and on the cluster for brokers' configs. `told`: the reply's list of results. `shows_configs`:
    True if a result has a list of configs."""

    def guard(asking: Asking) -> Guarded:
        denied: list[tuple[Any, Code]] = []
        left: list[Any] = []
        for one in asking.value.resources:
            code = _refused_configs(asking, operation, one)
            if code is None:
                left.append(one)
            else:
                denied.append((one, code))
        if not denied:
            return asking.pass_on()
        more: Values = {"configs": []} if shows_configs else {}
        entries = [
            {
                "error_code": code,
                "error_message": NOT_AUTHORIZED,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
                **more,
            }
            for one, code in denied
        ]
        if not left:
            return asking.tell({told: entries})
        result = asking.pass_on_with(resources=[plain(one) for one in left])
        return asking.change(result, added(told, entries))

    return guard


def _refused_configs(asking: Asking, operation: AclOperation, one: Any) -> Code | None:
    rights = asking.rights
    if one.resource_type == _TOPIC_CONFIGS:
        allowed, code = rights.topic(operation, one.resource_name), Code.TOPIC_AUTHORIZATION_FAILED
    elif one.resource_type == _GROUP_CONFIGS:
        allowed, code = rights.group(operation, one.resource_name), Code.GROUP_AUTHORIZATION_FAILED
    else:
        allowed, code = rights.cluster(operation), Code.CLUSTER_AUTHORIZATION_FAILED
    return None if allowed else code


def find_coordinator(asking: Asking) -> Guarded:
    """Require Describe on each group, or each transactional id, that the request names. Keys
    without it get an error, and the other ones are passed on."""
    many = asking.version >= 4
    keys = list(asking.value.coordinator_keys) if many else [asking.value.key]
    kind = getattr(asking.value, "key_type", _GROUP)
    code = Code.GROUP_AUTHORIZATION_FAILED
    may = asking.rights.group
    if kind == _TRANSACTION:
        code, may = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, asking.rights.transactional_id
    # Each key once, so that the time grows only with the number of distinct keys.
    denied = dict.fromkeys(key for key in dict.fromkeys(keys) if not may(_Op.DESCRIBE, key))
    if not denied:
        return asking.pass_on()
    entries = [
        {"key": key, "error_code": code, "error_message": NOT_AUTHORIZED, **_NOBODY}
        for key in keys
        if key in denied
    ]
    if not many:
        return asking.tell(entries[0])
    left = [key for key in keys if key not in denied]
    if not left:
        return asking.tell({"coordinators": entries})
    return asking.change(asking.pass_on_with(coordinator_keys=left), added("coordinators", entries))


def init_producer_id(asking: Asking) -> Guarded:
    """Require Write on the transactional id. Without one, require IdempotentWrite on the cluster or
    Write on any topic (KIP-679)."""
    rights, transactional_id = asking.rights, asking.value.transactional_id
    code = Code.CLUSTER_AUTHORIZATION_FAILED
    if transactional_id is not None:
        allowed = rights.transactional_id(_Op.WRITE, transactional_id)
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        allowed = rights.cluster_quietly(_Op.IDEMPOTENT_WRITE) or rights.on_any_topic(_Op.WRITE)
    if allowed:
        return asking.pass_on()
    return asking.tell({"error_code": code, "producer_id": -1, "producer_epoch": -1})


# --- transactions --------------------------------------------------------------------------------

_BROKERS_VERSION = 4


def add_partitions(asking: Asking) -> Guarded:
    """Require Write on the transactional id and on each topic; of a request of a broker (version 4
    and later) ClusterAction. One missing right refuses the whole request, as in Kafka."""
    rights, value = asking.rights, asking.value
    if asking.version >= _BROKERS_VERSION:
        if rights.cluster(_Op.CLUSTER_ACTION):
            return asking.pass_on()
        refused = {"error_code": Code.CLUSTER_AUTHORIZATION_FAILED, "results_by_transaction": []}
        return asking.tell(refused)
    topics = value.v3_and_below_topics
    if not rights.transactional_id(_Op.WRITE, value.v3_and_below_transactional_id):
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return asking.tell(_added_to_none(topics, {}, code))
    denied = {one.name: not rights.topic(_Op.WRITE, one.name) for one in topics}
    if not any(denied.values()):
        return asking.pass_on()
    return asking.tell(_added_to_none(topics, denied, Code.OPERATION_NOT_ATTEMPTED))


def _added_to_none(topics: Iterable[Any], denied: Mapping[str, bool], code: Code) -> Values:
    """Return the reply that adds no partition: `code` for all but those of denied topics."""
    results = [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": Code.TOPIC_AUTHORIZATION_FAILED
                    if denied.get(topic.name)
                    else code,
                }
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
    return {"results_by_topic_v3_and_below": results}


def add_offsets(asking: Asking) -> Guarded:
    """Require Write on the transactional id and Read on the group."""
    rights, value = asking.rights, asking.value
    if not rights.transactional_id(_Op.WRITE, value.transactional_id):
        return asking.tell({"error_code": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    if not rights.group(_Op.READ, value.group_id):
        return asking.tell({"error_code": Code.GROUP_AUTHORIZATION_FAILED})
    return asking.pass_on()


def commit_in_transaction(asking: Asking) -> Guarded:
    """Require Write on the transactional id. The handler checks the group and the topics."""
    value = asking.value
    if asking.rights.transactional_id(_Op.WRITE, value.transactional_id):
        return asking.pass_on()
    code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, "error_code": code}
                for one in topic.partitions
            ],
        }
        for topic in value.topics
    ]
    return asking.tell({"topics": topics})


def end_transaction(asking: Asking) -> Guarded:
    """Require Write on the transactional id."""
    if asking.rights.transactional_id(_Op.WRITE, asking.value.transactional_id):
        return asking.pass_on()
    return asking.tell({"error_code": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})


def describe_transactions(asking: Asking) -> Guarded:
    """Require Describe on each transactional id. Ids without it get an error."""
    names = list(dict.fromkeys(map(str, asking.value.transactional_ids)))
    may = asking.rights.transactional_id
    denied = {name for name in names if not may(_Op.DESCRIBE, name)}
    if not denied:
        return asking.pass_on()
    code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    entries = [undescribed(name, code) for name in names if name in denied]
    left = [name for name in names if name not in denied]
    if not left:
        return asking.tell({"transaction_states": entries})
    verdict = asking.pass_on_with(transactional_ids=left)
    return asking.change(verdict, added("transaction_states", entries))


def no_markers(request: Any) -> Values:
    """Return the reply that writes no marker."""
    code = Code.CLUSTER_AUTHORIZATION_FAILED
    markers = [
        {
            "producer_id": marker.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": index, "error_code": code}
                        for index in topic.partition_indexes
                    ],
                }
                for topic in marker.topics
            ],
        }
        for marker in request.markers
    ]
    return {"markers": markers}
